package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// TestEncryptedIsNoted: whoever reads a directory without its volume is told that a LUKS header
// begins it.
func TestEncryptedIsNoted(t *testing.T) {
	for _, want := range []bool{true, false} {
		fs := memdisk.New()
		spec := testSpec(64 << 20)
		spec.Encrypted = want
		if err := chain.Create(fs, "/r", spec, testOptions()); err != nil {
			t.Fatal(err)
		}
		if s, err := chain.ReadSurvey(fs, "/r"); err != nil || s.Volume.Encrypted != want {
			t.Errorf("noted %+v, %v; want %v", s.Volume, err, want)
		}
	}
}
