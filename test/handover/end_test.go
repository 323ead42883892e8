package handover_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// TestEndWhileTakingBack: an upgrade fails, the old engine takes the volume back, finds no replica
// that answers, and is told to end. What it had given away and not brought up again is taken off
// the host as at any end of an engine.
func TestEndWhileTakingBack(t *testing.T) {
	for _, transport := range []string{"nbd-unix", "fuse-loop"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := withFrontend(t, transport)
			p.old.AwaitUp()
			p.new = p.v.Upgrade([]string{"ANKOLE_STOP_AT=offered-to:stop"}, p.next...)
			wait.Until(t, "the new engine has the offer", p.new.Stopped)
			for _, r := range p.v.Replicas {
				r.Signal(syscall.SIGSTOP)
				defer r.Signal(syscall.SIGCONT)
				wait.Until(t, "a replica is stopped", r.Stopped)
			}
			p.new.Kill()
			wait.Until(t, "the volume is taken back", func() bool {
				return strings.Contains(p.old.Log(), "taking the volume back")
			})
			p.old.Signal(syscall.SIGTERM)
			if code := p.old.Exit(); code != 0 {
				t.Errorf("the engine ended with %d\n%s", code, p.old.Log())
			}
			h := p.old.Host
			for _, left := range []string{filepath.Join(h.Dir, p.v.Name+".nbd"), filepath.Join(h.Devices(), p.v.Name),
				filepath.Join(runDir(h), "fuse", p.v.Name+".lock")} {
				if _, err := os.Lstat(left); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", left, err)
				}
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), runDir(h)) {
				t.Errorf("a mount is left: %v", err)
			}
			if p.old.Host.DeviceOwned(p.v.Name) {
				t.Error("the keeper holds the device for a living engine")
			}
		})
	}
}

// runDir is where a host's block devices have their mounts and locks.
func runDir(h *rig.Host) string {
	return blockdev.RunDirOf(h.Devices())
}
