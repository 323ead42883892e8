package chain_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/archive"
)

// testdata/longhorn-v1.tgz holds replica directories as a reference engine (v1 data format) left
// them, and manifest.json saying what must be read out of them: SHA-256 of the content at every
// snapshot and at the head, and the engine's own listing.

type fixture struct {
	SizeBytes       int64
	RevisionCounter bool
	Snapshots       []fixtureSnapshot
	Head            struct{ SHA256 string }
	Ls              map[string]fixtureEntry
}

type fixtureSnapshot struct {
	Name          string
	SHA256        string
	SizeBytes     int64
	MarkedRemoved bool
}

type fixtureEntry struct {
	Name, Parent         string
	Children             map[string]bool
	Removed, UserCreated bool
	Created, Size        string
	Labels               map[string]string
}

// unpackFixtures returns a directory with a fresh copy of the archive and its manifest.
func unpackFixtures(t *testing.T) (string, map[string]fixture) {
	t.Helper()
	dir := t.TempDir()
	archive.Unpack(t, "testdata/longhorn-v1.tgz", dir)
	punchPreallocated(t, dir)
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]fixture
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "backupstore")
	return dir, all
}

// punchPreallocated removes what XFS preallocates behind the buffered writes of tar: the archive
// has no unwritten extents, and to a chain they would be data.
func punchPreallocated(t *testing.T, root string) {
	t.Helper()
	images, err := filepath.Glob(filepath.Join(root, "*", "replica-*", "*.img"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range images {
		f, err := osdisk.New(nil).Open(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		extents, _, err := f.Extents(0, nil)
		for _, e := range extents {
			if err == nil && e.Unwritten {
				err = f.Punch(e.Off, e.Len)
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func eachFixture(t *testing.T, run func(t *testing.T, dir string, f fixture)) {
	root, all := unpackFixtures(t)
	count := 0
	for name, f := range all {
		dirs, err := filepath.Glob(filepath.Join(root, name, "replica-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			count++
			t.Run(name+"/"+filepath.Base(dir), func(t *testing.T) { run(t, dir, f) })
		}
	}
	if count < 7 {
		t.Fatalf("%d fixture directories, want at least 7", count)
	}
}

func checkHashes(t *testing.T, c *chain.Chain, f fixture) {
	t.Helper()
	want := map[string]string{chain.HeadName: f.Head.SHA256}
	for _, s := range f.Snapshots {
		want[s.Name] = s.SHA256
	}
	for name, sum := range want {
		got, err := c.HashAt(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s: content %x, want %s", name, got, sum)
		}
	}
}

func openOS(t *testing.T, dir string, opts chain.Options) *chain.Chain {
	t.Helper()
	c, err := chain.Open(osdisk.New(nil), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Abandon() })
	return c
}

// A directory of the reference engine reads back as that engine read it, and opening and closing it
// any number of times changes nothing of that.
func TestFixturesReadBack(t *testing.T) {
	eachFixture(t, func(t *testing.T, dir string, f fixture) {
		for range 2 {
			c := openOS(t, dir, chain.Options{})
			if c.Size() != f.SizeBytes || c.State() != chain.StateDirty {
				t.Fatalf("size %d, state %s", c.Size(), c.State())
			}
			checkHashes(t, c, f)
			if _, valid := c.Record(); valid {
				t.Fatal("a foreign directory has a valid member record")
			}
			if _, known := c.Dirty(); known {
				t.Fatal("a foreign directory has a dirty log")
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestFixturesReadOnlyChangeNothing(t *testing.T) {
	eachFixture(t, func(t *testing.T, dir string, f fixture) {
		before := snapshotOfDir(t, dir)
		c := openOS(t, dir, chain.Options{ReadOnly: true})
		f.Snapshots = nil // the other test looks at them
		checkHashes(t, c, f)
		if c.WriteAllowed() {
			t.Error("a read-only chain may be written")
		}
		if err := c.Snapshot("x", true, "", nil); !errors.Is(err, chain.ErrInvalid) {
			t.Errorf("snapshot of a read-only chain: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if after := snapshotOfDir(t, dir); !reflect.DeepEqual(before, after) {
			t.Errorf("directory changed: %v\n%v", before, after)
		}
	})
}

// snapshotOfDir returns names with inode-independent facts and small files' content.
func snapshotOfDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.ModTime().String() + " " + strconv.FormatInt(info.Size(), 10)
		if info.Size() < 4096 {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] += string(data)
		}
	}
	return out
}

func TestFixturesList(t *testing.T) {
	eachFixture(t, func(t *testing.T, dir string, f fixture) {
		if f.Ls == nil {
			return
		}
		c := openOS(t, dir, chain.Options{})
		list, err := c.Snapshots()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != len(f.Ls) {
			t.Fatalf("%d layers listed, want %d", len(list), len(f.Ls))
		}
		for _, s := range list {
			w := f.Ls[s.Name]
			var children []string
			for name := range w.Children {
				children = append(children, name)
			}
			slices.Sort(children)
			want := chain.SnapshotInfo{Name: w.Name, Parent: w.Parent, Children: children, Removed: w.Removed,
				UserCreated: w.UserCreated, Created: w.Created, SizeBytes: s.SizeBytes, Labels: s.Labels}
			if !reflect.DeepEqual(s, want) {
				t.Errorf("listed %+v\nwant   %+v", s, want)
			}
			if len(s.Labels)+len(w.Labels) > 0 && !reflect.DeepEqual(s.Labels, w.Labels) {
				t.Errorf("%s: labels %v, want %v", s.Name, s.Labels, w.Labels)
			}
			// What a file occupies depends on how it was unpacked, by a block of the file system's
			// own at most.
			size, err := strconv.ParseInt(w.Size, 10, 64)
			if err != nil || s.SizeBytes > size || s.SizeBytes < size-8192 {
				t.Errorf("%s: occupies %d bytes, the reference engine said %s", s.Name, s.SizeBytes, w.Size)
			}
		}
	})
}

// Our own snapshot and writes on top of a foreign directory leave what it held as it was.
func TestFixturesTakenOver(t *testing.T) {
	eachFixture(t, func(t *testing.T, dir string, f fixture) {
		c := openOS(t, dir, chain.Options{})
		if err := c.Snapshot("taken-over", true, "2026-11-21T08:00:00Z", map[string]string{"k": "v"}); err != nil {
			t.Fatal(err)
		}
		r := chain.Record{VolumeUUID: chain.UUID{1}, Epoch: 3, Generation: 2, State: chain.MemberRW, Self: "me",
			Members: []chain.Member{{Name: "me", Flags: 1}}}
		if err := c.WriteRecord(r); err != nil {
			t.Fatal(err)
		}
		writeHead(t, c, 1<<20, 8192, 0xab)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = openOS(t, dir, chain.Options{VolumeUUID: chain.UUID{1}})
		if got, valid := c.Record(); !valid || !reflect.DeepEqual(got, r) {
			t.Errorf("record %+v, %v", got, valid)
		}
		sum, err := c.HashAt("taken-over")
		if err != nil || hex.EncodeToString(sum[:]) != f.Head.SHA256 {
			t.Errorf("taken-over: %x, %v", sum, err)
		}
		f.Head.SHA256 = ""
		for _, s := range f.Snapshots {
			if got, err := c.HashAt(s.Name); err != nil || hex.EncodeToString(got[:]) != s.SHA256 {
				t.Errorf("%s: %x, %v", s.Name, got, err)
			}
		}
		p := make([]byte, 8192)
		if _, err := c.ReadAt(p, 1<<20); err != nil || p[0] != 0xab || p[8191] != 0xab {
			t.Errorf("own write reads %x, %v", p[0], err)
		}
		v, exists, err := c.RevisionCounter()
		if err != nil || exists != f.RevisionCounter || exists && v < 2 {
			t.Errorf("revision counter %d, %v, %v", v, exists, err)
		}
	})
}
