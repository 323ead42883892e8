// Package logwritertest gives tests an output that nobody reads.
package logwritertest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// FullPipe returns the writing end of a pipe that is full, and that nobody reads before the end of
// the test: as the standard error of a process it holds up whoever writes a word to it.
func FullPipe(t testing.TB) *os.File {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	page := make([]byte, 4096)
	for {
		_, err := unix.Write(fds[1], page)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	w := os.NewFile(uintptr(fds[1]), "full pipe")
	t.Cleanup(func() { w.Close() })
	return w
}

// BrokenPipe returns the writing end of a pipe whose reader has gone.
func BrokenPipe(t testing.TB) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}
