package blockdev_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/loop"
	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

const stuckIn = "BLOCKDEV_TEST_STUCK"

// frozen is a core that stops, when it is told to, with the next request that it has received.
type frozen struct {
	loop.Core
	now atomic.Bool
}

// Step implements loop.Core.
func (c *frozen) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	if c.now.Load() && len(in) > 0 {
		fmt.Println("stuck")
		select {}
	}
	return c.Core.Step(now, in, out)
}

// stuck serves a volume under dir and stops with a request of its own that it has received and not
// answered.
func stuck(dir string) int {
	var c frozen
	return serve(dir, 8<<20, func(core loop.Core) loop.Core {
		c.Core = core
		return &c
	}, func(d *blockdev.Device) error {
		c.now.Store(true)
		return d.Resize(context.Background(), 8<<20)
	})
}

// TestServerKilledInARequestOfItsOwn: a server asks its own file system something, and is killed
// when it has received that and not answered it. It ends all the same: the thread that asked does
// not keep the connection to the kernel open, and so the request is not waited for.
func TestServerKilledInARequestOfItsOwn(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), stuckIn+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "stuck\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience.Of(frontendtest.Patience)):
		wait.RanOut(t, "the end of the server")
		t.Error("the server does not end")
		abort(t, dir)
		<-ended
	}
	if err := blockdev.Recover(t.Context(), victimConfig(dir)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, victimConfig(dir))
}

// abort ends the connection of the FUSE file system mounted below dir.
func abort(t *testing.T, dir string) {
	t.Helper()
	control := t.TempDir()
	if err := unix.Mount("fusectl", control, "fusectl", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(control, 0) }()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[4], dir) {
			continue
		}
		_, minor, _ := strings.Cut(f[2], ":")
		if _, err := strconv.Atoi(minor); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(control, minor, "abort"), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerKilledWithItsMountNamespace: the container that a server ran in is gone, with its
// mounts and its directory of locks. What is left, the node and a loop device whose file has no
// path any more, is not in the way of the next server, in another container. One that lives is left
// alone.
func TestServerKilledWithItsMountNamespace(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cmd := startVictimIn(t, dir, unix.CLONE_NEWNS)
	cfg := victimConfig(dir)
	cfg.RunDir = filepath.Join(dir, "other")
	if d, err := blockdev.Open(t.Context(), cfg); err == nil {
		t.Error("the device of a living server was taken away")
		_ = d.Close(background(), false)
	}
	node := filepath.Join(cfg.DeviceDir, cfg.Volume)
	readPage(t, node)
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil {
		t.Fatal(err)
	}
	kill(cmd)
	tr := &transport{cfg: cfg}
	frontendtest.Up(t, tr, 1<<20, nil)
	if _, err := tr.Open(t).WriteAt(alignedPage(), 0); err != nil {
		t.Error(err)
	}
	file := fmt.Sprintf("/sys/block/loop%d/loop/backing_file", unix.Minor(st.Rdev))
	if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == "/"+cfg.Volume {
		t.Errorf("loop device %d of the killed server is left", unix.Minor(st.Rdev))
	}
}

// adopted goes on with the device of a server that was killed.
type adopted struct {
	*transport
	kept blockdev.Kept
	fuse int
}

// Frontend implements frontendtest.Transport.
func (a *adopted) Frontend(t *testing.T, env frontendtest.Env) frontend.Frontend {
	var err error
	if a.dev, err = blockdev.Adopt(t.Context(), a.cfg, a.kept, a.fuse); err != nil {
		t.Fatal(err)
	}
	a.exposed = true
	f, err := fuseloop.New(fuseloop.Config{Owner: env.Owner, Arena: env.Arena, Device: a.dev.Handle(), File: a.cfg.Volume,
		Size: env.Size, Resume: true, Journal: newJournal(t)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDeviceOutlivesItsMountNamespace: the container that a server ran in is gone, with its mounts
// and its directory of locks, and somebody else has kept the connection. The next server, in
// another container, goes on with the device: who has it open notices a pause, also of a request
// that is made before there is a next server, and the device grows.
func TestDeviceOutlivesItsMountNamespace(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cmd := startVictimIn(t, dir, unix.CLONE_NEWNS)
	cfg := victimConfig(dir)
	node := filepath.Join(cfg.DeviceDir, cfg.Volume)
	user, err := os.OpenFile(node, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil {
		t.Fatal(err)
	}
	fuse := connectionOf(t, cmd.Process.Pid)
	kill(cmd)
	waits := make(chan error, 1)
	go func() {
		_, err := user.WriteAt(alignedPage(), 0)
		waits <- err
	}()
	if err := errors.Join(os.Remove(node), os.WriteFile(node, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	cfg.RunDir = filepath.Join(dir, "other")
	other := blockdev.Kept{Loop: int(unix.Minor(st.Rdev)) + 1000}
	if _, err := blockdev.Adopt(t.Context(), cfg, other, dup(t, fuse)); err == nil {
		t.Error("a loop device that is not the volume's was taken for it")
	}
	a := &adopted{transport: &transport{cfg: cfg}, kept: blockdev.Kept{Loop: int(unix.Minor(st.Rdev)), ID: "one"},
		fuse: fuse}
	r := frontendtest.Up(t, a, 64<<20, nil)
	if err := <-waits; err != nil {
		t.Errorf("a write that waited: %v", err)
	}
	now, err := os.Lstat(node)
	if err != nil || now.Mode()&os.ModeDevice == 0 {
		t.Errorf("a file that was made in place of the node is in its way: %v, %v", now, err)
	}
	r.Do(func(v *frontendtest.Device, out *[]loop.Op) {
		if v.Mem[0] != 'x' {
			t.Error("the write that waited has not arrived")
		}
		v.Resize(65<<20, out)
	})
	a.Grow(t, 65<<20)
	for _, off := range []int64{64 << 20, 65<<20 - 4096} {
		// Before a write there, by which the kernel would see that the file is larger.
		if _, err := user.ReadAt(alignedPage(), off); err != nil {
			t.Errorf("read at %d of what has grown: %v", off, err)
		}
	}
	for _, off := range []int64{64 << 20, 65<<20 - 4096} {
		if _, err := user.WriteAt(alignedPage(), off); err != nil {
			t.Errorf("write at %d of what has grown: %v", off, err)
		}
	}
	if a.dev.ID() != "one" {
		t.Errorf("the device counts as another one, %q", a.dev.ID())
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func readPage(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
}
