package chain

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk/memdisk"
)

// Whatever a .checksum file holds, it is taken for a checksum only if it is one, and is written
// back as the same.
func FuzzChecksumFile(f *testing.F) {
	f.Add(
		[]byte(
			`{"method":"crc64","checksum":"00ff00ff00ff00ff","change_time":"2023-11-14 22:13:20.123456789 +0000 UTC","last_hashed_at":"2023-11-14T22:13:20Z","silently_corrupted":true}`))
	f.Add([]byte(`{"method":"crc64","checksum":"ff"}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"method":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseChecksum(data)
		if err != nil {
			return
		}
		if len(s.Checksum) != 16 || s.Method != checksumMethod {
			t.Fatalf("%+v", s)
		}
		again, err := parseChecksum(s.encode())
		if err != nil || again != s {
			t.Fatalf("%+v is written as %s and read as %+v, %v", s, s.encode(), again, err)
		}
	})
}

// Whatever a .sums file holds, opening and searching it ends, without an error.
func FuzzSums(f *testing.F) {
	header := sumsHeader{size: 300 * SumPiece, entries: 2, stamp: Stamp{1}}
	page := make([]byte, sumsPage)
	page[0], page[20] = 3, 4
	twoslot.Seal(page, 1)
	f.Add(append(header.encode(), page...), uint32(3))
	f.Add(header.encode(), uint32(0))
	f.Add([]byte(sumsMagic), uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint32) {
		// Sealing makes the fuzzer's changes count.
		for _, resealed := range []bool{false, true} {
			data := bytes.Clone(data)
			for n := 0; resealed && (n+1)*sumsPage <= len(data); n++ {
				twoslot.Seal(data[n*sumsPage:], uint64(n))
			}
			fs := memdisk.New()
			if err := fs.WriteFileAtomic("/x.sums", data); err != nil {
				t.Fatal(err)
			}
			c := lookAround(fs, "/")
			c.meta.vm.AnkoleStamp = Stamp{1}.String()
			s, err := c.checksums.openSums("x", header.size, 0)
			if err != nil {
				t.Fatal(err)
			}
			if s == nil {
				continue
			}
			for _, p := range []uint32{piece, 0, 3, 4, 299} {
				if _, _, err := s.find(p); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
