// Package barethread runs a function on a thread that keeps none of its process's files open.
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
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstFD is the first descriptor that is closed: input, output and error keep nothing alive.
const firstFD = 3

// mostFDs bounds what is closed one by one, where the kernel (before 5.9) cannot close all at once.
const mostFDs = 1 << 16

// polling are the descriptors by which the Go runtime waits for all others, in ascending order. It
// uses them on any thread, for instance on the one that begins a garbage collection, and ends the
// process if they are not open there. They keep nothing else open. They are looked for when the
// program starts: later there are others of their kind, and perhaps no descriptor is free.
var polling, errPolling = findPolling()

func findPolling() (list []int, err error) {
	const dir = "/proc/self/fd/"
	r, w, err := os.Pipe() // the runtime has its own from the first one on that can be waited for
	if err != nil {
		return nil, fmt.Errorf("descriptors of the runtime: %w", err)
	}
	defer r.Close()
	defer w.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("descriptors of the runtime: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < firstFD {
			continue
		}
		if kind, err := os.Readlink(dir + e.Name()); err == nil &&
			(kind == "anon_inode:[eventpoll]" || kind == "anon_inode:[eventfd]") {
			list = append(list, fd)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("descriptors of the runtime: there are none")
	}
	slices.Sort(list)
	return list, nil
}

// Run runs f and returns its error. f may open and close descriptors by system calls of package
// unix only, must close what it opens, and starts no process: package os would meet a runtime that
// knows the descriptors of all other threads.
func Run(f func() error) error {
	if errPolling != nil {
		return errPolling
	}
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

// shed gives the thread a table of descriptors of its own, with the first three and the runtime's
// in it.
func shed() error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return err
	}
	first := uint(firstFD)
	for _, fd := range polling {
		if err := closeRange(first, uint(fd)-1); err != nil {
			return err
		}
		first = uint(fd) + 1
	}
	return closeRange(first, math.MaxUint32)
}

// closeRange closes the descriptors from first to last, if there are any.
func closeRange(first, last uint) error {
	if first > last {
		return nil
	}
	if err := unix.CloseRange(first, last, 0); !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return err
	}
	for fd := first; fd <= last && uint64(fd) < min(most.Cur, mostFDs); fd++ {
		_ = unix.Close(int(fd)) // most are not open
	}
	return nil
}
