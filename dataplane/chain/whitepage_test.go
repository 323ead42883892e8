package chain

import (
	"bytes"
	"encoding/binary"
	"testing"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/test/seeded"
)

// The layout, byte by byte, as docs/design/format-replica.md has it.
func TestWhiteoutLayout(t *testing.T) {
	id := whiteoutID{Stamp{1, 2, 3}, 0x1122334455667788}
	var b whiteoutBits
	b.set(3, 4, true)
	b.set(whiteoutBlocks-1, whiteoutBlocks, true)
	p := encodeWhiteouts(id, 7, 9, &b)
	want := make([]byte, 4096)
	copy(want, "ANKWHITE")
	binary.LittleEndian.PutUint32(want[8:], 1)
	binary.LittleEndian.PutUint32(want[12:], 7)
	binary.LittleEndian.PutUint64(want[16:], 9)
	copy(want[24:], []byte{1, 2, 3})
	binary.LittleEndian.PutUint64(want[40:], 0x1122334455667788)
	want[64] = 1 << 3
	want[64+2047] = 1 << 7
	twoslot.Seal(want, 7)
	if !bytes.Equal(p, want) {
		t.Fatalf("% x", p[:128])
	}
	for _, other := range []struct {
		id     whiteoutID
		number int64
		slot   uint64
	}{{whiteoutID{Stamp{1}, id.file}, 7, 1}, {whiteoutID{id.key, 1}, 7, 1}, {id, 8, 1}, {id, 7, 0}} {
		both := make([]byte, whiteoutPage)
		copy(both[other.slot*whiteoutSlot:], p)
		if now := newestWhiteouts(other.id, other.number, both); now.seq != 0 || !now.bits.empty() {
			t.Errorf("taken for %+v", other)
		}
	}
}

// Setting, clearing and listing bits against a plain slice.
func TestWhiteoutBits(t *testing.T) {
	src := seeded.New(t, "bits of a page of whiteouts are those that were set (docs/design/format-replica.md)")
	src.Seed(1)
	r := src.Rand(2)
	for range 200 {
		var b whiteoutBits
		plain := make([]bool, whiteoutBlocks)
		for range r.IntN(12) {
			first := r.Int64N(whiteoutBlocks)
			last := first + 1 + r.Int64N(min(whiteoutBlocks-first, 1+r.Int64N(400)))
			on, changed := r.IntN(3) > 0, false
			for i := first; i < last; i++ {
				changed = changed || plain[i] != on
				plain[i] = on
			}
			if got := b.set(first, last, on); got != changed {
				t.Fatalf("set [%d,%d) says %v", first, last, got)
			}
		}
		got := make([]bool, whiteoutBlocks)
		end := int64(0)
		b.runs(func(first, last int64) {
			if first < end || first >= last {
				t.Fatalf("run [%d,%d) after %d", first, last, end)
			}
			for i := first; i < last; i++ {
				got[i] = true
			}
			end = last
		})
		for i := range plain {
			if got[i] != plain[i] || b.has(int64(i)) != plain[i] {
				t.Fatalf("bit %d is %v and listed %v", i, b.has(int64(i)), got[i])
			}
		}
	}
}

// A page that a crash catches while it is written reads as it was at the last sync, or as it was
// written; never otherwise, and never as damaged.
func TestCrashWhileWhiteoutsAreWritten(t *testing.T) {
	id := whiteoutID{Stamp{4}, 5}
	src := seeded.New(t, "P1: a page of whiteouts that a crash catches reads as it was, or as it was written")
	for seed := range src.Seeds(300) {
		r := src.Rand(1)
		fs := memdisk.New()
		f, err := fs.Create("/w", disk.Direct)
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		w := &whiteoutFile{file: f, id: id}
		var durable whiteoutBits
		var now whiteoutBits
		steps := r.IntN(8)
		between := []whiteoutBits{{}}
		for range steps {
			first := r.Int64N(whiteoutBlocks - 10)
			if err := w.edit(whiteoutBlocks+first, whiteoutBlocks+first+10, true); err != nil {
				t.Fatal(err)
			}
			now.set(first, first+10, true)
			between = append(between, now)
			if r.IntN(3) == 0 {
				if err := w.sync(); err != nil {
					t.Fatal(err)
				}
				durable, between = now, []whiteoutBits{now}
			}
		}
		crashed := fs.Crash(seed)
		g, err := crashed.Open("/w", disk.Direct)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&whiteoutFile{file: g, id: id}).load(1)
		if err != nil || p.damaged {
			t.Fatalf("seed %d: %v, damaged %v", seed, err, p.damaged)
		}
		found := false
		for i := range between {
			found = found || p.bits == between[i]
		}
		if !found {
			t.Fatalf(
				"seed %d: after a crash the page is neither as it was synced nor as it was written since (durable: %v)",
				seed, p.bits == durable)
		}
	}
}

// Damage that no crash leaves is told.
func TestDamagedWhiteouts(t *testing.T) {
	id := whiteoutID{Stamp{4}, 5}
	var b whiteoutBits
	b.set(0, 1, true)
	both := append(encodeWhiteouts(id, 0, 2, &b), encodeWhiteouts(id, 0, 1, &b)...)
	for _, c := range []struct {
		name    string
		spoil   func(p []byte)
		damaged bool
		seq     uint64
	}{
		{"none", func([]byte) {}, false, 2},
		{"the newer slot", func(p []byte) { p[70] ^= 1 }, false, 1},
		{"the older slot", func(p []byte) { p[whiteoutSlot+70] ^= 1 }, false, 2},
		{"both", func(p []byte) { p[70] ^= 1; p[whiteoutSlot+70] ^= 1 }, true, 0},
		{"never written", func(p []byte) { clear(p) }, false, 0},
		{"torn first write", func(p []byte) { clear(p[:whiteoutSlot]); p[whiteoutSlot+70] ^= 1 }, false, 0},
	} {
		p := bytes.Clone(both)
		c.spoil(p)
		if w := newestWhiteouts(id, 0, p); w.damaged != c.damaged || w.seq != c.seq {
			t.Errorf("%s: %+v", c.name, w)
		}
	}
}

// Whatever a whiteout file holds, reading it ends, and what is taken for a slot is one.
func FuzzWhiteouts(f *testing.F) {
	id := whiteoutID{Stamp{1}, 2}
	var b whiteoutBits
	b.set(1, 5, true)
	f.Add(append(make([]byte, whiteoutSlot), encodeWhiteouts(id, 0, 1, &b)...))
	f.Add(append(encodeWhiteouts(id, 0, 2, &b), encodeWhiteouts(id, 0, 1, &b)...))
	f.Add([]byte(whiteoutMagic))
	f.Add(append(encodeWhiteouts(id, 0, 2, &b), encodeWhiteouts(id, 0, 1, &b)[:100]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Sealing makes the fuzzer's changes count.
		for _, resealed := range []bool{false, true} {
			data := bytes.Clone(data)
			for n := 0; resealed && (n+1)*whiteoutSlot <= len(data); n++ {
				twoslot.Seal(data[n*whiteoutSlot:], uint64(n/2))
			}
			fs := memdisk.New()
			if err := fs.WriteFileAtomic("/w", data); err != nil {
				t.Fatal(err)
			}
			file, err := fs.Open("/w", disk.Direct)
			if err != nil {
				t.Fatal(err)
			}
			w := &whiteoutFile{file: file, id: id}
			err = w.each(0, func(number int64, p *whiteoutsOf) error {
				one, err := w.load(number)
				if err != nil || one != *p {
					t.Fatalf("page %d reads otherwise by itself (%v)", number, err)
				}
				if p.damaged && (p.seq != 0 || !p.bits.empty()) {
					t.Fatalf("page %d is damaged and says something", number)
				}
				again := encodeWhiteouts(id, number, p.seq, &p.bits)
				if p.seq > 0 && !bytes.Equal(again[64:64+2048],
					data[number*whiteoutPage+int64(p.seq%2)*whiteoutSlot+64:][:2048]) {
					t.Fatalf("page %d is written otherwise than it was read", number)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
