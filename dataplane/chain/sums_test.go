package chain

import (
	"hash/crc64"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A run of zeroes costs nothing, but counts as if every one of them had been read.
func TestZeroRun(t *testing.T) {
	z := newZeroRun()
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		n := rapid.Int64Range(0, 1<<16).Draw(t, "zeroes")
		want := crc64.Checksum(append(data, make([]byte, n)...), crcTable)
		if got := z.extend(crc64.Checksum(data, crcTable), n); got != want {
			t.Fatalf("%x, want %x", got, want)
		}
	})
	// Powers add up: runs that nobody can wait for.
	crc := crc64.Checksum([]byte("x"), crcTable)
	if one, two := z.extend(crc, 1<<46-1), z.extend(z.extend(crc, 1<<45), 1<<45-1); one != two {
		t.Fatalf("%x in one run, %x in two", one, two)
	}
}

// sumsOf makes a file of sums in memory and opens it.
func sumsOf(t *rapid.T, fs *memdisk.FS, pieces []uint32) *sumsReader {
	c := lookAround(fs, "/")
	c.meta.vm.AnkoleStamp = Stamp{1}.String()
	const size = 1 << 40
	w, err := newSumsWriter(fs, "/x.sums", size, Stamp{1})
	for _, p := range pieces {
		if err == nil {
			err = w.add(p, sumFor(p))
		}
	}
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := c.checksums.openSums("x", size, 0)
	if err != nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	for name, stamp := range map[string]Stamp{"another stamp": {2}, "no stamp": {}} {
		c.meta.vm.AnkoleStamp = stamp.String()
		if other, err := c.checksums.openSums("x", size, 0); other != nil || err != nil {
			t.Fatalf("%s: %v, %v", name, other, err)
		}
	}
	return s
}

func sumFor(piece uint32) sum { return sum{1, byte(piece), byte(piece >> 8), byte(piece >> 16)} }

// Every piece that was recorded is found, in any order, and no other; one that is voided or on a
// damaged page is unknown.
func TestSumsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := memdisk.New()
		var pieces []uint32
		next := uint32(0)
		for range rapid.IntRange(0, 5*perPage).Draw(t, "pieces") {
			next += 1 + uint32(rapid.IntRange(0, 3).Draw(t, "gap"))
			pieces = append(pieces, next)
		}
		s := sumsOf(t, fs, pieces)
		defer s.close()
		want := map[uint32]sum{}
		for _, p := range pieces {
			want[p] = sumFor(p)
		}
		if len(pieces) > 0 && rapid.Bool().Draw(t, "void one") {
			p := rapid.SampledFrom(pieces).Draw(t, "voided")
			if err := s.set(p, sum{}); err != nil {
				t.Fatal(err)
			}
			delete(want, p)
		}
		if len(pieces) > 0 && rapid.Bool().Draw(t, "damage a page") {
			k := rapid.IntRange(0, (len(pieces)-1)/perPage).Draw(t, "damaged")
			if err := fs.Rot("/x.sums", int64(k+1)*sumsPage+77, 1); err != nil {
				t.Fatal(err)
			}
			s.number = 0
			for i := k * perPage; i < min((k+1)*perPage, len(pieces)); i++ {
				delete(want, pieces[i])
			}
		}
		damaged := len(want) < len(pieces)-1
		probe := func(p uint32) {
			got, known, err := s.find(p)
			w, there := want[p]
			// Behind a damaged page of the search nothing is found; what is found is right.
			if err != nil || known && (!there || got != w) || !known && there && !damaged {
				t.Fatalf("piece %d: %x %v %v, want %x %v", p, got, known, err, w, there)
			}
		}
		for p := range next + 2 {
			probe(p)
		}
		for _, p := range rapid.SliceOf(rapid.Uint32Range(0, next+1)).Draw(t, "probes") {
			probe(p)
		}
	})
}

// What is not a whole file of sums is void, never an error and never believed.
func TestDamagedSumsHeader(t *testing.T) {
	good := sumsHeader{size: 10 * SumPiece, entries: 3, stamp: Stamp{1}}
	if h, ok := decodeSumsHeader(good.encode(), 2*sumsPage); !ok || h != good {
		t.Fatalf("%+v, %v", h, ok)
	}
	for _, fileSize := range []int64{0, sumsPage, 3 * sumsPage, 2*sumsPage - 1} {
		if _, ok := decodeSumsHeader(good.encode(), fileSize); ok {
			t.Errorf("believed in a file of %d bytes", fileSize)
		}
	}
	for i := range sumsPage {
		b := good.encode()
		b[i] ^= 4
		if _, ok := decodeSumsHeader(b, 2*sumsPage); ok {
			t.Fatalf("believed with byte %d damaged", i)
		}
	}
	for _, h := range []sumsHeader{{size: -1}, {size: 1, entries: 2}, {size: 1, entries: -1}, {size: maxVolumeSize + 1}} {
		if _, ok := decodeSumsHeader(h.encode(), (1+(h.entries+perPage-1)/perPage)*sumsPage); ok {
			t.Errorf("believed %+v", h)
		}
	}
}

// Extents become pieces; of a list that was cut off the last piece waits for the rest.
func TestPiecesOf(t *testing.T) {
	list, end := piecesOf([]disk.Extent{{Off: 4096, Len: 1024}, {Off: 5120, Len: 512},
		{Off: SumPiece - 4096, Len: 8192}}, 0, 1<<30, 2)
	if len(list) != 2 || list[0] != (filePiece{0, 1<<63 | 2}) || list[1] != (filePiece{1, 1}) || end != 1<<30 {
		t.Fatalf("%x to %d", list, end)
	}
	var full []disk.Extent
	for i := range int64(disk.ExtentsPerCall) {
		full = append(full, disk.Extent{Off: 8192 * i, Len: 4096})
	}
	list, end = piecesOf(full, 0, 1<<30, 100)
	if want := int64(8192*disk.ExtentsPerCall/SumPiece-1) * SumPiece; end != want || int64(len(list)) != want/SumPiece {
		t.Fatalf("%d pieces to %d, want to %d", len(list), end, want)
	}
	if list, end = piecesOf(full, 0, 1<<30, 2); len(list) != 2 || end != 2*SumPiece {
		t.Fatalf("%d pieces to %d, want two", len(list), end)
	}
}
