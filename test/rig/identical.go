package rig

import (
	"fmt"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/wait"
)

// Final fails the test if a comparison or a user has found something: no matter of time, whatever
// else the test waits for.
func Final(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		wait.Final(t, err.Error())
		t.Fatal(err)
	}
}

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
			Final(t, fmt.Errorf("replica %s differs from %s", dir, dirs[0]))
		}
	}
	return first
}
