package blockdev_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
)

// TestRemoveDead: what a killed server has left goes, if nobody holds its connection for the next
// one. A living server's device stays, and so does one that waits.
func TestRemoveDead(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cfg := victimConfig(dir)
	cfg.Timeout = 200 * time.Millisecond // for one that does not answer
	node := filepath.Join(cfg.DeviceDir, cfg.Volume)
	remove := func() {
		t.Helper()
		if err := blockdev.RemoveDead(t.Context(), cfg); err != nil {
			t.Error(err)
		}
	}
	remove() // nothing is there
	cmd := startVictim(t, dir)
	remove()
	readPage(t, node)
	kept := connectionOf(t, cmd.Process.Pid)
	kill(cmd)
	remove()
	if _, err := os.Lstat(node); err != nil {
		t.Errorf("a device that waits for its next server: %v", err)
	}
	unix.Close(kept)
	remove()
	nothingLeft(t, cfg)
}

// TestRemoveDeadLooksAgain: a server that has no lock in common with who looks, as in another
// container, brings the device up again between the look and the removal. Nothing of it is touched.
func TestRemoveDeadLooksAgain(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cfg := victimConfig(dir)
	node := filepath.Join(cfg.DeviceDir, cfg.Volume)
	kill(startVictim(t, dir))
	var again *exec.Cmd
	undo := blockdev.AfterFirstLook(func(string) {
		again = startVictim(t, dir)
		if err := os.Remove(blockdev.LockPath(cfg)); err != nil {
			t.Error(err)
		}
	})
	err := blockdev.RemoveDead(t.Context(), cfg)
	undo()
	if err != nil {
		t.Error(err)
	}
	if again == nil {
		t.Fatal("what a killed server has left was not found")
	}
	if _, err := os.Lstat(blockdev.LockPath(cfg)); !os.IsNotExist(err) {
		t.Errorf("who looked has left a lock file of its own: %v", err)
	}
	readPage(t, node)
	kill(again)
	if err := blockdev.RemoveDead(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	nothingLeft(t, cfg)
}

// TestServerWaitsForWhoLooks: who looks for what killed servers have left has the volume's lock for
// a moment; a server that begins then waits for it.
func TestServerWaitsForWhoLooks(t *testing.T) {
	needDevices(t)
	cfg := victimConfig(t.TempDir())
	path := blockdev.LockPath(cfg)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(lock, unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	undo := blockdev.LockRefused(func() {
		if refused++; refused == 2 {
			unix.Close(lock)
		}
	})
	d, err := blockdev.Open(t.Context(), cfg)
	undo()
	if err != nil {
		t.Fatal(err)
	}
	if refused != 2 {
		t.Errorf("the lock was refused %d times", refused)
	}
	if err := d.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
	nothingLeft(t, cfg)
}

// TestNodeFromBeforeAPowerLoss: a device directory on a disk outlives a boot, and loop devices do
// not: the one of a volume's node is somebody else's by now. The node is in nobody's way, and
// nothing happens to that loop device.
func TestNodeFromBeforeAPowerLoss(t *testing.T) {
	needDevices(t)
	for name, step := range map[string]func(cfg blockdev.Config) error{
		"the next server": func(cfg blockdev.Config) error {
			d, err := blockdev.Open(t.Context(), cfg)
			if err != nil {
				return err
			}
			return d.Close(t.Context(), false)
		},
		"who looks for what is left": func(cfg blockdev.Config) error { return blockdev.RemoveDead(t.Context(), cfg) },
	} {
		dir := t.TempDir()
		cfg := victimConfig(dir)
		theirs := filepath.Join(dir, cfg.Volume+".img")
		if err := errors.Join(os.WriteFile(theirs, nil, 0o600), os.Truncate(theirs, 1<<20),
			os.MkdirAll(cfg.DeviceDir, 0o700)); err != nil {
			t.Fatal(err)
		}
		loop := strings.TrimSpace(sh(t, "losetup", "--find", "--show", theirs))
		t.Cleanup(func() {
			if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
				t.Errorf("losetup: %v: %s", err, out)
			}
		})
		var st unix.Stat_t
		err := unix.Stat(loop, &st)
		if err == nil {
			err = unix.Mknod(filepath.Join(cfg.DeviceDir, cfg.Volume), unix.S_IFBLK|0o660, int(st.Rdev))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := step(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		nothingLeft(t, cfg)
		if list, err := blockdev.Backing(theirs); len(list) != 1 || err != nil {
			t.Errorf("%s: of somebody else's loop device there is %v, %v", name, list, err)
		}
	}
}

// connectionOf returns a duplicate of a process's descriptor of /dev/fuse.
func connectionOf(t *testing.T, pid int) int {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if name, err := os.Readlink(l); err != nil || name != "/dev/fuse" {
			continue
		}
		var number int
		if _, err := fmt.Sscan(strings.TrimPrefix(l, filepath.Dir(l)+"/"), &number); err != nil {
			t.Fatal(err)
		}
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(process)
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	t.Fatal("the process has no connection")
	return -1
}
