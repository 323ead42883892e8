package node

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/test/lack"
)

// TestPlantedHeader: whoever can write to a volume puts another header in front of it. It is not
// opened, whatever it says and with whatever key; the former header is, when it is back.
func TestPlantedHeader(t *testing.T) {
	const key = "a key of many words" // the Secret's: the worst case
	cheap := []string{"luksFormat", "--batch-mode", "--type=luks2", "--key-file=-", "--pbkdf=pbkdf2",
		"--pbkdf-force-iterations=1000"}
	for name, tc := range map[string]struct {
		options []string
		words   string
	}{
		"null cipher":    {[]string{"--cipher=cipher_null-ecb", "--key-size=256"}, "cipher_null-ecb, which encrypts nothing"},
		"another cipher": {[]string{"--cipher=aes-cbc-plain64", "--key-size=256"}, "the Secret asks for aes-xts-plain64"},
		"a shorter key":  {[]string{"--cipher=aes-xts-plain64", "--key-size=512"}, "512 bits, and the Secret asks for 256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, 64*mib)
			kept := b.written()
			b.cryptsetup(key, append(append(cheap, tc.options...), b.loop)...)
			b.refuses(tc.words)
			b.cryptsetup("guessed", append(append(cheap, tc.options...), b.loop)...)
			b.refuses(tc.words)
			b.must(os.WriteFile(filepath.Join(b.dir, "another"), []byte("guessed"), 0o600))
			b.restore(kept)
			b.cryptsetup(key, "luksAddKey", "--batch-mode", "--key-file=-", "--pbkdf=pbkdf2",
				"--pbkdf-force-iterations=1000", b.loop, filepath.Join(b.dir, "another"))
			b.refuses("key slots [0 1], and one is asked for", "luksKillSlot")
			b.restore(kept)
			b.kept()
		})
	}
}

// TestChangedWhileItIsOpened: the header that was checked is the one that is used, whatever is read
// from the device a moment later.
func TestChangedWhileItIsOpened(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	s, ok := b.run.(*standIn)
	if !ok {
		lack.Skip(t, "only what stands for cryptsetup can be held between two of its calls")
	}
	kept := b.written()
	s.dumped = func() {
		b.cryptsetup("guessed", "luksFormat", "--cipher=cipher_null-ecb", "--key-size=256", b.loop)
	}
	b.must(b.stage(csitest.Capability("ext4", csitest.Once)), b.unstage())
	b.refuses("encrypts nothing")
	s.dumped = nil
	b.restore(kept)
	b.kept()
}

// headerBytes are what tests put away of a header and put back: all of it that changes.
const headerBytes = 1 << 20

// written has a Pod write to the volume, and returns its header.
func (b *bed) written() []byte {
	b.Helper()
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c), b.publish(1, c, false))
	b.content("ext4", 1, "kept")
	b.must(b.unpublish(1), b.unstage())
	f, err := os.Open(b.loop)
	b.must(err)
	header := make([]byte, headerBytes)
	_, err = f.ReadAt(header, 0)
	b.must(err, f.Close())
	return header
}

func (b *bed) restore(header []byte) {
	b.Helper()
	f, err := os.OpenFile(b.loop, os.O_WRONLY, 0)
	b.must(err)
	_, err = f.WriteAt(header, 0)
	b.must(err, f.Sync(), f.Close())
}

// kept: the volume opens and has what written wrote.
func (b *bed) kept() {
	b.Helper()
	c := csitest.Capability("ext4", csitest.Once)
	b.must(b.stage(c), b.publish(2, c, false))
	if got := b.content("ext4", 2, ""); got != "kept" {
		b.Errorf("read %q", got)
	}
	b.must(b.unpublish(2), b.unstage())
	b.locked()
}

// refuses: the volume is not opened, and nothing is written to it.
func (b *bed) refuses(words ...string) {
	b.Helper()
	before := b.sum("80M")
	err := b.stage(csitest.Capability("ext4", csitest.Once))
	if csitest.Wants(b.T, err, codes.FailedPrecondition); err == nil {
		b.must(b.unstage())
		return
	}
	csitest.Says(b.T, err, append(words, b.volume, "nothing is changed")...)
	b.locked()
	if b.sum("80M") != before {
		b.Error("the volume was changed")
	}
}
