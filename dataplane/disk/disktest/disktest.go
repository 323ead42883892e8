// Package disktest is the conformance suite of disk.Meta: what every implementation does, as far as
// a program can see without a crash.
package disktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"ankole.storage/dataplane/disk"
)

// Target is an implementation under test.
type Target struct {
	FS disk.Meta
	// Dir is an empty directory of its own.
	Dir string
	// NoUnwritten: the file system reports preallocated space as holes (tmpfs). The suite then
	// checks that instead.
	NoUnwritten bool
}

func (g Target) path(name string) string { return g.Dir + "/" + name }

// Run runs every check against a fresh target.
func Run(t *testing.T, open func(t *testing.T) Target) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Target)
	}{
		{"create and open", testCreate},
		{"read and write", testReadWrite},
		{"direct", testDirect},
		{"extents", testExtents},
		{"extents across calls", testManyExtents},
		{"unwritten", testUnwritten},
		{"punch", testPunch},
		{"truncate", testTruncate},
		{"link and rename", testNames},
		{"exchange", testExchange},
		{"directories", testDirectories},
		{"atomic files", testAtomic},
		{"lock", testLock},
		{"file system", testStatfs},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func create(t *testing.T, g Target, name string, mode disk.Mode) disk.File {
	t.Helper()
	f, err := g.FS.Create(g.path(name), mode)
	ok(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func write(t *testing.T, f disk.File, off int64, n int, fill byte) {
	t.Helper()
	if k, err := f.WriteAt(bytes.Repeat([]byte{fill}, n), off); err != nil || k != n {
		t.Fatalf("write %d bytes at %d: %d, %v", n, off, k, err)
	}
}

func extents(t *testing.T, f disk.File, off int64) []disk.Extent {
	t.Helper()
	out, more, err := f.Extents(off, nil)
	ok(t, err)
	if more {
		t.Fatal("more extents than one call gives")
	}
	// Where a file system splits an extent is its own business.
	var merged []disk.Extent
	for _, e := range out {
		if k := len(merged) - 1; k >= 0 && merged[k].Off+merged[k].Len == e.Off && merged[k].Unwritten == e.Unwritten {
			merged[k].Len += e.Len
		} else {
			merged = append(merged, e)
		}
	}
	return merged
}

func wantExtents(t *testing.T, f disk.File, off int64, want ...disk.Extent) {
	t.Helper()
	if got := extents(t, f, off); !reflect.DeepEqual(got, want) {
		t.Fatalf("extents from %d: %+v, want %+v", off, got, want)
	}
}

func testCreate(t *testing.T, g Target) {
	_, err := g.FS.Open(g.path("a"), 0)
	is(t, err, disk.ErrNotFound)
	f := create(t, g, "a", 0)
	_, err = g.FS.Create(g.path("a"), 0)
	is(t, err, disk.ErrExists)
	_, err = g.FS.Create(g.path("no/such"), 0)
	is(t, err, disk.ErrNotFound)
	if f.Handle() < 0 || f.Path() != g.path("a") {
		t.Fatalf("handle %d, path %s", f.Handle(), f.Path())
	}
	r, err := g.FS.Open(g.path("a"), disk.ReadOnly)
	ok(t, err)
	if r.Handle() == f.Handle() {
		t.Fatal("two open files share a handle")
	}
	if _, err := r.WriteAt([]byte("x"), 0); err == nil {
		t.Fatal("write to a read-only file")
	}
	ok(t, r.Close())
}

func testReadWrite(t *testing.T, g Target) {
	f := create(t, g, "a", 0)
	write(t, f, 10, 5, 'x')
	p := make([]byte, 20)
	n, err := f.ReadAt(p, 0)
	if n != 15 || !errors.Is(err, io.EOF) ||
		!bytes.Equal(p[:15], []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00xxxxx")) {
		t.Fatalf("read %d, %v, %q", n, err, p)
	}
	if n, err := f.ReadAt(p, 100); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read behind the end: %d, %v", n, err)
	}
	ok(t, f.Sync())
	data, err := g.FS.ReadFile(g.path("a"), 15)
	ok(t, err)
	if !bytes.Equal(data, p[:15]) {
		t.Fatalf("ReadFile %q", data)
	}
	if _, err := g.FS.ReadFile(g.path("a"), 14); err == nil {
		t.Fatal("ReadFile beyond its limit")
	}
}

func testDirect(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	buf := make([]byte, 1<<20+4096+1)[1:] // certainly not page-aligned
	for i := range buf {
		buf[i] = byte(i / 512)
	}
	if n, err := f.WriteAt(buf[:1<<20], 4096); n != 1<<20 || err != nil {
		t.Fatalf("write %d, %v", n, err)
	}
	got := make([]byte, 1<<20+8192+1)[1:]
	n, err := f.ReadAt(got, 0)
	if n != 1<<20+4096 || !errors.Is(err, io.EOF) || !bytes.Equal(got[4096:n], buf[:1<<20]) {
		t.Fatalf("read %d, %v, or other content", n, err)
	}
}

func testExtents(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	ok(t, f.Truncate(1<<20))
	wantExtents(t, f, 0)
	write(t, f, 8192, 4096, 1)
	write(t, f, 65536, 8192, 0) // zeroes are data too
	wantExtents(t, f, 0, disk.Extent{Off: 8192, Len: 4096}, disk.Extent{Off: 65536, Len: 8192})
	wantExtents(t, f, 12288, disk.Extent{Off: 65536, Len: 8192})
	wantExtents(t, f, 69632, disk.Extent{Off: 69632, Len: 4096})
	wantExtents(t, f, 1<<20)
	info, err := f.Stat()
	ok(t, err)
	if info.Size != 1<<20 || info.Allocated != 12288 {
		t.Fatalf("size %d, allocated %d", info.Size, info.Allocated)
	}
}

func testManyExtents(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	const count = disk.ExtentsPerCall + 10
	for i := range int64(count) {
		write(t, f, i*16384, 4096, 1)
	}
	first, more, err := f.Extents(0, nil)
	ok(t, err)
	if len(first) != disk.ExtentsPerCall || !more {
		t.Fatalf("first call: %d extents, more %v", len(first), more)
	}
	last := first[len(first)-1]
	rest, more, err := f.Extents(last.Off+last.Len, nil)
	ok(t, err)
	if len(rest) != 10 || more {
		t.Fatalf("second call: %d extents, more %v", len(rest), more)
	}
	for i, e := range append(first, rest...) {
		if e != (disk.Extent{Off: int64(i) * 16384, Len: 4096}) {
			t.Fatalf("extent %d is %+v", i, e)
		}
	}
}

func testUnwritten(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	write(t, f, 0, 4096, 1)
	ok(t, f.Preallocate(0, 16384))
	if g.NoUnwritten {
		wantExtents(t, f, 0, disk.Extent{Off: 0, Len: 4096})
	} else {
		wantExtents(t, f, 0, disk.Extent{Off: 0, Len: 4096}, disk.Extent{Off: 4096, Len: 12288, Unwritten: true})
	}
	p := make([]byte, 16384)
	_, err := f.ReadAt(p, 0)
	ok(t, err)
	if p[0] != 1 || !bytes.Equal(p[4096:], make([]byte, 12288)) {
		t.Fatal("preallocation changed what is read")
	}
	write(t, f, 8192, 4096, 2)
	if !g.NoUnwritten {
		wantExtents(t, f, 4096, disk.Extent{Off: 4096, Len: 4096, Unwritten: true}, disk.Extent{Off: 8192, Len: 4096},
			disk.Extent{Off: 12288, Len: 4096, Unwritten: true})
	}
}

func testPunch(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	write(t, f, 0, 16384, 1)
	ok(t, f.Punch(4096, 8192))
	wantExtents(t, f, 0, disk.Extent{Off: 0, Len: 4096}, disk.Extent{Off: 12288, Len: 4096})
	ok(t, f.Punch(12288, 1<<20))
	info, err := f.Stat()
	ok(t, err)
	if info.Size != 16384 || info.Allocated != 4096 {
		t.Fatalf("size %d, allocated %d after punching past the end", info.Size, info.Allocated)
	}
}

func testTruncate(t *testing.T, g Target) {
	f := create(t, g, "a", disk.Direct)
	write(t, f, 0, 8192, 1)
	ok(t, f.Truncate(512))
	ok(t, f.Truncate(8192))
	p := make([]byte, 8192)
	_, err := f.ReadAt(p, 0)
	ok(t, err)
	if !bytes.Equal(p, append(bytes.Repeat([]byte{1}, 512), make([]byte, 7680)...)) {
		t.Fatal("what was cut off came back")
	}
}

func testNames(t *testing.T, g Target) {
	f := create(t, g, "a", 0)
	write(t, f, 0, 3, 'a')
	ok(t, g.FS.Link(g.path("a"), g.path("b")))
	is(t, g.FS.Link(g.path("a"), g.path("b")), disk.ErrExists)
	is(t, g.FS.Link(g.path("none"), g.path("c")), disk.ErrNotFound)
	x, err := g.FS.Stat(g.path("a"))
	ok(t, err)
	y, err := g.FS.Stat(g.path("b"))
	ok(t, err)
	if x.Inode != y.Inode || x.Inode == 0 {
		t.Fatalf("links have inodes %d and %d", x.Inode, y.Inode)
	}
	create(t, g, "c", 0)
	ok(t, g.FS.Rename(g.path("b"), g.path("c")))
	is(t, g.FS.Rename(g.path("b"), g.path("c")), disk.ErrNotFound)
	ok(t, g.FS.Remove(g.path("a")))
	is(t, g.FS.Remove(g.path("a")), disk.ErrNotFound)
	data, err := g.FS.ReadFile(g.path("c"), 10)
	ok(t, err)
	if string(data) != "aaa" {
		t.Fatalf("content %q", data)
	}
	write(t, f, 3, 1, 'b') // an open file outlives its name
	ok(t, g.FS.SyncDir(g.Dir))
	if names, err := g.FS.List(g.Dir); err != nil || !reflect.DeepEqual(names, []string{"c"}) {
		t.Fatalf("names %v, %v", names, err)
	}
}

func testExchange(t *testing.T, g Target) {
	ok(t, g.FS.WriteFileAtomic(g.path("a"), []byte("1")))
	is(t, g.FS.Exchange(g.path("a"), g.path("b")), disk.ErrNotFound)
	ok(t, g.FS.WriteFileAtomic(g.path("b"), []byte("2")))
	ok(t, g.FS.Exchange(g.path("a"), g.path("b")))
	for name, want := range map[string]string{"a": "2", "b": "1"} {
		if data, err := g.FS.ReadFile(g.path(name), 10); err != nil || string(data) != want {
			t.Fatalf("%s holds %q, %v", name, data, err)
		}
	}
}

func testDirectories(t *testing.T, g Target) {
	ok(t, g.FS.Mkdir(g.path("d")))
	is(t, g.FS.Mkdir(g.path("d")), disk.ErrExists)
	is(t, g.FS.Mkdir(g.path("x/y")), disk.ErrNotFound)
	info, err := g.FS.Stat(g.path("d"))
	ok(t, err)
	if !info.Dir || info.Mode != 0o700 {
		t.Fatalf("directory has %+v", info)
	}
	for _, name := range []string{"10", "9", "a", "B"} {
		ok(t, g.FS.WriteFileAtomic(g.path("d/"+name), nil))
	}
	names, err := g.FS.List(g.path("d"))
	ok(t, err)
	if !reflect.DeepEqual(names, []string{"10", "9", "B", "a"}) {
		t.Fatalf("names %v are not sorted", names)
	}
	is(t, g.FS.Remove(g.path("d")), disk.ErrExists)
	for _, name := range names {
		ok(t, g.FS.Remove(g.path("d/"+name)))
	}
	ok(t, g.FS.Remove(g.path("d")))
	_, err = g.FS.List(g.path("d"))
	is(t, err, disk.ErrNotFound)
	is(t, g.FS.SyncDir(g.path("d")), disk.ErrNotFound)
}

func testAtomic(t *testing.T, g Target) {
	for i, content := range []string{"one", "", "a longer text than before"} {
		ok(t, g.FS.WriteFileAtomic(g.path("f"), []byte(content)))
		data, err := g.FS.ReadFile(g.path("f"), 100)
		ok(t, err)
		if string(data) != content {
			t.Fatalf("round %d: %q", i, data)
		}
	}
	create(t, g, "f.tmp", 0) // left by a crash
	ok(t, g.FS.WriteFileAtomic(g.path("f"), []byte("new")))
	if names, err := g.FS.List(g.Dir); err != nil || !reflect.DeepEqual(names, []string{"f"}) {
		t.Fatalf("names %v, %v: a temporary file was left", names, err)
	}
	is(t, g.FS.WriteFileAtomic(g.path("no/f"), nil), disk.ErrNotFound)
}

func testLock(t *testing.T, g Target) {
	a, err := g.FS.Lock(g.Dir)
	ok(t, err)
	_, err = g.FS.Lock(g.Dir)
	is(t, err, disk.ErrInUse)
	ok(t, a.Close())
	b, err := g.FS.Lock(g.Dir)
	ok(t, err)
	ok(t, b.Close())
	_, err = g.FS.Lock(g.path("none"))
	is(t, err, disk.ErrNotFound)
	if names, err := g.FS.List(g.Dir); err != nil || len(names) != 0 {
		t.Fatalf("locking left %v, %v", names, err)
	}
}

func testStatfs(t *testing.T, g Target) {
	info, err := g.FS.Statfs(g.Dir)
	ok(t, err)
	if info.Type == "" || info.FreeBytes <= 0 || info.FreeBytes > info.SizeBytes || info.ExtentSizeHint != 0 {
		t.Fatalf("unlikely: %s", fmt.Sprintf("%+v", info))
	}
	_, err = g.FS.Statfs(g.path("none"))
	is(t, err, disk.ErrNotFound)
}
