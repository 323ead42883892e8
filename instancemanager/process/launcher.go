package process

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// launcher starts processes from one OS thread.
//
// The parent death signal is sent when the *thread* that forked ends, and goroutines move between
// threads that come and go; so one goroutine is locked to a thread, starts every process, and ends
// only after the last one has ended. The same thread carries PR_SET_IO_FLUSHER, which children
// inherit: an engine serves the writeback of the file system above it, so it must not wait for
// writeback when it needs memory.
type launcher struct {
	requests chan launch
	ended    chan struct{}
}

type launch struct {
	cmd  *exec.Cmd
	done chan error
}

func newLauncher(log *slog.Logger) *launcher {
	l := &launcher{requests: make(chan launch), ended: make(chan struct{})}
	go l.run(log)
	return l
}

func (l *launcher) run(log *slog.Logger) {
	defer close(l.ended)
	// Never unlocked: the thread must end with this goroutine, as its IO_FLUSHER state must not
	// leak to others.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0); err != nil {
		log.Warn("instances run without PR_SET_IO_FLUSHER: under memory pressure a volume mounted on this node may stall; "+
			"give the Pod the capability SYS_RESOURCE", "err", err)
	}
	for r := range l.requests {
		r.done <- r.cmd.Start()
	}
}

// start starts cmd with the death signal set. Its process group is its own.
func (l *launcher) start(cmd *exec.Cmd) (*child, error) {
	pidFD := -1
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, PidFD: &pidFD}
	r := launch{cmd: cmd, done: make(chan error, 1)}
	l.requests <- r
	if err := <-r.done; err != nil {
		return nil, err
	}
	return newChild(cmd, pidFD), nil
}

// close ends the thread. All processes must have ended: those left would be killed.
func (l *launcher) close() {
	close(l.requests)
	<-l.ended
}

// child is a started process that has not been reaped.
type child struct {
	cmd   *exec.Cmd
	pidFD *os.File // nil: the kernel gave none
}

func newChild(cmd *exec.Cmd, pidFD int) *child {
	c := &child{cmd: cmd}
	if pidFD >= 0 {
		// Non-blocking, so that waiting for it is the netpoller's work and costs no OS thread.
		if err := unix.SetNonblock(pidFD, true); err == nil {
			c.pidFD = os.NewFile(uintptr(pidFD), "pidfd")
		} else {
			unix.Close(pidFD)
		}
	}
	return c
}

// awaitEnd returns when the process has ended, without reaping it: until then its process and group
// numbers are its own.
func (c *child) awaitEnd() {
	if c.pidFD != nil {
		conn, err := c.pidFD.SyscallConn()
		if err == nil {
			err = conn.Read(func(fd uintptr) bool { return c.hasEnded(unix.WNOHANG) })
		}
		if err == nil {
			return
		}
	}
	c.hasEnded(0)
}

// hasEnded asks the kernel; with WNOHANG in flags it does not wait.
func (c *child) hasEnded(flags int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|flags, nil)
		if !errors.Is(err, unix.EINTR) {
			// An error here (ECHILD) means somebody else reaped it: it has ended in any case.
			return err != nil || info.Signo != 0
		}
	}
}

// signal sends sig to the whole group. The process must not have been reaped.
func (c *child) signal(sig unix.Signal) error { return unix.Kill(-c.cmd.Process.Pid, sig) }

// reap ends what is left of the group and collects the exit state. Call it after awaitEnd.
func (c *child) reap() error {
	_ = c.signal(unix.SIGKILL)
	err := c.cmd.Wait()
	if c.pidFD != nil {
		c.pidFD.Close()
	}
	return err
}
