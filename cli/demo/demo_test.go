package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// fileDevice is a device on a file; broken makes it fail or lie.
type fileDevice struct {
	*os.File
	size int64

	mu      sync.Mutex
	flushes int
	broken  func(p []byte, off int64) error
}

func newFileDevice(t *testing.T, size int64) *fileDevice {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "device"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &fileDevice{File: f, size: size}
}

func (d *fileDevice) Size() int64 { return d.size }

func (d *fileDevice) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	return nil
}

func (d *fileDevice) Zero(off, n int64) error {
	_, err := d.WriteAt(make([]byte, n), off)
	return err
}

func (d *fileDevice) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	broken := d.broken
	d.mu.Unlock()
	if broken != nil {
		if err := broken(p, off); err != nil {
			return 0, err
		}
	}
	return d.File.WriteAt(p, off)
}

func needsTools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"mkfs.ext4", "debugfs", "e2fsck"} {
		if _, err := findTool(name); err != nil {
			lack.Skip(t, err)
		}
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	if found, err := hasTree(dir); found || err != nil {
		t.Fatalf("an empty folder: %t, %v", found, err)
	}
	made, err := makeTree(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if made.files != treeFolders*filesInFolder+largeFiles || made.bytes < largeFiles*largeFile {
		t.Errorf("made %v", made)
	}
	if read, err := verifyTree(dir); err != nil || read != made {
		t.Fatalf("read %v, %v", read, err)
	}
	// What sha256sum of the machine thinks of it.
	if path, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.Command(path, "--check", "--quiet", manifestName)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("sha256sum: %v %s", err, out)
		}
	}
	victim := filepath.Join(dir, "project/part-03/file-07.dat")
	text, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"a bit":           func() error { text[len(text)/2] ^= 1; return os.WriteFile(victim, text, 0o644) },
		"a missing file":  func() error { return os.Remove(victim) },
		"a file too many": func() error { return os.WriteFile(filepath.Join(dir, "project/part-03/other"), nil, 0o644) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyTree(dir); err == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
}

func TestImage(t *testing.T) {
	needsTools(t)
	dev := newFileDevice(t, smallestVolume)
	i := newImage(dev, "test")
	inspect := func(want content) {
		t.Helper()
		if got, err := i.Inspect(t.Context()); got != want || err != nil {
			t.Fatalf("content %v, %v, want %v", got, err, want)
		}
	}
	inspect(contentNothing)
	// Whatever lies there from before must not shine through the holes of the image.
	old := make([]byte, chunk)
	for n := range old {
		old[n] = 0xaa
	}
	for off := int64(16 << 20); off < imageSize; off += 16 << 20 {
		if _, err := dev.WriteAt(old, off); err != nil {
			t.Fatal(err)
		}
	}
	made, err := i.Fill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if dev.flushes < 2 {
		t.Errorf("%d flushes: the tree must be durable before the marker is written", dev.flushes)
	}
	inspect(contentTree)
	if read, err := i.Verify(t.Context()); err != nil || read != made {
		t.Fatalf("read %v, %v, want %v", read, err, made)
	}
	if err := dev.Zero(markerAt, grain); err != nil {
		t.Fatal(err)
	}
	inspect(contentPart)
	damage(t, dev)
	if _, err := i.Verify(t.Context()); err == nil {
		t.Error("damage was not noticed")
	}
	if _, err := dev.WriteAt([]byte("somebody's data"), 0); err != nil {
		t.Fatal(err)
	}
	inspect(contentPart) // The label is still there; the first bytes are of a boot block.
	if err := dev.Zero(0, 4096); err != nil {
		t.Fatal(err)
	}
	inspect(contentForeign)
}

// damage flips one byte of every 64 KiB of data, so that some file is hit.
func damage(t *testing.T, dev *fileDevice) {
	t.Helper()
	b := make([]byte, 1)
	for off := int64(40 << 20); off < 100<<20; off += 64 << 10 {
		if _, err := dev.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x55
		if _, err := dev.File.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSmallVolumesAreRefused(t *testing.T) {
	i := newImage(newFileDevice(t, smallestVolume-grain), "test")
	if _, err := i.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "needs 320 MiB") {
		t.Errorf("got %v", err)
	}
}

// written waits until a writer has written n records.
func written(t *testing.T, w *writer, n int64) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d records of the writer", n), func() bool {
		s, err := w.snapshot()
		return s.written >= n || err != nil
	})
}

func TestWriter(t *testing.T) {
	dev := newFileDevice(t, 64*recordSize)
	w := startWriter(t.Context(), dev, 16*recordSize, 48*recordSize)
	written(t, w, 40) // More than the area holds: it goes round.
	s, err := w.end()
	if err != nil || s.written < 40 || s.flushed == 0 || s.read == 0 {
		t.Fatalf("%v, %v", s, err)
	}
	if n, err := w.verify(); n != 32 || err != nil {
		t.Errorf("%d records verified, %v", n, err)
	}
	for _, off := range []int64{0, 48 * recordSize} {
		b := make([]byte, recordSize)
		if _, err := dev.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		for _, c := range b {
			if c != 0 {
				t.Fatalf("the writer left its area at %d", off)
			}
		}
	}
	if _, err := dev.WriteAt([]byte{1}, 20*recordSize+100); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(); err == nil {
		t.Error("damage was not noticed")
	}
}

func TestWriterReportsFailures(t *testing.T) {
	dev := newFileDevice(t, 64*recordSize)
	dev.broken = func(_ []byte, off int64) error {
		if off == 3*recordSize {
			return unix.EIO
		}
		return nil
	}
	w := startWriter(t.Context(), dev, 0, 64*recordSize)
	written(t, w, 100)
	s, err := w.end()
	if !errors.Is(err, unix.EIO) || s.written != 3 {
		t.Errorf("%v, %v", s, err)
	}
}

func TestParseNBD(t *testing.T) {
	for _, c := range []struct{ endpoint, address, export string }{
		{"nbd+unix:///demo?socket=/run/demo.nbd", "unix:/run/demo.nbd", "demo"},
		{"nbd+unix:///demo?socket=/a%20b/c+d", "unix:/a b/c d", "demo"},
		{"nbd://127.0.1.1:10809/demo", "tcp:127.0.1.1:10809", "demo"},
		{"iscsi://127.0.0.1/x", "", ""},
		{"nbd+unix:///demo", "", ""},
		{"", "", ""},
	} {
		address, export, err := parseNBD(c.endpoint)
		if address != c.address || c.address != "" && export != c.export || (err == nil) != (c.address != "") {
			t.Errorf("%q: %q, %q, %v", c.endpoint, address, export, err)
		}
	}
}

func TestJudgeNodes(t *testing.T) {
	node := func(name, ready, schedulable, reason string) resource.Node {
		return resource.Node{Name: name, Conditions: map[string]resource.Condition{"Ready": {Status: ready}},
			Disks: map[string]resource.DiskInfo{
				"d": {Path: "/data",
					Conditions: map[string]resource.Condition{"Schedulable": {Status: schedulable, Reason: reason,
						Message: "90% used"}}}}}
	}
	ready, waiting, full := judgeNodes([]resource.Node{node("a", "True", "True", ""),
		node("b", "True", "False", "DiskPressure"),
		node("c", "False", "False", "NodeNotReady"), {Name: "d"}})
	if strings.Join(ready, " ") != "a" || waiting != 3 || full != "/data of node b: 90% used" {
		t.Errorf("%v, %d, %q", ready, waiting, full)
	}
	if _, _, full := judgeNodes([]resource.Node{node("c", "False", "False", "DiskPressure")}); full != "" {
		t.Errorf("the disk of a node that is not ready counts as full: %q", full)
	}
}

// A process is a replica's only if it runs the replica verb on the replica's own directory.
func TestReplicaPID(t *testing.T) {
	proc := t.TempDir()
	for pid, args := range map[string]string{
		"10":   "/x/longhorn\x00--volume-name\x00demo\x00replica\x00/host/var/lib/longhorn/replicas/demo-1a2b3c4d\x00--size\x001\x00",
		"11":   "/x/longhorn\x00--volume-name\x00demo\x00replica\x00/host/var/lib/longhorn/replicas/demo-99999999\x00",
		"12":   "tail\x00-f\x00/var/lib/longhorn/replicas/demo-1a2b3c4d\x00",
		"13":   "",
		"self": "replica\x00/replicas/demo-1a2b3c4d\x00",
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(args), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := processes(proc)
	if len(all) != 3 {
		t.Errorf("processes: %v", all)
	}
	for path, want := range map[string]int{
		"/var/lib/longhorn/replicas/demo-1a2b3c4d": 10,
		"/var/lib/longhorn/replicas/demo-99999999": 11,
		"/var/lib/longhorn/replicas/demo-00000000": 0,
		"": 0,
	} {
		if got := replicaPID(all, resource.Replica{DataPath: path}); got != want {
			t.Errorf("%q: process %d, want %d", path, got, want)
		}
	}
}

// The mounted store is tried on a loop device where the machine lets us have one.
func TestMounted(t *testing.T) {
	needsTools(t)
	if os.Geteuid() != 0 {
		lack.Skip(t, "mounting needs root")
	}
	loop, err := exec.LookPath("losetup")
	if err != nil {
		lack.Skip(t, "losetup is not installed")
	}
	dev := newFileDevice(t, smallestVolume)
	out, err := exec.Command(loop, "--find", "--show", dev.Name()).CombinedOutput()
	if err != nil {
		lack.Skip(t, fmt.Sprintf("no loop device: %v %s", err, out))
	}
	path := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command(loop, "--detach", path).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v %s", err, out)
		}
	})
	m, err := newMounted(path)
	if errors.Is(err, unix.EPERM) {
		lack.Skip(t, "mounting is not allowed here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	if found, err := m.Inspect(t.Context()); found != contentNothing || err != nil {
		t.Fatalf("content %v, %v", found, err)
	}
	made, err := m.Fill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, from, to, err := m.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	w := startWriter(context.Background(), a, from, to)
	written(t, w, 20)
	if _, err := w.end(); err != nil {
		t.Fatal(err)
	}
	if n, err := w.verify(); n < 20 || err != nil {
		t.Errorf("%d records verified, %v", n, err)
	}
	if read, err := m.Verify(t.Context()); err != nil || read != made {
		t.Errorf("read %v, %v, want %v", read, err, made)
	}
	if found, err := m.Inspect(t.Context()); found != contentTree || err != nil {
		t.Errorf("content %v, %v", found, err)
	}
}
