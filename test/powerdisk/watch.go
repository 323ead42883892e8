package powerdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchVariable has the directory of a run in the environment of the process that watches over it.
const watchVariable = "ANKOLE_POWERDISK_WATCH"

// watchEvery is how often it looks.
const watchEvery = 200 * time.Millisecond

// watchOver starts a process of this program, which has to call watch, that removes the run if its
// owner is killed. Otherwise its disks stand still until the next run begins, and every program of
// the machine that looks at all loop devices waits for them.
func watchOver(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self)
	for _, v := range os.Environ() { // it is no process of the run
		if !strings.HasPrefix(v, Variable+"=") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, watchVariable+"="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // whoever kills the owner kills its group
	if err := c.Start(); err != nil {
		return fmt.Errorf("a process that watches over %s: %w", dir, err)
	}
	go func() { _ = c.Wait() }() // it ends after the run
	return nil
}

// watch returns when the run is gone, and removes it if its owner has been killed.
func watch(dir string) error {
	for {
		lock, err := lockDir(dir)
		if errors.Is(err, unix.EWOULDBLOCK) && dying(dir) {
			lock, err = abandon(dir)
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			time.Sleep(watchEvery)
			continue
		case err != nil:
			return err
		}
		defer lock.Close()
		return removeRun(filepath.Clean(dir), 0)
	}
}
