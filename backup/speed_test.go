package backup_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/objecttest"
	"ankole.storage/test/lack"
)

// made is a volume whose content is computed: each block differs from every other, and cannot be
// compressed.
type made struct {
	sizeBytes int64
	pattern   []byte
}

func newMade(sizeBytes int64) *made {
	m := &made{sizeBytes, make([]byte, 4<<20)}
	r := draw(60)
	for i := 0; i < len(m.pattern); i += 8 {
		for j, x := 0, r.Uint64(); j < 8; j++ {
			m.pattern[i+j] = byte(x >> (8 * j))
		}
	}
	return m
}

func (m *made) SizeBytes() int64 { return m.sizeBytes }

func (m *made) Changed(context.Context, backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) { yield(backup.Extent{Length: m.sizeBytes}, nil) }
}

func (m *made) ReadAt(_ context.Context, p []byte, offset int64) error {
	for at := 0; at < len(p); {
		at += copy(p[at:], m.pattern[offset>>21&1023*512+int64(at)%512:])
	}
	copy(p, fmt.Sprintf("block at %d", offset))
	return nil
}

// nothing is a store that forgets blocks.
type nothing struct {
	*objecttest.Memory
	puts atomic.Int64
	peak atomic.Uint64
}

func (n *nothing) Stage(ctx context.Context, name string, data []byte) error {
	if !strings.HasSuffix(name, ".blk") {
		return n.Memory.Stage(ctx, name, data)
	}
	if n.puts.Add(1)%4 == 0 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		n.peak.Store(max(n.peak.Load(), m.HeapAlloc))
	}
	return nil
}

// TestMemoryIsBounded: a backup takes less than 64 MiB, whatever the volume, the size of blocks and
// the number of workers that was asked for.
func TestMemoryIsBounded(t *testing.T) { // not beside others: it looks at the memory of the process
	lack.RealTime(t, "memory is measured")
	const volume = 256 << 20 // four times what may be taken
	for _, tt := range []struct {
		size int64
		keys encryption.Keys
	}{{size: format.DefaultBlockBytes}, {size: format.LargeBlockBytes}, {format.DefaultBlockBytes, withKeys(1)},
		{format.LargeBlockBytes, withKeys(1)}} {
		size := tt.size
		var before runtime.MemStats
		m := newMade(volume)
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := &nothing{Memory: &objecttest.Memory{}}
		_, err := backup.Create(t.Context(), s, m, backup.CreateOptions{Volume: name, Backup: "b1", Snapshot: "s1",
			BlockBytes: size, Workers: 1000, Keys: tt.keys})
		took := int64(s.peak.Load()) - int64(before.HeapAlloc)
		t.Logf("blocks of %d: %d MiB", size, took>>20)
		if err != nil || s.puts.Load() != volume/size || took > 64<<20 || took <= 0 {
			t.Errorf("blocks of %d: %d bytes for %d blocks, %v", size, took, s.puts.Load(), err)
		}
	}
}

// file is a target.
type file struct{ *os.File }

func (f file) ZeroAt(offset, length int64) error {
	_, err := f.WriteAt(make([]byte, length), offset)
	return err
}

// BenchmarkDirectory backs up and restores 1 GiB that cannot be compressed, in the clear and
// encrypted, beside a copy of it.
func BenchmarkDirectory(b *testing.B) {
	const size = 1 << 30
	m, work := newMade(size), b.TempDir()
	plain := filepath.Join(work, "plain")
	out, err := os.Create(plain)
	if err != nil {
		b.Fatal(err)
	}
	part := make([]byte, block)
	for at := int64(0); at < size; at += block {
		if err := m.ReadAt(b.Context(), part, at); err != nil {
			b.Fatal(err)
		}
		if _, err := out.Write(part); err != nil {
			b.Fatal(err)
		}
	}
	if err := out.Sync(); err != nil {
		b.Fatal(err)
	}
	target := func() file {
		f, err := os.Create(filepath.Join(work, "target"))
		if err != nil {
			b.Fatal(err)
		}
		return file{f}
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			f := target()
			if _, err := io.Copy(f, io.NewSectionReader(out, 0, size)); err != nil || f.Sync() != nil || f.Close() != nil {
				b.Fatal(err)
			}
		}
	})
	store := func(n int) *directory.Store {
		dir := filepath.Join(work, fmt.Sprint("store", n))
		if err := os.RemoveAll(filepath.Join(work, fmt.Sprint("store", n-1))); err != nil {
			b.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		s, err := directory.Open(dir, "vfs://"+dir)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	n := 0
	for _, keys := range []encryption.Keys{{}, withKeys(1)} {
		form := ""
		if keys.Current != nil {
			form = ", encrypted"
		}
		b.Run("backup"+form, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				n++
				o := backup.CreateOptions{Volume: name, Backup: "b1", Snapshot: "s1", Keys: keys}
				if _, err := backup.Create(b.Context(), store(n), m, o); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("restore"+form, func(b *testing.B) {
			b.SetBytes(size)
			s := store(n)
			for b.Loop() {
				f := target()
				_, err := backup.Restore(b.Context(), s, f, backup.RestoreOptions{Volume: name, Backup: "b1", Keys: keys})
				if err != nil || f.Sync() != nil || f.Close() != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
