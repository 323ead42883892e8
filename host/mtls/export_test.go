package mtls

import (
	"net"
	"testing"
)

// SameHost is what decides where plaintext may be spoken.
func SameHost(c net.Conn) bool { return sameHost(c) }

// SetSameHost changes it for one test.
func SetSameHost(t *testing.T, f func(net.Conn) bool) {
	before := sameHost
	sameHost = f
	t.Cleanup(func() { sameHost = before })
}
