package rig

import (
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/disk/osdisk"
)

// Identical compares the content of replica directories that nobody uses any more, and returns its
// SHA-256.
func Identical(t testing.TB, dirs ...string) [32]byte {
	t.Helper()
	var first [32]byte
	for i, dir := range dirs {
		c, err := chain.Open(osdisk.New(func(p string) string { return p }), dir, chain.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := c.HashAt(chain.HeadName)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = sum
		} else if sum != first {
			t.Fatalf("replica %s differs from %s", dir, dirs[0])
		}
	}
	return first
}
