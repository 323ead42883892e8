// Package helper does what may have to wait in the kernel for a volume, in a process of its own.
//
// A thread that waits in the kernel for a volume cannot be killed, and a process ends only with its
// last thread. A driver that unmounted by itself would not end, and without it the next one is not
// started, so that no Pod of the node starts or stops. So a helper does it: this program once more,
// in a session of its own, for whose end nobody has to wait.
//
// A helper does its work before the large packages of the program are initialised, which takes
// longer than the work. So this package imports nothing but the standard library, see
// csi.TestHelperIsFirst.
package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// name, argv[0], by which this program knows that it is a helper.
const name = "ankole-csi-helper"

// What a helper does; its arguments are one of these, a path, and for an unmount the flags.
const (
	unmount = "unmount"
	look    = "look"
)

// failed is the exit status of a helper whose error is none of the kernel's.
const failed = 255

func init() {
	if len(os.Args) == 4 && os.Args[0] == name {
		os.Exit(work(os.Args[1], os.Args[2], os.Args[3]))
	}
}

// work returns the exit status: the number of the kernel's error, 0 for none.
func work(what, path, flags string) int {
	var err error
	switch what {
	case unmount:
		var bits int
		if bits, err = strconv.Atoi(flags); err == nil {
			err = syscall.Unmount(path, bits)
		}
	case look:
		err = lookInto(path)
	default:
		err = fmt.Errorf("%q is no work of a helper", what)
	}
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno) && errno < failed:
		return int(errno)
	}
	fmt.Fprintln(os.Stderr, err)
	return failed
}

// lookInto reads one entry of a directory: whether there is an answer is what matters, and there
// may be millions.
func lookInto(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Readdirnames(1); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Unmount takes away the mount that is seen at a path, with flags as in umount2(2). Its errors are
// those of Look.
func Unmount(path string, flags int) error { return run(unmount, path, flags) }

// Look looks into a directory. What the kernel said is a syscall.Errno; in any other error there is
// none: then there was no answer of the kernel, such as when a helper could not be started.
func Look(path string) error { return run(look, path, 0) }

func run(what, path string, flags int) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{name, what, path, strconv.Itoa(flags)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < failed {
		return syscall.Errno(exit.ExitCode())
	}
	// Not wrapped: that no process could be started, say with EAGAIN, is not about the path.
	return fmt.Errorf("helper: %s %s: %v: %s", what, path, err, out)
}
