package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/hostpath"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// devicePlaces has what stands for the directories in /dev.
var devicePlaces string

func TestMain(m *testing.M) {
	if marks := os.Getenv(holdVariable); marks != "" {
		holdFrozen(marks, os.Args[1])
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ankole-filesystem-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		devicePlaces = dir
		err = errors.Join(os.Mkdir(filepath.Join(dir, "longhorn"), 0o700), os.Mkdir(filepath.Join(dir, "mapper"), 0o700),
			os.Setenv(hostpath.Variable, fmt.Sprintf(`{"/dev/longhorn": %q, "/dev/mapper": %q}`, dir+"/longhorn",
				dir+"/mapper")))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// disk is a volume that the kernel has: a file behind a loop device, with ext4 mounted from it.
type disk struct {
	t                      *testing.T
	volume, file, at, loop string
	q                      *Quiescer
	said                   *bytes.Buffer
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func newDisk(t *testing.T, volume string) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Skip(t, "needs root, to mount")
	}
	dir := t.TempDir()
	d := &disk{t: t, volume: volume, file: filepath.Join(dir, "file"), at: filepath.Join(dir, "at")}
	d.said = &bytes.Buffer{}
	d.q = &Quiescer{Marks: filepath.Join(dir, "frozen"), Log: slog.New(slog.NewTextHandler(d.said, nil)),
		SyncLimit: time.Minute, FreezeLimit: time.Minute}
	err := errors.Join(os.WriteFile(d.file, nil, 0o600), os.Truncate(d.file, 64<<20), os.Mkdir(d.at, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", d.file).CombinedOutput()
	if err != nil {
		lack.Skip(t, fmt.Sprintf("no loop device to be had here: %v: %s", err, out))
	}
	d.loop = strings.TrimSpace(string(out))
	t.Cleanup(func() { run(t, "losetup", "--detach", d.loop) })
	if err := os.Symlink(d.loop, filepath.Join(devicePlaces, "longhorn", volume)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(devicePlaces, "longhorn", volume)) })
	return d
}

func (d *disk) mount() *disk {
	d.t.Helper()
	return d.mountAs("ext4")
}

func (d *disk) mountAs(kind string) *disk {
	d.t.Helper()
	run(d.t, "mkfs."+kind, "-q", d.loop)
	if err := unix.Mount(d.loop, d.at, kind, 0, ""); errors.Is(err, unix.ENODEV) {
		lack.Skip(d.t, "the kernel does not have "+kind)
	} else if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = d.thawed() // or it could not be unmounted
		if err := unix.Unmount(d.at, 0); err != nil {
			d.t.Error(err)
		}
	})
	return d
}

// write writes something that no other file has, and does not bring it to the disk.
func (d *disk) write(name string) (content []byte) {
	d.t.Helper()
	content = bytes.Repeat([]byte("written to "+name+"; "), 1000)
	if err := os.WriteFile(filepath.Join(d.at, name), content, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return content
}

// has tells whether the disk has it.
func (d *disk) has(content []byte) bool {
	d.t.Helper()
	all, err := os.ReadFile(d.file)
	if err != nil {
		d.t.Fatal(err)
	}
	return bytes.Contains(all, content[:4000])
}

func (d *disk) ioctl(request uint) error {
	return openedPath(d.at, func(fd int) error { return unix.IoctlSetInt(fd, request, 0) })
}

// thawed thaws the file system; false: it was not frozen.
func (d *disk) thawed() bool { return d.ioctl(fithaw) == nil }

// frozen tells whether the file system is frozen, and leaves it so.
func (d *disk) frozen() bool {
	d.t.Helper()
	err := d.ioctl(fifreeze)
	if err == nil && !d.thawed() {
		d.t.Fatal("it was frozen to try, and cannot be thawed")
	}
	return errors.Is(err, unix.EBUSY)
}

func (d *disk) marked() bool {
	_, err := os.Stat(filepath.Join(d.q.Marks, d.volume))
	return err == nil
}

func (d *disk) until(what string, f func() bool) {
	d.t.Helper()
	wait.For(d.t, what, func() error {
		if !f() {
			return fmt.Errorf("it does not hold\n%v", d.said)
		}
		return nil
	})
}

// What was written to the file system is on the volume, and with freeze nobody writes until the
// snapshot is taken, nor unmounts it.
func TestQuiesce(t *testing.T) {
	d := newDisk(t, "quiesced").mount()
	before := d.write("synced")
	if d.has(before) {
		t.Fatal("it is on the disk already: the test shows nothing")
	}
	resume := d.q.Quiesce(t.Context(), d.volume, false)
	if !d.has(before) || d.frozen() || d.marked() {
		t.Errorf("synced: on the disk %v, frozen %v, marked %v", d.has(before), d.frozen(), d.marked())
	}
	resume()
	before = d.write("frozen")
	resume = d.q.Quiesce(t.Context(), d.volume, true)
	if !d.has(before) || !d.frozen() || !d.marked() {
		t.Errorf("frozen: on the disk %v, frozen %v, marked %v", d.has(before), d.frozen(), d.marked())
	}
	if err := unix.Unmount(d.at, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("it can be unmounted while it is frozen: %v", err)
	}
	resume()
	resume()
	if d.frozen() || d.marked() {
		t.Errorf("afterwards: frozen %v, marked %v", d.frozen(), d.marked())
	}
	d.write("afterwards")
	if d.said.Len() > 0 {
		t.Errorf("it has complained: %s", d.said)
	}
}

// A volume without a file system: what was written to the block device.
func TestQuiesceABlockDevice(t *testing.T) {
	d := newDisk(t, "raw")
	content := bytes.Repeat([]byte("through the node's memory; "), 1000)
	f, err := os.OpenFile(d.loop, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if d.has(content) {
		t.Fatal("it is on the disk already: the test shows nothing")
	}
	d.q.Quiesce(t.Context(), d.volume, true)()
	if !d.has(content) || d.said.Len() > 0 {
		t.Errorf("on the disk %v; %s", d.has(content), d.said)
	}
}

// A snapshot that takes too long finds the file system thawed: its users do not wait for it.
func TestFrozenNotForLong(t *testing.T) {
	d := newDisk(t, "limited").mount()
	d.q.FreezeLimit = 50 * time.Millisecond
	resume := d.q.Quiesce(t.Context(), d.volume, true)
	d.until("it is thawed", func() bool { return !d.frozen() && !d.marked() })
	resume()
	if !strings.Contains(d.said.String(), "before its snapshot was taken") {
		t.Errorf("it says %s", d.said)
	}
}

// A volume is called as a logical volume of its node is: what is mounted from /dev/mapper/vg0-root
// is the host's, and is not frozen, trimmed or made writable. A device that stands on the volume's
// is the volume's.
func TestNameOfALogicalVolume(t *testing.T) {
	host := newDisk(t, "host-root").mount()
	const volume = "vg0-root"
	if err := os.Symlink(host.loop, filepath.Join(devicePlaces, "mapper", volume)); err != nil {
		t.Fatal(err)
	}
	host.q.FreezeLimit = time.Minute
	resume := host.q.Quiesce(t.Context(), volume, true)
	if host.frozen() {
		t.Error("the host's file system is frozen for a snapshot of a volume that has nothing to do with it")
	}
	resume()
	below := newDisk(t, volume)
	if got := devicesOf(volume); len(got) != 1 || got[0].numbers != numbersOf(below.loop) {
		t.Errorf("devices of the volume: %q", got)
	}
	if _, err := new(Node).Trim(volume); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
	sys := devicesBy
	defer func() { devicesBy = sys }()
	devicesBy = t.TempDir() + "/"
	slave := filepath.Join(devicesBy, numbersOf(host.loop), "slaves", "loop")
	if err := errors.Join(os.MkdirAll(slave, 0o700), os.WriteFile(filepath.Join(slave, "dev"),
		[]byte(numbersOf(below.loop)+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	resume = host.q.Quiesce(t.Context(), volume, true)
	if !host.frozen() {
		t.Error("the file system on a device that stands on the volume's is not frozen")
	}
	resume()
}

// Somebody else has frozen it, for a backup of their own: the snapshot is taken, and it stays so.
func TestFrozenBySomebodyElse(t *testing.T) {
	d := newDisk(t, "others").mount()
	if err := d.ioctl(fifreeze); err != nil {
		t.Fatal(err)
	}
	d.q.Quiesce(t.Context(), d.volume, true)()
	if !d.frozen() {
		t.Error("it was thawed")
	}
	if !d.thawed() {
		t.Error("it cannot be thawed")
	}
}

// A volume whose requests wait keeps nobody from a snapshot, and is worked on by one at a time.
func TestQuiesceThatDoesNotEnd(t *testing.T) {
	var said bytes.Buffer
	q := &Quiescer{Marks: t.TempDir(), Log: slog.New(slog.NewTextHandler(&said, nil)), SyncLimit: 20 * time.Millisecond}
	_, first := q.busy.begin("hung")
	if _, again := q.busy.begin("hung"); !first || again {
		t.Fatal("one at a time")
	}
	q.Quiesce(t.Context(), "hung", true)()
	if !strings.Contains(said.String(), "has not ended after 20ms") {
		t.Errorf("it says %s", &said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.SyncLimit = time.Minute
	q.Quiesce(ctx, "hung", true)() // its caller is gone
	q.busy.end("hung")
	said.Reset()
	q.Quiesce(t.Context(), "hung", true)() // mounted nowhere
	for _, name := range []string{"../marks", "", "a/b"} {
		q.Quiesce(t.Context(), name, true)()
		if !strings.Contains(said.String(), "invalid volume name") {
			t.Errorf("%q: it says %s", name, &said)
		}
		said.Reset()
	}
}

// Trim gives blocks back that the file system does not use any more.
func TestTrim(t *testing.T) {
	d := newDisk(t, "trimmed").mount()
	blocks := func() int64 {
		unix.Sync()
		var s unix.Stat_t
		if err := unix.Stat(d.file, &s); err != nil {
			t.Fatal(err)
		}
		return s.Blocks * 512
	}
	name := filepath.Join(d.at, "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte{1}, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	before := blocks()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	var node Node
	n, err := node.Trim(d.volume)
	if after := blocks(); err != nil || n < 16<<20 || before-after < 15<<20 {
		t.Errorf("%d bytes trimmed, %v; the file had %d and has %d", n, err, before, after)
	}
	if err := unix.Mount("", d.at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if n, err := node.Trim(d.volume); err != nil && !errors.Is(err, ErrRefused) {
		t.Errorf("read-only: %d %v", n, err)
	}
	if _, err := node.Trim("nobody-has-this-volume"); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
	if _, err := node.Trim(".."); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
