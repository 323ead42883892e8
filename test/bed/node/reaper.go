package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// family starts processes and takes in every process of the node that has lost its parent. Both
// belong together: whoever waits for any child also gets those that were started on purpose.
type family struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newFamily() *family {
	f := &family{waiting: map[int]chan syscall.WaitStatus{}}
	return f
}

// start begins a program, found in PATH, with its output in a file.
func (f *family) start(log string, argv ...string) (pid int, end <-chan syscall.WaitStatus, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer func() { _ = null.Close() }()
	f.mu.Lock() // an end that is heard of before the entry is made would be lost
	defer f.mu.Unlock()
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Dir: "/",
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	ch := make(chan syscall.WaitStatus, 1)
	f.waiting[pid] = ch
	return pid, ch, nil
}

// run starts a program and waits for a good end.
func (f *family) run(log string, argv ...string) error {
	_, end, err := f.start(log, argv...)
	if err != nil {
		return err
	}
	if status := <-end; status != 0 {
		return fmt.Errorf("%s ended with status %d; see %s", argv[0], status.ExitStatus(), log)
	}
	return nil
}

// reap waits for children as long as the process lives.
func (f *family) reap(chld <-chan os.Signal) {
	for range chld {
		for {
			var status syscall.WaitStatus
			f.mu.Lock()
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			ch := f.waiting[pid]
			if pid > 0 {
				delete(f.waiting, pid)
			}
			f.mu.Unlock()
			if ch != nil && pid > 0 {
				ch <- status
			}
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
