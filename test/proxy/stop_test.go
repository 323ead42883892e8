package proxy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/device/blockdev"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// TestEngineIgnoresStop: an engine that hangs while its device is in use, and is deleted, is killed
// when its grace is over. Others do not notice. For its device that is a crash: I/O waits, and goes
// on without an error with the next engine of the volume.
func TestEngineIgnoresStop(t *testing.T) {
	if os.Getenv("ANKOLE_STUBBORN") == "" {
		lack.Later(
			t,
			"takes more than a minute, which is an engine's grace; set ANKOLE_STUBBORN=1, as the slow tests do",
		)
	}
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here: ", err)
	}
	n := start(t, "fuse-loop")
	v, other := n.volume("stop", 16*mib, 2), n.volume("other", 4*mib, 1)
	f, err := os.OpenFile(filepath.Join(n.dir, "dev/stop"), os.O_RDWR|syscall.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := bytes.Repeat([]byte{1}, 4096)
	if _, err := f.WriteAt(page, 0); err != nil {
		t.Fatal(err)
	}
	pid := n.pidOf(v.engineName())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // if the test fails before its end
	written := make(chan error, 1)
	go func() {
		_, err := f.WriteAt(bytes.Repeat([]byte{2}, 4096), 8192)
		written <- err
	}()
	p, err := n.im.ProcessDelete(t.Context(), v.engineName(), "")
	if err != nil || p.GetStatus().GetState() != "stopping" {
		t.Fatalf("delete: %v, %v", p.GetStatus(), err)
	}
	other.must("VolumeGet")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n.im.Watch(ctx, func(u imclient.Update) {
		if _, listed := u.List[v.engineName()]; u.List != nil && !listed ||
			u.Changed.GetDeleted() && u.Changed.GetSpec().GetName() == v.engineName() {
			cancel()
		}
	})
	if _, err := n.im.ProcessGet(t.Context(), v.engineName()); !errors.Is(err, imclient.ErrNotFound) {
		t.Fatalf("it is not gone: %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the engine is still there: %v", err)
	}
	other.must("VolumeGet")
	select {
	case err := <-written:
		t.Fatalf("a write was answered without an engine: %v", err)
	default:
	}
	v.offer()
	wait.Until(t, "the write goes on", func() bool { return len(written) == 1 })
	if err := <-written; err != nil {
		t.Errorf("the write that waited: %v", err)
	}
	got := make([]byte, 4096)
	for off, fill := range map[int64]byte{0: 1, 8192: 2} {
		if _, err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{fill}, 4096)) {
			t.Errorf("at %d: %d %v, want %d", off, got[0], err, fill)
		}
	}
}
