package store

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/disk/osdisk"
)

var (
	id    = backingimage.ID{Name: "cirros", UUID: "0a1b2c3d"}
	quiet = slog.New(slog.DiscardHandler)
	raw   = content.Info{Format: content.Raw}
)

// image is a disk of n bytes with a hole in it, the same for the same n.
func image(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	clear(p[n/4 : n/2])
	return p
}

func sumOf(p []byte) string {
	sum := sha512.Sum512(p)
	return hex.EncodeToString(sum[:])
}

// onDisk is a directory of a file system with a configuration.
func onDisk(t testing.TB, fs disk.Meta, root string) *Disk {
	t.Helper()
	if err := fs.WriteFileAtomic(path.Join(root, backingimage.DiskConfig), []byte(`{"diskUUID":"d1"}`)); err != nil {
		t.Fatal(err)
	}
	return New(fs, root, "d1", quiet)
}

// inMemory is a disk in memory.
func inMemory(t testing.TB) (*memdisk.FS, *Disk) {
	t.Helper()
	fs := memdisk.New()
	if err := fs.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	if err := fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return fs, onDisk(t, fs, "/data")
}

func makeFile(d *Disk, p backingimage.Paths, content []byte, expected string) (backingimage.Record, error) {
	m, err := d.Create(p, id.UUID)
	if err != nil {
		return backingimage.Record{}, err
	}
	if _, err := m.ReadFrom(bytes.NewReader(content)); err != nil {
		return backingimage.Record{}, errors.Join(err, m.Abort())
	}
	return m.Publish(expected, raw)
}

// contentOf reads a complete file.
func contentOf(t testing.TB, d *Disk, p backingimage.Paths) []byte {
	t.Helper()
	f, _, err := d.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, info.Size)
	if _, err := readFull(f, got, 0); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFileIsMade: what is written is there, with a record that spares its checksum, and holes stay
// holes; on the machine's file system.
func TestFileIsMade(t *testing.T) {
	t.Parallel()
	for _, n := range []int{512, 4096, 65536 + 512, 1 << 20, 3<<20 + 1024, 8 << 20} {
		d := onDisk(t, osdisk.New(nil), t.TempDir())
		p, want := backingimage.InManager(d.Root(), id), image(n)
		r, err := makeFile(d, p, want, sumOf(want))
		if err != nil {
			t.Fatal(err)
		}
		if got := contentOf(t, d, p); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: other content", n)
		}
		if r.CurrentChecksum != sumOf(want) || r.Size != int64(n) || r.VirtualSize != int64(n) || r.FilePath != p.File ||
			r.UUID != id.UUID || r.ExpectedChecksum != sumOf(want) {
			t.Errorf("%d bytes: %+v", n, r)
		}
		if n == 8<<20 && r.RealSize > int64(n)*7/8 {
			t.Errorf("%d bytes with a hole of %d take %d", n, n/4, r.RealSize)
		}
		found, err := d.Scan()
		if err != nil || len(found) != 1 || found[0].ID != id || !found[0].Proven || found[0].Record != r {
			t.Errorf("%d bytes: found %+v, %v, want %+v", n, found, err, r)
		}
		names, err := d.fs.List(p.Dir)
		if err != nil || strings.Join(names, " ") != "backing backing.cfg" {
			t.Errorf("%v, %v", names, err)
		}
		if _, err := d.Create(p, id.UUID); !errors.Is(err, disk.ErrExists) {
			t.Errorf("a second file in its place: %v", err)
		}
	}
}

// TestWrittenAnywhere: a file that comes in any order is read for its checksum.
func TestWrittenAnywhere(t *testing.T) {
	t.Parallel()
	d := onDisk(t, osdisk.New(nil), t.TempDir())
	p, want := backingimage.InManager(d.Root(), id), image(3<<20+512)
	m, err := d.Create(p, id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Resize(int64(len(want))); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{2 << 20, 0, 3 << 20, 1 << 20} {
		if err := m.WriteAt(want[at:min(at+1<<20, len(want))], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range [][2]int64{{-4096, 4096}, {512, 4096}, {0, 512}, {3 << 20, 1024}, {4 << 20, 0}, {4096,
		1 << 62}} {
		if err := m.Punch(wrong[0], wrong[1]); !errors.Is(err, content.ErrRefused) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if r, err := m.PublishRead(sumOf(want), nil); err != nil || r.CurrentChecksum != sumOf(want) {
		t.Errorf("%+v, %v", r, err)
	}
	if !bytes.Equal(contentOf(t, d, p), want) {
		t.Error("other content")
	}
}

// nothingLeft fails unless there is nothing of the image.
func nothingLeft(t testing.TB, fs disk.Meta, what string) {
	t.Helper()
	for _, folder := range []string{"/data/" + backingimage.Folder, "/data/" + backingimage.TemporaryFolder} {
		names, err := fs.List(folder)
		if err != nil && !errors.Is(err, disk.ErrNotFound) || len(names) > 0 {
			t.Errorf("%s: %v in %s, %v", what, names, folder, err)
		}
	}
}

// TestRefusedLeavesNothing of a file that is wrong, or has no room.
func TestRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	for _, tt := range []struct {
		name     string
		bytes    []byte
		expected string
		capacity int64
		is       error
		says     string
	}{
		{"another checksum", want, sumOf(nil), 0, ErrDamaged, sumOf(want)}, {"no sectors", want[:1000], "", 0,
			content.ErrRefused, "1000"},
		{"empty", nil, "", 0, content.ErrRefused, "empty"}, {"full", want, "", 512 << 10, content.ErrRefused, "the disk has"},
		{"no room", want, "", 1 << 20, disk.ErrNoSpace, "make room"},
	} {
		for _, places := range []func(string, backingimage.ID) backingimage.Paths{backingimage.InManager,
			backingimage.InSource} {
			fs, d := inMemory(t)
			if tt.name == "no room" {
				f, err := fs.Create("/data/other", 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt(want[:512<<10], 0); err != nil {
					t.Fatal(err)
				}
			}
			fs.SetCapacity(tt.capacity)
			_, err := makeFile(d, places("/data", id), tt.bytes, tt.expected)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want %v and %q", tt.name, err, tt.is, tt.says)
			}
			nothingLeft(t, fs, tt.name)
		}
	}
}

// TestAnyOperationFails: one operation of the file system fails, each in turn. The file is made, or
// that is an error and nothing of it is left, except where the removal has failed.
func TestAnyOperationFails(t *testing.T) {
	t.Parallel()
	want := image(2 << 20)
	for skip := 0; ; skip++ {
		fs, d := inMemory(t)
		fs.Inject(memdisk.Rule{Name: "*", Skip: skip, Times: 1, Err: disk.ErrIO})
		_, err := makeFile(d, backingimage.InManager("/data", id), want, "")
		failed := fs.Injected() > 0
		fs.ClearRules()
		found, scanErr := d.Scan()
		if scanErr != nil || len(found) == 0 && err == nil || len(found) > 0 && !found[0].Proven {
			t.Fatalf("operation %d: %v, then %+v, %v", skip, err, found, scanErr)
		}
		if err != nil && len(found) == 0 {
			nothingLeft(t, fs, err.Error())
		}
		if !failed {
			if skip < 15 {
				t.Errorf("only %d operations", skip)
			}
			return
		}
	}
}

// TestAnyCrash: the machine loses power before each change of the disk in turn. Afterwards the file
// is whole or gone, and once it was published it is there.
func TestAnyCrash(t *testing.T) {
	t.Parallel()
	want := image(2 << 20)
	for n := int64(0); ; n++ {
		fs, d := inMemory(t)
		fs.CrashAfter(n)
		_, err := makeFile(d, backingimage.InManager("/data", id), want, sumOf(want))
		for seed := range uint64(8) {
			later := fs.Crash(seed)
			d := New(later, "/data", "d1", quiet)
			found, scanErr := d.Scan()
			if scanErr != nil || len(found) == 0 && err == nil {
				t.Fatalf("crash %d.%d: made: %v, found %v, %v", n, seed, err, found, scanErr)
			}
			if len(found) == 0 {
				nothingLeft(t, later, "after a crash")
				continue
			}
			p := backingimage.InManager("/data", id)
			if r, err := d.Verify(id, p, sumOf(want), nil); err != nil || !bytes.Equal(contentOf(t, d, p), want) {
				t.Fatalf("crash %d.%d: %+v, %v", n, seed, r, err)
			}
		}
		if err == nil {
			return
		}
	}
}

// TestTakeOverAndAnyCrash: the file of a data source gets its place without a copy; repeated after
// a crash at any moment that goes on, and the file is never lost.
func TestTakeOverAndAnyCrash(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	from, to := backingimage.InSource("/data", id), backingimage.InManager("/data", id)
	for n := int64(0); ; n++ {
		fs, d := inMemory(t)
		if _, err := makeFile(d, from, want, ""); err != nil {
			t.Fatal(err)
		}
		used := fs.Used()
		fs.CrashAfter(n)
		_, err := d.TakeOver(id, sumOf(want), nil)
		for seed := range uint64(8) {
			later := fs.Crash(seed)
			d := New(later, "/data", "d1", quiet)
			if _, err := d.Scan(); err != nil {
				t.Fatal(err)
			}
			r, err := d.TakeOver(id, sumOf(want), nil)
			if err != nil || r.FilePath != to.File || !bytes.Equal(contentOf(t, d, to), want) {
				t.Fatalf("crash %d.%d: %+v, %v", n, seed, r, err)
			}
			if _, err := later.Stat(from.File); !errors.Is(err, disk.ErrNotFound) || later.Used() > used+8192 {
				t.Fatalf("crash %d.%d: %v, %d bytes used, want %d", n, seed, err, later.Used(), used)
			}
		}
		if err == nil {
			return
		}
	}
}

// TestTakeOverRefuses what is not complete or not what is expected, and leaves it alone: the data
// source may be at work.
func TestTakeOverRefuses(t *testing.T) {
	t.Parallel()
	fs, d := inMemory(t)
	from := backingimage.InSource("/data", id)
	m, err := d.Create(from, id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.TakeOver(id, "", nil); !errors.Is(err, disk.ErrNotFound) {
		t.Errorf("a file that is being made: %v", err)
	}
	want := image(1 << 20)
	if _, err := m.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Publish("", raw); err != nil {
		t.Fatalf("the data source was disturbed: %v", err)
	}
	if _, err := d.TakeOver(id, sumOf(nil), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("another checksum: %v", err)
	}
	if _, err := fs.Stat(from.File); err != nil {
		t.Error(err)
	}
	nothing, err := d.Scan()
	if err != nil || len(nothing) > 0 {
		t.Errorf("%v, %v", nothing, err)
	}
}

// TestFoundFiles: those of another program are taken as they are, a record that is not of its file
// saves nothing, and one that contradicts it makes it damaged.
func TestFoundFiles(t *testing.T) {
	t.Parallel()
	want := image(1 << 20)
	p := backingimage.InManager("/data", id)
	for _, tt := range []struct {
		name   string
		change func(fs *memdisk.FS) error
		proven bool
		is     error
	}{
		{"as it was", func(*memdisk.FS) error { return nil }, true, nil},
		{"no record", func(fs *memdisk.FS) error { return fs.Remove(p.Record) }, false, nil},
		{"no JSON", func(fs *memdisk.FS) error { return fs.WriteFileAtomic(p.Record, []byte("{")) }, false, nil},
		{"another time", func(fs *memdisk.FS) error { return fs.Utime(p.File, 1) }, false, nil},
		{"another content", func(fs *memdisk.FS) error { return scribble(fs, p.File) }, false, ErrDamaged},
	} {
		fs, d := inMemory(t)
		if _, err := makeFile(d, p, want, ""); err != nil {
			t.Fatal(err)
		}
		if err := tt.change(fs); err != nil {
			t.Fatal(err)
		}
		found, err := d.Scan()
		if err != nil || len(found) != 1 || found[0].Proven != tt.proven {
			t.Errorf("%s: %+v, %v", tt.name, found, err)
			continue
		}
		r, err := d.Verify(id, p, "", nil)
		if !errors.Is(err, tt.is) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.is)
		}
		again, _, lookErr := d.Look(id, p)
		if lookErr != nil || again.Proven != (tt.is == nil) || tt.is == nil && again.Record != r {
			t.Errorf("%s: then %+v, %v", tt.name, again, lookErr)
		}
	}
}

func scribble(fs *memdisk.FS, name string) error {
	f, err := fs.Open(name, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("scribble"), 4096)
	return errors.Join(err, f.Close())
}

// TestScanLeavesAlone what is not of the system, and a disk that is another one.
func TestScanLeavesAlone(t *testing.T) {
	t.Parallel()
	fs, d := inMemory(t)
	p := backingimage.InManager("/data", id)
	for _, dir := range []string{"/data/backing-images", "/data/backing-images/mine", p.Dir} {
		if err := fs.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/data/backing-images/mine/backing.tmp", p.Tmp, p.Dir + "/notes"} {
		if err := fs.WriteFileAtomic(name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := d.Scan(); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	for name, want := range map[string]error{"/data/backing-images/mine/backing.tmp": nil, p.Tmp: disk.ErrNotFound,
		p.Dir + "/notes": nil} {
		if _, err := fs.Stat(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, other := range []*Disk{New(fs, "/data", "d2", quiet), New(fs, "/elsewhere", "d1", quiet)} {
		if _, err := other.Scan(); err == nil {
			t.Errorf("%+v is scanned", other)
		}
		if _, err := other.Create(backingimage.InManager(other.Root(), id), id.UUID); err == nil {
			t.Errorf("%+v gets files", other)
		}
	}
}

// TestErase removes all of a file, also what is only there in part.
func TestErase(t *testing.T) {
	t.Parallel()
	for _, places := range []func(string, backingimage.ID) backingimage.Paths{backingimage.InManager,
		backingimage.InSource} {
		fs, d := inMemory(t)
		p := places("/data", id)
		if err := d.Erase(p); err != nil {
			t.Errorf("nothing there: %v", err)
		}
		if _, err := makeFile(d, p, image(4096), ""); err != nil {
			t.Fatal(err)
		}
		if err := d.Erase(p); err != nil {
			t.Error(err)
		}
		nothingLeft(t, fs, "erased")
		nothingLeft(t, fs.Crash(1), "erased, after a crash")
	}
}
