package barethread

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRun: the function sees none of the process's descriptors, the process sees none of the
// function's, and keeps its own.
func TestRun(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mine := int(f.Fd())
	failed := errors.New("failed")
	var own int
	for range 20 {
		err = Run(func() error {
			var st unix.Stat_t
			if err := unix.Fstat(mine, &st); !errors.Is(err, unix.EBADF) {
				return fmt.Errorf("descriptor %d is open: %w", mine, err)
			}
			var err error
			if own, err = unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
			defer unix.Close(own)
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
	}
	var here, null unix.Stat_t
	if err := unix.Fstat(mine, &here); err != nil {
		t.Errorf("the process has lost a descriptor: %v", err)
	}
	if err := unix.Stat("/dev/null", &null); err != nil || here.Rdev != null.Rdev {
		t.Errorf("descriptor %d is another file: %v", mine, err)
	}
}

// TestRuntimeGoesOn: what the Go runtime does on whichever thread comes to it, it can do on this
// one too. It waits for descriptors when a collection of garbage ends, and wakes the thread that
// waits for them when a timer is set.
func TestRuntimeGoesOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept() // somebody waits for a descriptor meanwhile
		if err == nil {
			c.Close()
		}
		accepted <- err
	}()
	for range 20 {
		if err := Run(func() error {
			runtime.GC()
			<-time.After(time.Millisecond)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	l.Close()
}
