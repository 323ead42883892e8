package offline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/offline"
)

// small is a closed directory of ours in memory, /r: 64 KiB, snapshots "a" and "b", a record of
// generation 3.
func small(t testing.TB) *memdisk.FS {
	t.Helper()
	fs := memdisk.New()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(chain.Create(fs, "/r", chain.Spec{Size: 65536, VolumeUUID: ownUUID, Self: "v-1"}, chain.Options{}))
	c, err := chain.Open(fs, "/r", chain.Options{})
	fail(err)
	put := func(off int64, b byte, n int) {
		f, _ := fs.File(c.HeadHandle())
		_, err := f.WriteAt(bytes.Repeat([]byte{b}, n), off)
		fail(err)
		c.MarkWritten(off, int64(n))
	}
	put(0, 1, 16384)
	fail(c.Snapshot("a", true, "2026-11-21T09:00:00Z", nil))
	put(8192, 2, 16384)
	fail(c.Snapshot("b", true, "2026-11-21T10:00:00Z", nil))
	put(4096, 3, 4096)
	fail(c.WriteRecord(chain.Record{VolumeUUID: ownUUID, Epoch: 2, Generation: 3, State: chain.MemberRW, Self: "v-1",
		Members: []chain.Member{{Name: "v-1"}}}))
	fail(c.WriteDirty([]chain.Region{}))
	fail(c.Close())
	return fs
}

const (
	aFile = "/r/volume-snap-a.img"
	bFile = "/r/volume-snap-b.img"
	head  = "/r/volume-head-002.img"
)

// edit replaces a piece of text in a file.
func edit(t testing.TB, fs disk.Meta, name, from, to string) {
	t.Helper()
	data, err := fs.ReadFile(name, 1<<20)
	if err == nil && !strings.Contains(string(data), from) {
		err = fmt.Errorf("%s has no %q: %s", name, from, data)
	}
	if err == nil {
		err = fs.WriteFileAtomic(name, []byte(strings.ReplaceAll(string(data), from, to)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change opens a file for writing.
func change(t testing.TB, fs disk.Meta, name string, fn func(disk.File) error) {
	t.Helper()
	f, err := fs.Open(name, 0)
	if err == nil {
		err = errors.Join(fn(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// emptied removes the directory.
func emptied(fs *memdisk.FS) error {
	names, err := fs.List("/r")
	for _, name := range names {
		err = errors.Join(err, fs.Remove("/r/"+name))
	}
	return errors.Join(err, fs.Remove("/r"))
}

// record replaces the membership record.
func record(fs *memdisk.FS, r chain.Record) error {
	c, err := chain.Open(fs, "/r", chain.Options{AsItIs: true})
	if err != nil {
		return err
	}
	r.State = chain.MemberRW
	return errors.Join(c.WriteRecord(r), c.Close())
}

// member is the record of v-1 in a set.
func member(epoch, generation uint64, members ...string) chain.Record {
	r := chain.Record{VolumeUUID: ownUUID, Epoch: epoch, Generation: generation, Self: "v-1"}
	for _, name := range members {
		r.Members = append(r.Members, chain.Member{Name: name})
	}
	return r
}

// Whatever is the matter with a directory, the report names the state, the object and what to do.
func TestStatesAndDamage(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(fs *memdisk.FS) error
		state offline.State
		// says are pieces of the explanation and the problems.
		says []string
	}{
		{"clean", func(*memdisk.FS) error {
			return nil
		}, offline.StateClean, []string{"closed after everything was synced", "generation 3, which has 1 member"}},
		{"dirty", func(fs *memdisk.FS) error {
			c, err := chain.Open(fs, "/r", chain.Options{})
			if err != nil {
				return err
			}
			return errors.Join(c.WriteDirty([]chain.Region{0, 2}), c.Abandon())
		}, offline.StateDirty, []string{"was not closed", "at most 2 regions"}},
		{"rebuilding", func(fs *memdisk.FS) error {
			return chain.CreateSkeleton(fs, "/r", chain.Spec{Size: 65536, VolumeUUID: ownUUID, Self: "v-1"}, chain.Options{})
		}, offline.StateRebuilding, []string{"not the volume's content", "has not been a member"}},
		{"incomplete", func(fs *memdisk.FS) error {
			edit(t, fs, "/r/volume.meta", `{`, `{"AnkoleIncomplete":true,`)
			return nil
		},
			offline.StateIncomplete, []string{"counts as holding nothing"}},
		{"rewritten by another engine", func(fs *memdisk.FS) error {
			edit(t, fs, "/r/volume.meta", "AnkoleStamp", "Other")
			return nil
		},
			offline.StateClean, []string{"void: volume.meta carries no stamp", "Membership is void", "--compare"}},
		{"stamp of another directory", func(fs *memdisk.FS) error {
			edit(t, fs, "/r/volume.meta", `"AnkoleStamp":"`, `"AnkoleStamp":"00000000000000000000000000000001","x":"`)
			return nil
		}, offline.StateClean, []string{"do not belong together"}},
		{"member record damaged", func(fs *memdisk.FS) error {
			change(t, fs, "/r/ankole.member", func(f disk.File) error {
				_, err := f.WriteAt(make([]byte, 16384), 0)
				return err
			})
			return nil
		}, offline.StateClean, []string{"both copies in ankole.member are damaged"}},
		{"replaced", func(fs *memdisk.FS) error { return record(fs, member(3, 7, "v-2", "v-3")) }, offline.StateClean,
			[]string{"It was replaced: generation 7 of epoch 3 has v-2 and v-3, not v-1", "lacks what was written since"}},
		{"empty", emptied, "", nil},
		{"volume.meta lost", func(fs *memdisk.FS) error { return fs.Remove("/r/volume.meta") }, offline.StateDamaged,
			[]string{"volume.meta", "--size (the largest image has 65536)"}},
		{"volume.meta no JSON", func(fs *memdisk.FS) error { return fs.WriteFileAtomic("/r/volume.meta", []byte("{")) },
			offline.StateDamaged, []string{"not valid JSON"}},
		{"layer's metadata lost", func(fs *memdisk.FS) error { return fs.Remove(aFile + ".meta") }, offline.StateDamaged,
			[]string{"volume-snap-a.img.meta, which is missing", "volume-snap-a.img: has no"}},
		{"layer's metadata no JSON", func(fs *memdisk.FS) error { return fs.WriteFileAtomic(aFile+".meta", []byte("x")) },
			offline.StateDamaged, []string{"volume-snap-a.img.meta: corrupt"}},
		{"image lost", func(fs *memdisk.FS) error {
			return fs.Remove(aFile)
		}, offline.StateDamaged, []string{"image is missing"}},
		{"circle", func(fs *memdisk.FS) error {
			edit(t, fs, aFile+".meta", `"Parent":""`, `"Parent":"volume-snap-b.img"`)
			return nil
		},
			offline.StateDamaged, []string{"runs in a circle"}},
		{"snapshot cut short", func(fs *memdisk.FS) error {
			change(t, fs, bFile, func(f disk.File) error { return f.Truncate(8192) })
			return nil
		}, offline.StateDamaged, []string{"volume-snap-b.img: has 8192 bytes, less than the 65536", "cut short"}},
		{"snapshot cut within a block", func(fs *memdisk.FS) error {
			change(t, fs, aFile, func(f disk.File) error { return f.Truncate(8000) })
			return nil
		}, offline.StateDamaged, []string{"volume-snap-a.img: has 8000 bytes, not a multiple"}},
		{"head cut short", func(fs *memdisk.FS) error {
			change(t, fs, head, func(f disk.File) error { return f.Truncate(4096) })
			return nil
		}, offline.StateClean, []string{"volume-head-002.img: has 4096 bytes in a volume of 65536"}},
		{"two layers in one file", func(fs *memdisk.FS) error {
			return errors.Join(fs.Remove(bFile), fs.Link(aFile, bFile))
		}, offline.StateDamaged, []string{"is the same file as volume-snap-a.img"}},
		{"stray head", func(fs *memdisk.FS) error {
			return fs.WriteFileAtomic("/r/volume-head-009.img", nil)
		}, offline.StateClean,
			[]string{"note: volume-head-009.img: left by an operation"}},
		{"counter is no number", func(fs *memdisk.FS) error { return fs.WriteFileAtomic("/r/revision.counter", []byte("x")) },
			offline.StateClean, []string{"revision.counter: corrupt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := small(t)
			if err := c.spoil(fs); err != nil {
				t.Fatal(err)
			}
			r, err := offline.On(fs, "/r", offline.Options{}).Inspect()
			if c.state == "" {
				if !errors.Is(err, disk.ErrNotFound) {
					t.Fatalf("report %+v, %v", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(r.Explanation, "\n")
			for _, p := range r.Problems {
				text += fmt.Sprintf("\n%s: %s: %s", p.Severity, p.Object, p.Text)
			}
			if r.State != c.state {
				t.Errorf("state %s, want %s", r.State, c.state)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("nothing says %q in\n%s", want, text)
				}
			}
			if data, err := json.Marshal(r); err != nil ||
				bytes.Contains(data, []byte(":null,\"")) && !bytes.Contains(data, []byte(`"revisionCounter":null`)) {
				t.Errorf("JSON %s, %v", data, err)
			}
		})
	}
}

// What a crash cut short in the head is a hole to the reader, as it is to the engine that opens the
// directory next, also if its membership is lost.
func TestInterruptedWriteIsNoContent(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("membership lost %v", lost), func(t *testing.T) { testInterruptedWrite(t, lost) })
	}
}

func testInterruptedWrite(t *testing.T, lost bool) {
	fs := small(t)
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	must(t, c.Abandon()) // not closed
	if lost {
		must(t, fs.Remove("/r/ankole.member"))
	}
	want, err := offline.On(fs, "/r", offline.Options{}).Hash(t.Context(), offline.Head, nil)
	must(t, err)
	change(t, fs, head, func(f disk.File) error { return f.Preallocate(8192, 4096) })
	got, err := offline.On(fs, "/r", offline.Options{}).Hash(t.Context(), offline.Head, nil)
	must(t, err)
	if got != want {
		t.Errorf("an interrupted write hides the snapshot's data: %v, want %v", got, want)
	}
	c, err = chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	sum, err := c.HashAt(offline.Head)
	must(t, err)
	must(t, c.Close())
	if fmt.Sprintf("%x", sum) != want.SHA256 {
		t.Errorf("the engine reads %x, the tool %s", sum, want.SHA256)
	}
}

func TestLostVolumeMeta(t *testing.T) {
	fs := small(t)
	want, err := offline.On(fs, "/r", offline.Options{}).Hash(t.Context(), offline.Head, nil)
	must(t, err)
	must(t, fs.Remove("/r/volume.meta"))
	if _, err := offline.On(fs, "/r", offline.Options{}).Hash(t.Context(), offline.Head, nil); err == nil ||
		!strings.Contains(err.Error(), "--size") {
		t.Errorf("hash without a size: %v", err)
	}
	got, err := offline.On(fs, "/r", offline.Options{SizeBytes: 65536}).Hash(t.Context(), offline.Head, nil)
	must(t, err)
	if got != want {
		t.Errorf("content %v, want %v", got, want)
	}
}

// checksumOf writes the checksum file that a reference engine would.
func checksumOf(t *testing.T, fs *memdisk.FS, file string, content []byte) {
	t.Helper()
	info, err := fs.Stat(file)
	must(t, err)
	must(t, fs.WriteFileAtomic(file+".checksum",
		fmt.Appendf(nil,
			`{"method":"crc64","checksum":"%016x","change_time":%q,"last_hashed_at":"","silently_corrupted":false}`,
			crc64.Checksum(content, crc64.MakeTable(crc64.ISO)), info.CTime.In(time.FixedZone("CET", 3600)).String())))
}

func TestChecksums(t *testing.T) {
	content := append(bytes.Repeat([]byte{1}, 16384), make([]byte, 65536-16384)...)
	for _, c := range []struct {
		name  string
		spoil func(fs *memdisk.FS)
		want  offline.ChecksumResult
		fails bool
	}{
		{"right", func(*memdisk.FS) {}, offline.ChecksumRight, false},
		{"rotten", func(fs *memdisk.FS) {
			checksumOf(t, fs, aFile, append([]byte{9}, content[1:]...))
		}, offline.ChecksumWrong, true},
		{"written since", func(fs *memdisk.FS) {
			change(t, fs, aFile, func(f disk.File) error { _, err := f.WriteAt([]byte{9}, 1); return err })
		}, offline.ChecksumStale, false},
		{"no JSON", func(fs *memdisk.FS) {
			must(t, fs.WriteFileAtomic(aFile+".checksum", []byte("x")))
		}, offline.ChecksumUnreadable, false},
		{"found before", func(fs *memdisk.FS) {
			edit(t, fs, aFile+".checksum", "false", "true")
		}, offline.ChecksumRight, true},
		{"unreadable", func(fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpRead, Name: "volume-snap-a.img", Err: disk.ErrIO})
		}, offline.ChecksumUnreadable, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := small(t)
			checksumOf(t, fs, aFile, content)
			c.spoil(fs)
			r, err := offline.On(fs, "/r", offline.Options{}).Check(t.Context(), nil)
			must(t, err)
			i := slices.IndexFunc(r.Files, func(f offline.FileCheck) bool { return f.Name == "a" })
			if r.Files[i].Checksum != c.want || r.Failed() != c.fails {
				t.Errorf("checksum %s, failed %v: %+v", r.Files[i].Checksum, r.Failed(), r.Problems)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	fs, other := small(t), small(t)
	change(t, other, bFile, func(f disk.File) error { _, err := f.WriteAt([]byte{8}, 12288); return err })
	change(t, other, head, func(f disk.File) error { _, err := f.WriteAt([]byte{8}, 5000); return err })
	a, b := offline.On(fs, "/r", offline.Options{}), offline.On(other, "/r", offline.Options{})
	check := func(want ...offline.Comparison) {
		t.Helper()
		got, err := offline.Compare(t.Context(), a, b, nil)
		must(t, err)
		for i := range got {
			got[i].SizeBytes, got[i].OtherSizeBytes = 0, 0
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("compared %+v\nwant %+v", got, want)
		}
	}
	check(offline.Comparison{Snapshot: "a", In: offline.InBoth, Equal: true},
		offline.Comparison{Snapshot: "b", In: offline.InBoth, DifferingBytes: 4096,
			Ranges: []offline.Range{{Off: 12288, Len: 4096}}},
		offline.Comparison{Snapshot: offline.Head, In: offline.InBoth, DifferingBytes: 8192,
			Ranges: []offline.Range{{Off: 4096, Len: 4096}, {Off: 12288, Len: 4096}}})
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	must(t, c.WriteDirty([]chain.Region{0}))
	must(t, c.Snapshot("c", true, "", nil))
	must(t, c.Close())
	got, err := offline.Compare(t.Context(), a, b, nil)
	must(t, err)
	if got[2].In != offline.InFirst || got[3].Equal || !got[3].Explained || got[1].Explained {
		t.Errorf("with dirty regions: %+v", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := offline.Compare(ctx, a, b, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("compared although stopped: %v", err)
	}
}

// FuzzDirectory gives the tool directories in which one file is anything at all: it reports, and
// neither crashes nor changes anything.
func FuzzDirectory(f *testing.F) {
	names := []string{"volume.meta", "volume-snap-a.img.meta", "volume-snap-b.img.meta", "volume-head-002.img.meta",
		"ankole.member", "ankole.dirty",
		"revision.counter", "volume-snap-a.img.checksum", "volume-snap-c.img.meta", "volume-head-002.img"}
	base := small(f)
	for i, name := range names {
		data, _ := base.ReadFile("/r/"+name, 1<<20) // some of them are not there
		f.Add(uint8(i), data)
		f.Add(uint8(i),
			[]byte(
				`{"Parent":"volume-snap-c.img","Labels":{"":null},"Size":4096,"Head":"volume-head-002.img","method":"crc64","checksum":"x"}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		fs := small(t)
		name := "/r/" + names[int(which)%len(names)]
		must(t, fs.WriteFileAtomic(name, data))
		before := fs.Changes()
		d := offline.On(fs, "/r", offline.Options{})
		r, err := d.Inspect()
		must(t, err)
		if len(r.Explanation) == 0 || r.State == "" {
			t.Errorf("nothing explained: %+v", r)
		}
		checked, err := d.Check(t.Context(), nil)
		must(t, err)
		if r.VolumeSizeBytes > 1<<20 {
			return // reading so many zeroes takes long and shows nothing
		}
		sum, err := d.Hash(t.Context(), offline.Head, nil)
		if (r.State == offline.StateClean || r.State == offline.StateDirty) && !checked.Failed() &&
			r.BackingFile == "" && err != nil {
			t.Errorf("nothing is wrong, but the content cannot be read: %v", err)
		}
		if err == nil && sum.SizeBytes != r.VolumeSizeBytes {
			t.Errorf("hashed %d bytes of %d", sum.SizeBytes, r.VolumeSizeBytes)
		}
		_, _ = offline.Compare(t.Context(), d, d, nil) // whatever it says
		if fs.Changes() != before {
			t.Errorf("the directory was changed")
		}
	})
}

// The checksums per piece say where rot is, also where a purge or another tool has taken the whole
// file's checksum away.
func TestPieceChecksums(t *testing.T) {
	fs := small(t)
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	h, err := c.NewHash("a", false)
	must(t, err)
	for done := false; !done; {
		done, err = h.Work()
		must(t, err)
	}
	_, err = h.Finish("2026-11-21T11:00:00Z")
	must(t, err)
	must(t, c.Close())
	check := func() *offline.CheckReport {
		t.Helper()
		before := fs.Changes()
		r, err := offline.On(fs, "/r", offline.Options{}).Check(t.Context(), nil)
		must(t, err)
		if fs.Changes() != before {
			t.Error("the directory was changed")
		}
		return r
	}
	if r := check(); r.Failed() {
		t.Errorf("before: %+v", r.Problems)
	}
	must(t, fs.Rot(aFile, 4096, 1))
	must(t, fs.Remove(aFile+".checksum"))
	r := check()
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "65536 bytes at 0 do not match") ||
		r.Problems[0].Object != "volume-snap-a.img" {
		t.Errorf("rot: %+v", r.Problems)
	}
}
