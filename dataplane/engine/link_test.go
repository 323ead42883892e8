package engine

import "testing"

// Addresses of one host are the same however they are written.
func TestIsAt(t *testing.T) {
	for _, tt := range []struct {
		addr, host string
		want       bool
	}{
		{"10.0.0.1:10000", "10.0.0.1", true}, {"10.0.0.1:10000", "10.0.0.11", false}, {"10.0.0.1", "10.0.0.1", false},
		{"[fd00::5]:10000", "fd00::5", true}, {"[fd00::5]:10000", "fd00:0:0::5", true}, {"[fd00::5]:10000", "fd00::6", false},
		{"b:1", "b", true}, {"b:1", "", false}, {":1", "", false}, {"", "", false},
	} {
		if got := isAt(tt.addr, tt.host); got != tt.want {
			t.Errorf("%q at %q: %v", tt.addr, tt.host, got)
		}
	}
}
