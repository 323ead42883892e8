package blockdev_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
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
