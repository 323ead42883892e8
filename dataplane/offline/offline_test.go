package offline_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/offline"
	"ankole.storage/test/archive"
	"ankole.storage/test/lack"
)

const mib = 1 << 20

// fixture is what the archive's manifest says of a directory that a reference engine left.
type fixture struct {
	SizeBytes int64
	Snapshots []struct{ Name, SHA256 string }
	Head      struct{ SHA256 string }
}

// fixtures unpacks the reference engine's directories and returns them by path.
func fixtures(t *testing.T) map[string]fixture {
	t.Helper()
	root := t.TempDir()
	archive.Unpack(t, "../chain/testdata/longhorn-v1.tgz", root)
	data, err := os.ReadFile(filepath.Join(root, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]fixture
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]fixture{}
	for name, f := range all {
		dirs, _ := filepath.Glob(filepath.Join(root, name, "replica-*"))
		for _, dir := range dirs {
			punchPreallocated(t, dir)
			found[dir] = f
		}
	}
	if len(found) < 7 {
		t.Fatalf("%d fixtures, want at least 7", len(found))
	}
	return found
}

// punchPreallocated removes what XFS preallocates behind the buffered writes of tar.
func punchPreallocated(t *testing.T, dir string) {
	t.Helper()
	images, _ := filepath.Glob(filepath.Join(dir, "*.img"))
	for _, name := range images {
		f, err := osdisk.New(nil).Open(name, 0)
		must(t, err)
		extents, _, err := f.Extents(0, nil)
		must(t, err)
		for _, e := range extents {
			if e.Unwritten {
				must(t, f.Punch(e.Off, e.Len))
			}
		}
		must(t, f.Close())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *offline.Directory {
	t.Helper()
	d, err := offline.Open(dir, offline.Options{})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// imprint is everything about a directory that a reader must not change: names, times, sizes,
// links, attributes, bytes.
func imprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		names := make([]byte, 4096)
		n, err := unix.Llistxattr(name, names)
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
		text := fmt.Sprint(st.Ino, st.Mode, st.Nlink, st.Size, st.Blocks, st.Mtim, st.Ctim, string(names[:max(n, 0)]))
		if e.Type().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		out[name] = text
		return nil
	}))
	return out
}

// readEverything does all that only reads.
func readEverything(t *testing.T, dir string, f fixture) {
	t.Helper()
	d := open(t, dir)
	defer d.Close()
	want := map[string]string{offline.Head: f.Head.SHA256}
	for _, s := range f.Snapshots {
		want[s.Name] = s.SHA256
	}
	names, err := d.Snapshots()
	must(t, err)
	if len(names) < len(want) {
		t.Errorf("snapshots %v, want %d", names, len(want))
	}
	out := t.TempDir()
	for name, sum := range want {
		got, err := d.Hash(t.Context(), name, nil)
		must(t, err)
		if got.SHA256 != sum {
			t.Errorf("%s: content %s, want %s", name, got.SHA256, sum)
		}
		if name != offline.Head {
			continue
		}
		image := filepath.Join(out, name)
		done, err := d.Export(t.Context(), name, image, offline.ExportOptions{})
		must(t, err)
		data, err := os.ReadFile(image)
		must(t, err)
		if have := sha256.Sum256(data); hex.EncodeToString(have[:]) != sum || int64(len(data)) != got.SizeBytes {
			t.Errorf("%s: exported %x", name, have)
		}
		if done.AllocatedBytes > 2*mib {
			t.Errorf("%s: the image occupies %d bytes", name, done.AllocatedBytes)
		}
	}
	r, err := d.Inspect()
	must(t, err)
	if r.VolumeSizeBytes != f.SizeBytes || len(r.Layers) < len(want) || len(r.Problems) != 0 {
		t.Errorf("report %+v", r)
	}
	c, err := d.Check(t.Context(), nil)
	must(t, err)
	if c.Failed() || len(c.Files) != len(r.Layers) {
		t.Errorf("check %+v", c)
	}
	same, err := offline.Compare(t.Context(), d, d, nil)
	must(t, err)
	for _, one := range same {
		if !one.Equal {
			t.Errorf("not equal to itself: %+v", one)
		}
	}
}

// Directories of a reference engine read back as that engine read them, and nothing about them
// changes.
func TestReferenceDirectories(t *testing.T) {
	for dir, f := range fixtures(t) {
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			before := imprint(t, dir)
			readEverything(t, dir, f)
			if after := imprint(t, dir); !reflect.DeepEqual(before, after) {
				t.Errorf("the directory changed\n%v\n%v", before, after)
			}
		})
	}
}

func TestReadOnlyMount(t *testing.T) {
	if os.Getuid() != 0 {
		lack.Skip(t, "mounting needs root")
	}
	for dir, f := range fixtures(t) {
		at := t.TempDir()
		if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
			lack.Skip(t, fmt.Sprintf("this machine does not let us mount: %v", err))
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		must(t, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		if err := os.WriteFile(filepath.Join(at, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Fatalf("the mount can be written: %v", err)
		}
		readEverything(t, at, f)
		return // one is enough
	}
}

// TestMain lets the test program play the process that uses a directory.
func TestMain(m *testing.M) {
	switch role, dir := os.Getenv("OFFLINE_TEST_ROLE"), os.Getenv("OFFLINE_TEST_DIR"); role {
	case "":
		os.Exit(m.Run())
	case "replica":
		_, err := chain.Open(osdisk.New(nil), dir, chain.Options{})
		play(err)
	case "foreign":
		images, _ := filepath.Glob(filepath.Join(dir, "volume-head-*.img"))
		_, err := os.OpenFile(images[0], os.O_RDWR, 0)
		play(err)
	}
}

// play says that the role is taken up, and lasts until its input ends.
func play(err error) {
	fmt.Println("ready", err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

func TestDirectoryInUse(t *testing.T) {
	for _, role := range []string{"replica", "foreign"} {
		t.Run(role, func(t *testing.T) {
			dir := ownDirectory(t, "r")
			self, err := os.Executable()
			must(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "OFFLINE_TEST_ROLE="+role, "OFFLINE_TEST_DIR="+dir)
			in, err := cmd.StdinPipe()
			must(t, err)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			defer cmd.Wait() // ends when its input does
			defer in.Close()
			line := make([]byte, 256)
			n, err := out.Read(line)
			must(t, err)
			if got := strings.TrimSpace(string(line[:n])); got != "ready <nil>" {
				t.Fatal(got)
			}
			before := imprint(t, dir)
			_, err = offline.Open(dir, offline.Options{})
			if !errors.Is(err, disk.ErrInUse) ||
				!strings.Contains(err.Error(), fmt.Sprintf("process %d (", cmd.Process.Pid)) {
				t.Errorf("opening a directory in use: %v", err)
			}
			if after := imprint(t, dir); !reflect.DeepEqual(before, after) {
				t.Errorf("the directory changed\n%v\n%v", before, after)
			}
		})
	}
}

// While a tool looks, no replica can start, but another tool can look too.
func TestToolsShareAndKeepEnginesOut(t *testing.T) {
	dir := ownDirectory(t, "r")
	d := open(t, dir)
	open(t, dir)
	if _, err := chain.Open(osdisk.New(nil), dir, chain.Options{}); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("an engine opened the directory: %v", err)
	}
	must(t, d.Close())
	must(t, d.Close())
}

var ownUUID = chain.UUID{0x0a, 0x0b, 15: 0x01}

// ownDirectory makes a directory of ours: 16 MiB, snapshots "one" and "two", a record of generation
// 7, closed cleanly.
func ownDirectory(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	fs := osdisk.New(nil)
	must(t, chain.Create(fs, dir, chain.Spec{Size: 16 * mib, VolumeUUID: ownUUID, Self: "v-1",
		Created: "2026-11-21T08:00:00Z"}, chain.Options{}))
	c, err := chain.Open(fs, dir, chain.Options{})
	must(t, err)
	write(t, c, 0, 1, 4*mib)
	must(t, c.Snapshot("one", true, "2026-11-21T09:00:00Z", map[string]string{"app": "db", "tier": "1"}))
	write(t, c, mib, 2, mib)
	must(t, c.Snapshot("two", false, "2026-11-21T10:00:00Z", nil))
	write(t, c, 3*mib, 3, 8192)
	must(t, c.WriteRecord(chain.Record{VolumeUUID: ownUUID, Promised: 9, Epoch: 8, Generation: 7, State: chain.MemberRW,
		Self:   "v-1",
		Engine: "e#1", Members: []chain.Member{{Name: "v-1"}, {Name: "v-2"}}}))
	must(t, c.WriteDirty([]chain.Region{0}))
	must(t, c.Close())
	return dir
}

// write fills a piece of the head with a byte.
func write(t *testing.T, c *chain.Chain, off int64, b byte, n int) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", c.HeadHandle()), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{b}, n), off)
	must(t, err)
	must(t, f.Close())
	c.MarkWritten(off, int64(n))
}

func TestExport(t *testing.T) {
	dir, out := ownDirectory(t, "r"), t.TempDir()
	d := open(t, dir)
	image := filepath.Join(out, "image")
	must(t, os.WriteFile(image, []byte("precious"), 0o600))
	if _, err := d.Export(t.Context(), "two", image, offline.ExportOptions{}); !errors.Is(err, disk.ErrExists) {
		t.Errorf("exported over a file: %v", err)
	}
	if _, err := d.Export(t.Context(), "nope", image, offline.ExportOptions{Force: true}); !errors.Is(err,
		disk.ErrNotFound) ||
		!strings.Contains(err.Error(), "one, two, volume-head") {
		t.Errorf("exported a snapshot that is not there: %v", err)
	}
	for _, bad := range []string{out, filepath.Join(dir, "image")} {
		if _, err := d.Export(t.Context(), "two", bad, offline.ExportOptions{Force: true}); err == nil {
			t.Errorf("exported to %s", bad)
		}
	}
	if data, err := os.ReadFile(image); err != nil || string(data) != "precious" {
		t.Errorf("the file was changed: %q, %v", data, err)
	}
	// Nor is anything beside it touched, whatever its name, also where an export ends midway.
	linked := filepath.Join(t.TempDir(), "linked")
	must(t, os.WriteFile(linked, []byte("precious"), 0o600))
	must(t, os.Symlink(linked, image+".part"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Export(ended, "two", filepath.Join(out, "other"), offline.ExportOptions{}); err == nil {
		t.Error("an export that was cancelled has ended well")
	}
	steps, last := 0, int64(0)
	done, err := d.Export(t.Context(), offline.Head, image,
		offline.ExportOptions{Force: true, Progress: func(n, total int64) {
			if steps++; n < last || n > total {
				t.Errorf("progress %d of %d after %d", n, total, last)
			}
			last = n
		}})
	must(t, err)
	if steps == 0 || done.SizeBytes != 16*mib || done.AllocatedBytes > 5*mib {
		t.Errorf("%d steps, %+v", steps, done)
	}
	left, err := os.ReadDir(out)
	must(t, err)
	if len(left) != 2 || left[1].Name() != "image.part" {
		t.Errorf("left behind: %v", left)
	}
	if data, err := os.ReadFile(linked); err != nil || string(data) != "precious" {
		t.Errorf("the file that image.part leads to was changed: %d bytes, %v", len(data), err)
	}
	if info, err := os.Stat(image); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// An image in qcow2 is one to the program everybody uses for them, and has the same content as the
// raw one.
func TestExportQCOW2(t *testing.T) {
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		lack.Skip(t, "qemu-img, which judges the image, is not installed")
	}
	for name, dir := range map[string]string{"own": ownDirectory(t, "r"), "large": largeDirectory(t),
		"empty": emptyDirectory(t)} {
		t.Run(name, func(t *testing.T) {
			d, out := open(t, dir), t.TempDir()
			raw, image := filepath.Join(out, "raw"), filepath.Join(out, "qcow2")
			_, err := d.Export(t.Context(), offline.Head, raw, offline.ExportOptions{})
			must(t, err)
			_, err = d.Export(t.Context(), offline.Head, image, offline.ExportOptions{Format: offline.FormatQCOW2})
			must(t, err)
			for _, args := range [][]string{{"check", "-f", "qcow2", image},
				{"compare", "-f", "raw", "-F", "qcow2", raw, image}} {
				if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
					t.Errorf("qemu-img %v: %v\n%s", args, err, out)
				}
			}
		})
	}
}

// Without qemu-img an export to qcow2 says what to install, and leaves nothing.
func TestExportQCOW2WithoutTheProgram(t *testing.T) {
	d, out := open(t, ownDirectory(t, "r")), t.TempDir()
	t.Setenv("PATH", t.TempDir())
	o := offline.ExportOptions{Format: offline.FormatQCOW2}
	_, err := d.Export(t.Context(), offline.Head, filepath.Join(out, "i"), o)
	if err == nil || !strings.Contains(err.Error(), "qemu-utils") || !strings.Contains(err.Error(), "--format raw") {
		t.Errorf("without qemu-img: %v", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A program that fails is told with what it has said, and its halves are removed.
func TestExportQCOW2ThatFails(t *testing.T) {
	d, out, programs := open(t, ownDirectory(t, "r")), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(programs, "qemu-img"), []byte("#!/bin/sh\necho no room >&2\nexit 1\n"), 0o700))
	t.Setenv("PATH", programs)
	o := offline.ExportOptions{Format: offline.FormatQCOW2}
	_, err := d.Export(t.Context(), offline.Head, filepath.Join(out, "i"), o)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("qemu-img has failed: %v", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func emptyDirectory(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "e")
	must(t, chain.Create(osdisk.New(nil), dir, chain.Spec{Size: 4096}, chain.Options{}))
	return dir
}

// largeDirectory is a volume whose image needs several tables of every kind.
func largeDirectory(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "l")
	fs := osdisk.New(nil)
	const size = 64 << 30
	must(t, chain.Create(fs, dir, chain.Spec{Size: size}, chain.Options{}))
	c, err := chain.Open(fs, dir, chain.Options{})
	must(t, err)
	for i := range int64(40) {
		write(t, c, i*(size/40)/4096*4096, byte(i+1), 12288)
	}
	write(t, c, size-8192, 99, 8192)
	must(t, c.Close())
	return dir
}

func TestBackingFile(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	must(t, os.WriteFile(base, bytes.Repeat([]byte{7}, 8192), 0o600))
	dir := filepath.Join(t.TempDir(), "b")
	must(t, chain.Create(osdisk.New(nil), dir, chain.Spec{Size: mib, BackingFile: "/host/gone/base"}, chain.Options{}))
	d := open(t, dir)
	if _, err := d.Hash(t.Context(), offline.Head, nil); !errors.Is(err, disk.ErrNotFound) ||
		!strings.Contains(err.Error(), "--backing-file") {
		t.Errorf("hash without the backing file: %v", err)
	}
	named, err := offline.Open(dir, offline.Options{BackingFile: base})
	must(t, err)
	defer named.Close()
	got, err := named.Hash(t.Context(), offline.Head, nil)
	must(t, err)
	want := sha256.Sum256(append(bytes.Repeat([]byte{7}, 8192), make([]byte, mib-8192)...))
	if got.SHA256 != hex.EncodeToString(want[:]) {
		t.Errorf("content %s, want %x", got.SHA256, want)
	}
}
