package content

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// disk is a raw image that packs well, and is not all the same.
func disk(n int) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(i/512))
	}
	return p
}

func packGzip(t testing.TB, p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func packZstd(t testing.TB, p []byte) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// xzOfZeroes is what `head -c 1024 /dev/zero | xz` prints.
const xzOfZeroes = "fd377a585a000004e6d6b4460200210116000000742fe5a3e003ff000b5d00006ffdffffa3b7" +
	"7f46320000000c276920976378c300012780080000002e79aeadb1c467fb020000000004595a"

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	p, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t testing.TB, packed []byte) (*Reader, []byte, error) {
	t.Helper()
	c, err := Open(bytes.NewReader(packed))
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	p, err := io.ReadAll(c)
	return c, p, err
}

// TestUnpacked: what is packed is told from the content, and unpacked once.
func TestUnpacked(t *testing.T) {
	t.Parallel()
	raw := disk(1 << 20)
	for _, tt := range []struct {
		name         string
		packed, want []byte
		packing      string
	}{
		{"raw", raw, raw, ""}, {"short", []byte("x"), []byte("x"), ""}, {"empty", nil, nil, ""},
		{"gzip", packGzip(t, raw), raw, "gzip"}, {"zstd", packZstd(t, raw), raw, "zstd"},
		{"gzip in pieces", append(packGzip(t, raw), packGzip(t, raw)...), append(bytes.Clone(raw), raw...), "gzip"},
		{"zstd in pieces", append(packZstd(t, raw), packZstd(t, raw)...), append(bytes.Clone(raw), raw...), "zstd"},
		{"gzip twice", packGzip(t, packGzip(t, raw)), packGzip(t, raw), "gzip"},
		{"xz", unhex(t, xzOfZeroes), make([]byte, 1024), "xz"},
		{"xz in pieces", append(unhex(t, xzOfZeroes), unhex(t, xzOfZeroes)...), make([]byte, 2048), "xz"},
	} {
		c, got, err := read(t, tt.packed)
		if err != nil || !bytes.Equal(got, tt.want) || c.Packing != tt.packing || c.Format != Raw {
			t.Errorf("%s: %d bytes, %+v, %v", tt.name, len(got), c, err)
		}
	}
}

// TestCutStreamsAreRefused wherever they are cut, and those with a bit that is wrong.
func TestCutStreamsAreRefused(t *testing.T) {
	t.Parallel()
	raw := disk(4096)
	for name, whole := range map[string][]byte{"gzip": packGzip(t, raw), "zstd": packZstd(t, raw), "xz": unhex(t,
		xzOfZeroes)} {
		for n := 6; n < len(whole); n++ {
			if _, got, err := read(t, whole[:n]); !errors.Is(err, ErrRefused) {
				t.Errorf("%s cut after %d of %d bytes: %d bytes, %v", name, n, len(whole), len(got), err)
			}
		}
		damaged := bytes.Clone(whole)
		damaged[len(damaged)/2] ^= 0x10
		if _, got, err := read(t, damaged); !errors.Is(err, ErrRefused) {
			t.Errorf("%s damaged: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestSourceIsToBlame: an error of the source is not taken for one of the stream.
func TestSourceIsToBlame(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for _, p := range [][]byte{disk(4096), packGzip(t, disk(1<<20)), packZstd(t, disk(1<<20)), unhex(t, xzOfZeroes)} {
		c, err := Open(io.MultiReader(bytes.NewReader(p[:len(p)-8]), iotest.ErrReader(lost)))
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		if !errors.Is(err, lost) || errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
	}
}

// TestMemoryIsBounded: a stream that asks for a larger window is refused before it gets one.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	// A frame whose window descriptor says 2^27 bytes (RFC 8878, 3.1.1.1.2), with an empty block.
	big := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0}
	if _, _, err := read(t, big); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "lower level") {
		t.Errorf("%v", err)
	}
}

// header is the beginning of a valid file.
func header(version uint32, size uint64, change func([]byte)) []byte {
	p := make([]byte, HeadSize)
	copy(p, "QFI\xfb")
	binary.BigEndian.PutUint32(p[4:], version)
	binary.BigEndian.PutUint32(p[20:], 16)
	binary.BigEndian.PutUint64(p[24:], size)
	if version == 3 {
		binary.BigEndian.PutUint32(p[100:], 104)
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestQCOW2(t *testing.T) {
	t.Parallel()
	put32 := func(at int, v uint32) func([]byte) { return func(p []byte) { binary.BigEndian.PutUint32(p[at:], v) } }
	put64 := func(at int, v uint64) func([]byte) { return func(p []byte) { binary.BigEndian.PutUint64(p[at:], v) } }
	for _, tt := range []struct {
		name string
		head []byte
		want string // what the refusal says; "" is none
	}{
		{"version 2", header(2, 1<<30, nil), ""}, {"version 3", header(3, 1<<30, nil), ""},
		{"dirty, zstd, extended", header(3, 1<<30, put64(72, 1|8|16)), ""},
		{"version 1", header(1, 1<<30, nil), "version is 1"}, {"version 4", header(4, 1<<30, nil), "version is 4"},
		{"cut", header(2, 1<<30, nil)[:71], "within its header"}, {"cut 3", header(3, 1<<30, nil)[:103], "within its header"},
		{"base", header(2, 1<<30, put64(8, 512)), "names another file"}, {"base 3", header(3, 1<<30, put64(8, 512)),
			"names another file"},
		{"encrypted", header(3, 1<<30, put32(32, 2)), "encrypted"}, {"clusters", header(3, 1<<30, put32(20, 8)), "clusters"},
		{"clusters", header(3, 1<<30, put32(20, 22)), "clusters"}, {"size", header(3, 1000, nil), "1000 bytes"},
		{"no size", header(3, 0, nil), "0 bytes"}, {"huge", header(3, 1<<63, nil), "bytes"},
		{"data file", header(3, 1<<30, put64(72, 4)), "another file"}, {"corrupt", header(3, 1<<30, put64(72, 2)), "corrupt"},
		{"unknown", header(3, 1<<30, put64(72, 1<<40)), "unknown here"},
	} {
		info, err := Describe(tt.head)
		if tt.want == "" {
			if err != nil || info != (Info{QCOW2, 1 << 30}) {
				t.Errorf("%s: %+v, %v", tt.name, info, err)
			}
			continue
		}
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	c, _, err := read(t, packGzip(t, header(3, 1<<30, nil)))
	if err != nil || c.Format != QCOW2 || c.VirtualSize != 1<<30 {
		t.Errorf("packed: %+v, %v", c, err)
	}
	if _, _, err := read(t, packZstd(t, header(3, 1<<30, put64(8, 512)))); !errors.Is(err, ErrRefused) {
		t.Errorf("packed, with a base: %v", err)
	}
}

func TestDiskSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		i    Info
		size int64
		want int64
	}{{Info{Format: Raw}, 1024, 1024}, {Info{QCOW2, 1 << 30}, 70001, 1 << 30}, {Info{Format: Raw}, 1000, -1},
		{Info{Format: Raw}, 0, -1}, {Info{QCOW2, 1 << 30}, 0, -1}} {
		got, err := tt.i.DiskSize(tt.size)
		if tt.want < 0 && !errors.Is(err, ErrRefused) || tt.want >= 0 && (err != nil || got != tt.want) {
			t.Errorf("%+v of %d bytes: %d, %v", tt.i, tt.size, got, err)
		}
	}
}

// FuzzHead: no beginning of a stream ends the process or holds it up, and what is accepted is a
// disk.
func FuzzHead(f *testing.F) {
	f.Add(header(2, 1<<30, nil))
	f.Add(header(3, 1<<30, nil))
	f.Add(packGzip(f, disk(4096)))
	f.Add(packZstd(f, disk(4096)))
	f.Add(unhex(f, xzOfZeroes))
	f.Fuzz(func(t *testing.T, p []byte) {
		c, err := Open(bytes.NewReader(p))
		if err != nil {
			return
		}
		defer c.Close()
		n, err := io.Copy(io.Discard, io.LimitReader(c, 16<<20))
		if err != nil {
			return
		}
		if size, err := c.DiskSize(n); err == nil && (size <= 0 || size%512 != 0) {
			t.Errorf("%+v of %d bytes holds a disk of %d", c.Info, n, size)
		}
	})
}
