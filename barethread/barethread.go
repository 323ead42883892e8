// Package barethread runs a function on a thread that has none of its process's descriptors open.
//
// The kernel closes the descriptors of a process that is killed when the last thread that shares
// them has ended. A thread that waits, uninterruptibly, for a file system that its own process
// serves, or keeps, ends when that is answered or its connection is closed: if the thread itself
// keeps the connection open neither ever happens, the process cannot be killed, and whoever uses
// the file system waits for ever. With a table of descriptors of its own the thread keeps nothing.
package barethread

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

// firstFD is the first descriptor that is closed: input, output and error keep nothing alive.
const firstFD = 3

// mostFDs bounds what is closed one by one, where the kernel (before 5.9) cannot close all at once.
const mostFDs = 1 << 16

// Run runs f and returns its error. f may open and close descriptors by system calls of package
// unix only, must close what it opens, and starts no process: package os would meet a runtime that
// knows the descriptors of all other threads.
func Run(f func() error) error {
	ended := make(chan error, 1)
	go start(f, ended)
	return <-ended
}

func start(f func() error, ended chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// What /proc/self shows is the main thread's view. While it is held, f gets another one.
		defer runtime.UnlockOSThread()
		ended <- Run(f)
		return
	}
	// Never unlocked: the runtime ends the thread with the goroutine, and starts no other from it.
	if err := shed(); err != nil {
		ended <- fmt.Errorf("thread without the process's descriptors: %w", err)
		return
	}
	ended <- f()
}

// shed gives the thread a table of descriptors of its own, with the first three in it.
func shed() error {
	err := unix.CloseRange(firstFD, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return err
	}
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return err
	}
	for fd := firstFD; fd < int(min(most.Cur, mostFDs)); fd++ {
		_ = unix.Close(fd) // most are not open
	}
	return nil
}
