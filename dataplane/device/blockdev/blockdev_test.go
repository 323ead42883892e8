package blockdev_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/loop"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

func background() context.Context { return context.Background() }

// nothingLeft checks that no mount, node or loop device of cfg remains.
func nothingLeft(t *testing.T, cfg blockdev.Config) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), cfg.RunDir) {
		t.Errorf("a mount under %s is left", cfg.RunDir)
	}
	if _, err := os.Lstat(filepath.Join(cfg.RunDir, "fuse", cfg.Volume+".lock")); err == nil {
		t.Errorf("the lock file is left")
	}
	if _, err := os.Lstat(filepath.Join(cfg.DeviceDir, cfg.Volume)); err == nil {
		t.Errorf("the node is left")
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if text, _ := os.ReadFile(f); strings.Contains(string(text), cfg.RunDir) {
			t.Errorf("%s is left on %s", f, text)
		}
	}
}

func sh(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), frontendtest.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func needTool(t *testing.T, name, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lack.Skip(t, fmt.Sprintf("%s is not installed (Debian package %s)", name, pkg))
	}
}

// mount mounts the device for the test's life.
func mountAt(t *testing.T, dev, dir string) {
	t.Helper()
	if err := unix.Mount(dev, dir, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", dev, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestAFileSystemLivesOnTheDevice(t *testing.T) {
	tr := newTransport(t)
	needTool(t, "mkfs.ext4", "e2fsprogs")
	needTool(t, "fsck.ext4", "e2fsprogs")
	r := frontendtest.Up(t, tr, 64<<20, nil)
	tr.Open(t).Close()
	dev, dir := tr.dev.Path(), t.TempDir()
	sh(t, "mkfs.ext4", "-q", "-F", dev)
	mountAt(t, dev, dir)
	data := bytes.Repeat([]byte("what was synced is there. "), 100_000)
	f, err := os.Create(filepath.Join(dir, "file"))
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()

	// A crash now keeps what was synced: look at the stable state through a second device.
	var image []byte
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) { image = bytes.Clone(v.Stable) })
	crashed := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(crashed, image, 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, "fsck.ext4", "-y", "-E", "journal_only", crashed)
	sh(t, "fsck.ext4", "-fn", crashed)
	needTool(t, "debugfs", "e2fsprogs")
	if got := sh(t, "debugfs", "-R", "cat /file", crashed); !strings.HasSuffix(got, string(data)) {
		t.Errorf("%d bytes of the synced file survive of %d", len(got), len(data))
	}

	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	sh(t, "fsck.ext4", "-fn", dev)
}

// TestTearDownIsBoundedWhileTheVolumeHangs: an engine without replicas answers nothing, and must
// still be able to go.
func TestTearDownIsBoundedWhileTheVolumeHangs(t *testing.T) {
	tr := newTransport(t)
	tr.cfg.Timeout = 300 * time.Millisecond
	r := frontendtest.Up(t, tr, 8<<20, nil)
	c := tr.Open(t)
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) { v.Hold, v.Deepest = 1<<30, 0 })
	failed := make(chan error, 1)
	go func() {
		_, err := c.WriteAt(alignedPage(), 0)
		failed <- err
	}()
	r.Until("a write under way", func(v *frontendtest.Device) bool { return v.Deepest > 0 })
	start := time.Now()
	_ = tr.dev.Withdraw(t.Context()) // may succeed as far as it goes, or report what hangs
	if d := time.Since(start); d > frontendtest.Patience {
		t.Errorf("Withdraw took %v with steps of at most %v", d, tr.cfg.Timeout)
	}
	r.StopDevice()
	if err := <-failed; !errors.Is(err, unix.EIO) {
		t.Errorf("the hanging write ended with %v", err)
	}
	tr.cfg.Timeout = 0
}

// Whoever lists loop devices has the kernel look at the file that each of them lies on. A server
// that does not answer makes nobody wait for that, whatever was written before; nor does it after
// the size has changed.
func TestLoopDeviceIsListedWhileTheServerIsAway(t *testing.T) {
	tr := newTransport(t)
	r := frontendtest.Up(t, tr, 8<<20, nil)
	c := tr.Open(t)
	if _, err := c.WriteAt(alignedPage(), 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Trim(4096, 4096); err != nil {
		t.Fatal(err)
	}
	r.Do(func(v *frontendtest.Device, out *[]loop.Op) { v.Resize(16<<20, out) })
	if err := tr.dev.Resize(t.Context(), 16<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteAt(alignedPage(), 8192); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(tr.dev.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	away, back := make(chan struct{}), make(chan struct{})
	go r.Do(func(*frontendtest.Device, *[]loop.Op) { // the core does nothing meanwhile
		close(away)
		<-back
	})
	<-away
	defer close(back)
	listed := make(chan error, 1)
	go func() {
		_, err := unix.IoctlLoopGetStatus64(fd)
		listed <- err
	}()
	select {
	case err := <-listed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the state of the loop device waits for the server")
	}
}

func TestDiscardLimitsAreThoseOfTheVolume(t *testing.T) {
	tr := newTransport(t)
	tr.cfg.BlockSize = 4096
	frontendtest.Up(t, tr, 64<<20, nil)
	c := tr.Open(t)
	var st unix.Stat_t
	if err := unix.Stat(tr.dev.Path(), &st); err != nil {
		t.Fatal(err)
	}
	queue := fmt.Sprintf("/sys/block/loop%d/queue/", unix.Minor(st.Rdev))
	for name, want := range map[string]string{"discard_granularity": "4096", "logical_block_size": "4096",
		"write_cache": "write back"} {
		got, err := os.ReadFile(queue + name)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q (%v), want %s", name, got, err, want)
		}
	}
	if err := c.Trim(0, 64<<20); err != nil {
		t.Errorf("discard of everything: %v", err)
	}
}

// TestMain lets the test binary play a server that is going to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BLOCKDEV_TEST_VICTIM"); dir != "" {
		os.Exit(victim(dir))
	}
	if dir := os.Getenv(ublkVictimIn); dir != "" {
		os.Exit(ublkVictim(dir))
	}
	if dir := os.Getenv(stuckIn); dir != "" {
		os.Exit(stuck(dir))
	}
	os.Exit(m.Run())
}

func victimConfig(dir string) blockdev.Config {
	return blockdev.Config{Volume: "vol", RunDir: filepath.Join(dir, "run"), DeviceDir: filepath.Join(dir, "dev")}
}

// startVictim starts a process that serves the volume under dir; the test kills it.
func startVictim(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	return startVictimIn(t, dir, 0)
}

// startVictimIn starts one that leaves the given namespaces.
func startVictimIn(t *testing.T, dir string, namespaces uintptr) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: namespaces}
	cmd.Env = append(os.Environ(), "BLOCKDEV_TEST_VICTIM="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the other server says %q, %v", line, err)
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestALivingOwnerIsNotDisturbed(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cmd := startVictim(t, dir)
	if _, err := blockdev.Open(t.Context(), victimConfig(dir)); !errors.Is(err, blockdev.ErrInUse) {
		t.Errorf("a volume in use was opened: %v", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "dev", "vol"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Error(err)
	}
	f.Close()
	kill(cmd)
	cleanUp(t, dir)
}

// cleanUp opens and closes the volume once, which removes what a killed server left.
func cleanUp(t *testing.T, dir string) {
	t.Helper()
	d, err := blockdev.Open(background(), victimConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(background(), false); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, victimConfig(dir))
}

func TestWhatADeadServerLeftIsRemoved(t *testing.T) {
	needDevices(t)
	for round := range 3 {
		dir := t.TempDir()
		kill(startVictim(t, dir))
		tr := &transport{cfg: victimConfig(dir)}
		r := frontendtest.Up(t, tr, 1<<20, nil)
		c := tr.Open(t)
		if _, err := c.WriteAt(alignedPage(), 0); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		r.Do(func(v *frontendtest.Device, _ *[]loop.Op) {
			if v.Mem[0] != 'x' {
				t.Error("the new device is not the new server's")
			}
		})
	}
}

// alignedPage is a page of 'x' for direct I/O.
func alignedPage() []byte {
	p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	for i := range p {
		p[i] = 'x'
	}
	return p
}

// TestRemoveAllDead: one server is killed between its mount and its node, or between the end of its
// node and that of its mount; another one, which has no node yet either, lives, and may not be in
// the list of those that are served.
func TestRemoveAllDead(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	cfg := blockdev.Config{Volume: "vol", DeviceDir: filepath.Join(dir, "dev")}
	living, err := blockdev.Open(t.Context(), blockdev.Config{Volume: "living", DeviceDir: cfg.DeviceDir})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := blockdev.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	dead.Abandon()
	if err := blockdev.RemoveAllDead(t.Context(), cfg.DeviceDir, map[string]bool{"vol": true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(blockdev.LockPath(cfg)); err != nil {
		t.Errorf("one that is said to be served: %v", err)
	}
	if err := blockdev.RemoveAllDead(t.Context(), cfg.DeviceDir, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(blockdev.LockPath(cfg)); !os.IsNotExist(err) {
		t.Errorf("the lock file: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(mounts), " "+filepath.Dir(dead.MountPoint())+"/"); n != 1 {
		t.Errorf("%d mounts are there, want that of the living", n)
	}
	if err := living.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
	os.RemoveAll(filepath.Dir(filepath.Dir(living.MountPoint())))
}

func TestADeadServersDeviceInUseGoesWhenItsUserGoes(t *testing.T) {
	needDevices(t)
	needTool(t, "mkfs.ext4", "e2fsprogs")
	dir, mnt := t.TempDir(), t.TempDir()
	cmd := startVictim(t, dir)
	dev := filepath.Join(dir, "dev", "vol")
	sh(t, "mkfs.ext4", "-q", "-F", dev)
	mountAt(t, dev, mnt)
	kill(cmd)
	d, err := blockdev.Open(t.Context(), victimConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	wait.Until(t, "the loop device goes, which nobody uses", func() bool {
		return loops() == 0 || !strings.Contains(backingFiles(), dir)
	})
	nothingLeft(t, victimConfig(dir))
}

func loops() int { return strings.Count(backingFiles(), "\n") }

func backingFiles() string {
	var b strings.Builder
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		b.Write(text)
	}
	return b.String()
}

func TestOneLockWhileOwnersComeAndGo(t *testing.T) {
	needDevices(t)
	cfg := victimConfig(t.TempDir())
	var owners, entered atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				d, err := blockdev.Open(t.Context(), cfg)
				if errors.Is(err, blockdev.ErrInUse) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if owners.Add(1) != 1 {
					t.Error("two owners at once")
				}
				entered.Add(1)
				owners.Add(-1)
				if err := d.Close(t.Context(), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if entered.Load() < 2 {
		t.Errorf("only %d owners in a hundred tries", entered.Load())
	}
	nothingLeft(t, cfg)
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]blockdev.Config{
		"no name":         {RunDir: "/run/x", DeviceDir: "/dev/x"},
		"a path as name":  {Volume: "../etc", RunDir: "/run/x", DeviceDir: "/dev/x"},
		"a comma":         {Volume: "a,b", RunDir: "/run/x", DeviceDir: "/dev/x"},
		"relative run":    {Volume: "a", RunDir: "run", DeviceDir: "/dev/x"},
		"relative device": {Volume: "a", RunDir: "/run/x", DeviceDir: "dev"},
		"block size":      {Volume: "a", RunDir: "/run/x", DeviceDir: "/dev/x", BlockSize: 1024},
	} {
		if _, err := blockdev.Open(t.Context(), c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
