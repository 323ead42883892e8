// Package descriptors lets a test see what a process does that has no file descriptor free.
package descriptors

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// None takes the process's free descriptors away until restore is called, or the test ends. Those
// that are open stay so. Of one that is closed meanwhile the number is free again.
func None(t testing.TB) (restore func()) {
	t.Helper()
	last, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	// They are numbered from below, and all up to this one are in use.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last.Fd()), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
		last.Close()
	})
	t.Cleanup(restore)
	return restore
}
