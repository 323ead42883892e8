package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/disk/osdisk"
)

// flip is a change that says where the piece is: what is moved to another place is not the same.
func flip(p []byte, off int64) {
	for i := range p {
		if block := p[i/512*512 : i/512*512+512]; i%512 == 0 && !bytes.Equal(block, make([]byte, 512)) {
			p[i] ^= byte(1 + (off+int64(i))/512%255)
		}
	}
}

// written is a file that was written at any place.
func written(t *testing.T, d *Disk, p backingimage.Paths, content []byte) *Making {
	t.Helper()
	m, err := d.Create(p, id.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Resize(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if err := m.SetHead(bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMove: the content is at another place, changed; and back, as it was, with its holes.
func TestMove(t *testing.T) {
	t.Parallel()
	for _, n := range []int{512, 4096, 1<<20 - 512, 1 << 20, 3<<20 + 1024, 8 << 20} {
		for _, by := range []int64{1 << 20, 1<<20 + 4096, 3 << 20, 16 << 20} {
			name := fmt.Sprintf("%d bytes by %d", n, by)
			d := onDisk(t, osdisk.New(nil), t.TempDir())
			p, want := backingimage.InSource(d.Root(), id), image(n)
			m := written(t, d, p, want)
			var last int64
			told := func(done int64) error {
				if done <= last || done > int64(n) {
					t.Errorf("%s: %d after %d", name, done, last)
				}
				last = done
				return nil
			}
			head := bytes.Repeat([]byte("head"), int(by)/4)
			if err := errors.Join(m.Move(by, flip, told), m.SetHead(bytes.NewReader(head), by)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			changed := bytes.Clone(want)
			flip(changed, 0)
			sum, size, info, err := m.Inspect(nil)
			if err != nil || sum != sumOf(append(bytes.Clone(head), changed...)) || size != int64(n)+by || info != raw {
				t.Errorf("%s: %d bytes of another content, %+v, %v", name, size, info, err)
			}
			var got bytes.Buffer
			if err := m.Head(&got, by); err != nil || !bytes.Equal(got.Bytes(), head) {
				t.Errorf("%s: another head, %v", name, err)
			}
			last = 0
			if err := m.Move(-by, flip, told); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r, err := m.PublishRead(sumOf(want), nil)
			if err != nil || !bytes.Equal(contentOf(t, d, p), want) {
				t.Errorf("%s and back: another content, %v", name, err)
			}
			if n == 8<<20 && r.RealSize > int64(n)*7/8 {
				t.Errorf("%s and back: holes are gone: it takes %d bytes", name, r.RealSize)
			}
		}
	}
}

// TestMoveEnds: an error ends it, and nothing is left.
func TestMoveEnds(t *testing.T) {
	t.Parallel()
	d := onDisk(t, osdisk.New(nil), t.TempDir())
	p := backingimage.InSource(d.Root(), id)
	for _, by := range []int64{1 << 20, -1 << 20} {
		m := written(t, d, p, image(4<<20))
		enough := errors.New("enough")
		if err := m.Move(by, flip, func(int64) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("%d: %v", by, err)
		}
		if err := m.Abort(); err != nil {
			t.Error(err)
		}
	}
	m := written(t, d, p, image(1<<20))
	if err := m.Move(-2<<20, flip, func(int64) error { return nil }); err == nil {
		t.Error("more is cut off than there is")
	}
	if err := m.Head(&bytes.Buffer{}, 2<<20); err == nil {
		t.Error("more is read than there is")
	}
	if err := m.Abort(); err != nil {
		t.Error(err)
	}
	if _, ok, err := d.Look(id, p); ok || err != nil {
		t.Errorf("something is left, %v", err)
	}
}
