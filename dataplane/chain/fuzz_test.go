package chain

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
)

// Whatever bytes lie in a replica directory, decoding them gives a value that makes sense or
// ErrCorrupt.

func FuzzVolumeMeta(f *testing.F) {
	f.Add(
		[]byte(
			`{"Size":1073741824,"Head":"volume-head-000.img","Dirty":true,"Rebuilding":false,"Error":"","Parent":"","SectorSize":512,"BackingFilePath":""}`))
	f.Add(
		[]byte(
			`{"size":4096,"Head":"volume-head-1.img","Parent":"volume-snap-a.img","AnkoleStamp":"00","Future":{"a":[1]},"Encrypted":null} trailing`))
	f.Add([]byte(`{"Size":4096,"Head":"volume-head-0.img","AnkoleWhiteouts":"000102030405060708090a0b0c0d0e0f"}`))
	f.Add([]byte(`{"Size":4096,"Head":"volume-head-0.img","AnkoleWhiteouts":"0001"}`))
	f.Add([]byte(`{"Size":4096,"Head":"volume-head-0.img","AnkoleWhiteouts":"000102`))
	f.Add([]byte(`{"Size":4096,"Head":"volume-head-0.img","AnkoleFilling":{"Image":"volume-snap-a.img","Blocks":"/w=="}}`))
	f.Add([]byte(`{"Size":4096,"Head":"volume-head-0.img","AnkoleFilling":{"Image":"../a.img","Off":-1}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parseVolumeMeta(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if key := v.whiteoutKey(); key != (Stamp{}) && !strings.EqualFold(key.String(), v.AnkoleWhiteouts) {
			t.Fatalf("the key of whiteouts is %s, %q in the file", key, v.AnkoleWhiteouts)
		}
		if w := v.AnkoleFilling; w != nil && (strings.Contains(w.Image, "/") || w.Off < 0 || len(w.Blocks) > 2048) {
			t.Fatalf("accepted %+v", w)
		}
		if v.Size <= 0 || v.Size%4096 != 0 || path.Base(v.Head) != v.Head || strings.Contains(v.Parent, "/") {
			t.Fatalf("accepted %+v", v)
		}
		again, err := parseVolumeMeta(v.encode())
		if err != nil {
			t.Fatalf("own encoding %q: %v", v.encode(), err)
		}
		if !bytes.Equal(again.encode(), v.encode()) {
			t.Fatalf("encoding changes:\n%s\n%s", v.encode(), again.encode())
		}
	})
}

func FuzzDiskMeta(f *testing.F) {
	f.Add(
		[]byte(
			`{"Name":"volume-head-000.img","Parent":"","Removed":false,"UserCreated":true,"Created":"2026-11-21T06:04:21Z","Labels":{"n":"1"}}`))
	f.Add([]byte(`{"Parent":"volume-snap-../../x.img"}`))
	f.Add([]byte(`{"Labels":{"":""},"x":1,"X":2}`))
	f.Add([]byte(`{"AnkoleWhiteouts":"0123456789abcdef"}`))
	f.Add([]byte(`{"AnkoleWhiteouts":"x/../../volume.meta"}`))
	f.Add([]byte(`{"AnkoleWhiteouts":"01234567`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDiskMeta("volume-snap-a.img", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if d.Name != "volume-snap-a.img" || strings.Contains(d.Parent, "/") || strings.Contains(d.whiteouts, "/") {
			t.Fatalf("accepted %+v", d)
		}
		again, err := parseDiskMeta(d.Name, d.encode())
		if err != nil || !bytes.Equal(again.encode(), d.encode()) {
			t.Fatalf("own encoding %q: %v", d.encode(), err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	r := Record{VolumeUUID: UUID{1}, Promised: 4, Epoch: 2, Generation: 3, State: MemberRW, Self: "a", Engine: "e",
		Members: []Member{{Name: "a"}, {Name: "b", Flags: 1}}}
	f.Add(r.encode())
	f.Add(make([]byte, recordFixed+2))
	r.Replaces = []string{"c", "d"}
	f.Add(r.encode())
	r.Replaces, r.Agreed = nil, true
	f.Add(r.encode())
	r.Self = strings.Repeat("x", 255)
	f.Add(r.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(r.encode(), data) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", data, r, r.encode())
		}
	})
}

func FuzzDirtyLog(f *testing.F) {
	f.Add(encodeRegions(nil, Boot{}))
	f.Add(encodeRegions([]Region{}, Boot{1}))
	f.Add(encodeRegions([]Region{1, 2, 3}, Boot{}))
	f.Add(encodeRegions([]Region{1, 2, 3}, Boot{1}))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, known, boot, err := decodeRegions(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if known != (set != nil) || !bytes.Equal(encodeRegions(set, boot), data) {
			t.Fatalf("%x decodes to %v, %v", data, set, known)
		}
	})
}

func FuzzRevisionCounter(f *testing.F) {
	f.Add(encodeRevision(0))
	f.Add([]byte("12\x00"))
	f.Add([]byte("-1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parseRevision(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if again, err := parseRevision(encodeRevision(v)); err != nil || again != v || v < 0 {
			t.Fatalf("%q reads %d, then %d, %v", data, v, again, err)
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "volume-snap-a.img", "volume-head-000.img", "../x", "volume-snap-/.img",
		"volume-head-00000000000.img"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if isLayerFile(name) && (strings.Contains(name, "/") || name == "." || name == "..") {
			t.Fatalf("%q may be opened as a layer", name)
		}
		if ValidateSnapshotName(name) == nil {
			if back, ok := snapshotName(snapshotFile(name)); !ok || back != name {
				t.Fatalf("snapshot %q becomes %q", name, back)
			}
		}
		next, err := nextHead([]string{name, name + ".meta"})
		if err != nil || !isHeadFile(next) || next == name {
			t.Fatalf("after %q comes %q, %v", name, next, err)
		}
	})
}

// The layout of the sidecars is fixed: these bytes were written by version 1 and must be read for
// ever.
func TestSidecarLayout(t *testing.T) {
	r := Record{VolumeUUID: UUID{15: 0xee}, Promised: 0x0506, Epoch: 0x0102, Generation: 0x0304, State: MemberRW,
		Self: "v-1", Engine: "e",
		Members: []Member{{Name: "v-1"}, {Name: "v-2", Flags: 0x80}}}
	want := append(make([]byte, 15), 0xee, 6, 5, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 1, 2,
		3, 'v', '-', '1', 1, 'e',
		0, 3, 'v', '-', '1', 0x80, 3, 'v', '-', '2')
	if got := r.encode(); !bytes.Equal(got, want) {
		t.Errorf("record %x\nwant   %x", got, want)
	}
	if got, want := encodeRegions([]Region{7}, Boot{}),
		[]byte{0, 0, 64, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("regions %x, want %x", got, want)
	}
	if want := "ANKDIRTY"; dirtyMagic != want {
		t.Errorf("magic %s", dirtyMagic)
	}
	header := sumsHeader{size: 300 * SumPiece, entries: 2, stamp: Stamp{0xaa, 15: 0xbb}}
	if got := fmt.Sprintf("%x", sha256.Sum256(header.encode())); got !=
		"db31d78663924dfe78fde416d9726c7d23fa817e1718584039a3e2487bf38d83" {
		t.Errorf("header of sums %x, all of it %s", header.encode()[:48], got)
	}
}

func FuzzAbsent(f *testing.F) {
	f.Add(encodeAbsent(nil))
	f.Add(
		encodeAbsent([]Absent{{Member: "a", Since: RecordID{1, 2}, Structure: Structure{9}, First: "s", Gone: true,
			Changed: []string{"x", "y"},
			Regions: RegionSet{Shift: 1, Bits: []byte{1, 2, 3}}}, {Member: "b", AllChanged: true}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := decodeAbsent(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(encodeAbsent(entries), data) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", data, entries, encodeAbsent(entries))
		}
	})
}

// The layout of ankole.absent is fixed as well.
func TestAbsentLayout(t *testing.T) {
	got := encodeAbsent([]Absent{{Member: "v-2", Since: RecordID{0x0102, 0x0304}, Before: RecordID{0x0506, 0x0708},
		Structure: Structure{0xaa, 15: 0xbb}, First: "s", Gone: true,
		Changed: []string{"t"}, Regions: RegionSet{Shift: 1, Bits: []byte{0x81}}}})
	want := []byte("\x01\x03v-2\x02\x01\x00\x00\x00\x00\x00\x00\x04\x03\x00\x00\x00\x00\x00\x00" +
		"\x06\x05\x00\x00\x00\x00\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\xaa\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xbb" +
		"\x01s\x01\x01\x00\x01t\x01\x01\x00\x00\x00\x81")
	if !bytes.Equal(got, want) {
		t.Errorf("entry %x\nwant  %x", got, want)
	}
	if n := absentSlotSize(1 << 30); n != 36864 {
		t.Errorf("slot of %d bytes for 1 GiB", n)
	}
	if n := absentSlotSize(maxVolumeSize); absentBits(n) < maxAbsentBits ||
		len(encodeAbsent(make([]Absent, MaxAbsent)))+MaxAbsent*(absentFixed+maxAbsentBits) > n+1000 {
		t.Errorf("slot of %d bytes for the largest volume", n)
	}
}
