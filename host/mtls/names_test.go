package mtls_test

import (
	"testing"

	"ankole.storage/host/mtls/mtlstest"
)

// TestPeerName: certificates that people make for the reference name this peer.
func TestPeerName(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	for name, ok := range map[string]bool{
		"longhorn-backend.longhorn-system": true, "longhorn-backend": false, "longhorn-backend.other": false,
	} {
		dir := t.TempDir()
		authority.Write(t, dir, mtlstest.Named(name, ""))
		if err := mtlstest.CallBy(t, address(t, dir), mtlstest.Dialer(dir)); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
