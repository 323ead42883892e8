package upgrade_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/client"
	"ankole.storage/test/wait"
)

// TestNothingIsLeftOfAKilledEngine: an engine is killed, and no other one follows on the node,
// since the volume is detached, also when that is known after the process was deleted; or all are
// killed with their instance manager, and it is started again. Node, loop device and mount go.
func TestNothingIsLeftOfAKilledEngine(t *testing.T) {
	_, present := builds(t)
	for _, how := range []string{"detached", "detached after it was deleted", "with the instance manager"} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t, "fuse-loop", 1)
			node := b.attach(present)
			var st unix.Stat_t
			if err := unix.Stat(node, &st); err != nil {
				t.Fatal(err)
			}
			backing := fmt.Sprintf("/sys/block/loop%d/loop/backing_file", unix.Minor(st.Rdev))
			text, err := os.ReadFile(backing)
			if err != nil {
				t.Fatal(err)
			}
			file := strings.TrimSpace(string(text))
			ctx, cancel := b.ctx()
			defer cancel()
			switch how {
			case "detached":
				b.killEngine()
				if _, err := b.client.ProcessDeleteLast(ctx, engineName, ""); err != nil {
					t.Fatal(err)
				}
			case "detached after it was deleted":
				b.killEngine()
				if _, err := b.client.ProcessDelete(ctx, engineName, ""); err != nil {
					t.Fatal(err)
				}
				if _, err := b.client.ProcessDeleteLast(ctx, engineName, "none"); !errors.Is(err, client.ErrNotFound) {
					t.Fatal(err)
				}
			default:
				if err := b.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = b.cmd.Wait()
				b.startManager()
			}
			wait.Until(b.t, "the node is gone", func() bool { return unix.Stat(node, &st) == unix.ENOENT })
			wait.Until(b.t, "the loop device is free", func() bool {
				text, err := os.ReadFile(backing)
				return err != nil || strings.TrimSpace(string(text)) != file
			})
			wait.Until(b.t, "the mount is gone", func() bool {
				text, err := os.ReadFile("/proc/self/mountinfo")
				return err == nil && !strings.Contains(string(text), " "+filepath.Dir(file)+" ")
			})
		})
	}
}

// killEngine kills the volume's engine and waits for its end.
func (b *bed) killEngine() {
	b.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	parent := fmt.Sprintf("PPid:\t%d\n", b.cmd.Process.Pid)
	for _, f := range files {
		dir := filepath.Dir(f)
		line, _ := os.ReadFile(f) // it may have ended
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !bytes.Contains(line, []byte("\x00controller\x00")) || !strings.Contains(string(status), parent) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
		wait.Until(b.t, "the engine has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
		return
	}
	b.t.Fatal("there is no engine")
}
