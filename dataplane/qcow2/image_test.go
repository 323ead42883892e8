package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/dataplane/qcow2/qcow2test"
	"ankole.storage/test/lack"
	"ankole.storage/test/seeded"
)

// random is the source of a test's random numbers.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := seeded.New(t, "an image reads as the disk that it was made of")
	return s.Rand(s.Seed(1))
}

// content is that of a disk: each third of it is zeroes, compresses well, or does not.
func content(r *rand.Rand, size int64) []byte {
	p := make([]byte, size)
	for at := range p {
		switch at / 4096 % 3 {
		case 1:
			p[at] = byte(at / 512)
		case 2:
			p[at] = byte(r.Uint32())
		}
	}
	return p
}

func open(t testing.TB, file []byte) *Image {
	t.Helper()
	i, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// same compares an image with the content of its disk, whole and in pieces of any length.
func same(t *testing.T, i *Image, want []byte, r *rand.Rand) {
	t.Helper()
	if i.Size != int64(len(want)) {
		t.Fatalf("%d bytes, want %d", i.Size, len(want))
	}
	got := make([]byte, len(want))
	if n, err := i.ReadAt(got, 0); n != len(want) || err != nil || !bytes.Equal(got, want) {
		t.Fatalf("whole: %d, %v; first difference at %d", n, err, difference(got, want))
	}
	for range 200 {
		off := r.Int64N(i.Size)
		p := make([]byte, 1+r.IntN(100_000))
		n, err := i.ReadAt(p, off)
		left := want[off:min(off+int64(len(p)), i.Size)]
		if n != len(left) || (err != nil) != (n < len(p)) || n < len(p) && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d, %v", len(p), off, n, err)
		}
		if !bytes.Equal(p[:n], left) {
			t.Fatalf("%d bytes at %d: first difference at %d", len(p), off, off+int64(difference(p, left)))
		}
	}
	if n, err := i.ReadAt(make([]byte, 1), i.Size); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
}

// difference is where two texts differ first, -1 if they do not.
func difference(a, b []byte) int {
	for n := range min(len(a), len(b)) {
		if a[n] != b[n] {
			return n
		}
	}
	return -1
}

// TestReadAt: every way to store a cluster, in any order, for every form of the tables.
func TestReadAt(t *testing.T) {
	t.Parallel()
	for _, b := range []qcow2test.Image{
		{Bits: 16, Version: 2, Size: 5 << 20}, {Bits: 16, Version: 3, Size: 5<<20 + 512},
		{Bits: 9, Version: 3, Size: 1 << 20},
		{Bits: 21, Version: 3, Size: 9 << 20}, {Bits: 16, Version: 3, Compression: compressionZstd, Size: 5 << 20},
		{Bits: 14, Version: 3, Extended: true, Size: 3 << 20}, {Bits: 16, Version: 3, Extended: true, Size: 3<<20 - 512},
	} {
		t.Run(fmt.Sprintf("%+v", b), func(t *testing.T) {
			t.Parallel()
			r := random(t)
			want := content(r, b.Size)
			ways := make([]qcow2test.Stored, b.Size>>b.Bits+1)
			for n := range ways {
				ways[n] = qcow2test.Stored(r.IntN(4))
				if b.Version == 2 && ways[n] == qcow2test.Zero {
					ways[n] = qcow2test.Hole
				}
				if ways[n] < qcow2test.Plain {
					clear(want[int64(n)<<b.Bits:][:min(1<<b.Bits, b.Size-int64(n)<<b.Bits)])
				}
			}
			same(t, open(t, b.Build(t, want, func(n int) qcow2test.Stored { return ways[n] })), want, r)
		})
	}
}

// TestSubclusters: of a cluster that is cut into 32 each part is by itself.
func TestSubclusters(t *testing.T) {
	t.Parallel()
	r := random(t)
	b := qcow2test.Image{Bits: 14, Version: 3, Extended: true, Size: 1 << 20}
	want := content(r, b.Size)
	file := b.Build(t, want, func(int) qcow2test.Stored { return qcow2test.Plain })
	cluster := int64(1) << b.Bits
	for n := range b.Size / cluster {
		bitmap := r.Uint64() & 0xffffffff
		at := 2*cluster + 16*n + 8
		binary.BigEndian.PutUint64(file[at:], bitmap|(^bitmap&r.Uint64()&0xffffffff)<<32)
		for part := range int64(subclusters) {
			if bitmap>>part&1 == 0 {
				clear(want[n*cluster+part*cluster/subclusters:][:cluster/subclusters])
			}
		}
	}
	same(t, open(t, file), want, r)
}

// TestQEMU: what the program that everybody uses has made reads as it reads.
func TestQEMU(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		lack.Skip(t, "qemu-img, which makes the images, is not installed")
	}
	r := random(t)
	want := content(r, 12<<20)
	clear(want[3<<20 : 5<<20])
	raw := filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(raw, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, options := range []string{"compat=0.10", "compat=1.1", "cluster_size=512", "cluster_size=2M", "extended_l2=on",
		"compression_type=zstd"} {
		for _, flag := range []string{"", "-c"} {
			image := filepath.Join(t.TempDir(), "image")
			args := append(strings.Fields("convert "+flag+" -f raw -O qcow2 -o "+options), raw, image)
			if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
				t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
			}
			file, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			same(t, open(t, file), want, r)
		}
	}
}

// TestDamaged: what contradicts itself is refused, or is an error where it is read; nothing else is
// read in its place.
func TestDamaged(t *testing.T) {
	t.Parallel()
	b := qcow2test.Image{Bits: 16, Version: 3, Size: 2 << 20}
	want := content(random(t), b.Size)
	packed := b.Build(t, want, func(int) qcow2test.Stored { return qcow2test.Packed })
	whole := b.Build(t, want, func(int) qcow2test.Stored { return qcow2test.Plain })
	put := func(file []byte, at int, v uint64) []byte {
		file = bytes.Clone(file)
		binary.BigEndian.PutUint64(file[at:], v)
		return file
	}
	const first, second = 1 << 16, 2 << 16
	for _, tt := range []struct {
		name string
		file []byte
		open bool
	}{
		{"no image", []byte("x"), true}, {"cut in the header", whole[:100], true},
		{"cut in its table", whole[:first+4], true},
		{"cut in a table", whole[:second+8], true}, {"table elsewhere", put(whole, 40, 1<<40), true},
		{"few entries", put(whole, 32, 0), true}, {"second table elsewhere", put(whole, first, 1<<50), true},
		{"cluster elsewhere", put(whole, second, 1<<50), false}, {"cut", whole[:len(whole)-4096], false},
		{"packed cluster elsewhere", put(packed, second, isCompressed|1<<50), false},
		{"packed cluster is damaged", put(packed, 3<<16, ^uint64(0)), false},
	} {
		i, err := Open(bytes.NewReader(tt.file), int64(len(tt.file)))
		if tt.open {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if _, err := i.ReadAt(make([]byte, b.Size), 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestTablesAreBounded: an image whose tables would take the memory is refused before they are
// read.
func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	b := qcow2test.Image{Bits: 9, Version: 3, Size: 1 << 20}
	file := b.Build(t, make([]byte, b.Size), func(int) qcow2test.Stored { return qcow2test.Hole })
	binary.BigEndian.PutUint64(file[24:], 1<<50)
	binary.BigEndian.PutUint32(file[36:], 1<<31)
	if _, err := Open(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
}

func FuzzImage(f *testing.F) {
	for _, b := range []qcow2test.Image{{Bits: 9, Version: 2, Size: 8 << 10}, {Bits: 9, Version: 3, Size: 8 << 10},
		{Bits: 14, Version: 3, Extended: true, Size: 64 << 10}, {Bits: 9, Version: 3, Compression: 1, Size: 8 << 10}} {
		p := make([]byte, b.Size)
		f.Add(b.Build(f, p, func(n int) qcow2test.Stored { return qcow2test.Stored(n % 4) }))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		i, err := Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		p := make([]byte, 5000)
		for _, off := range []int64{0, 511, i.Size / 2, i.Size - 1} {
			n, err := i.ReadAt(p, off)
			if err == nil && n != len(p) {
				t.Fatalf("%d bytes at %d, and no error", n, off)
			}
		}
	})
}
