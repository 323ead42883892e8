package chain_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// The chain against a model that keeps every version of the volume as plain bytes.

type model struct {
	*world
	head []byte
	// snaps holds every snapshot's content, sums its sum.
	snaps map[string][]byte
	sums  map[string][32]byte
	// removed are snapshots marked for purge.
	removed map[string]bool
	next    int
}

const modelSize = 32 << 10

func TestChainAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := memdisk.New()
		w := &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
		w.must(chain.Create(fs, w.dir, testSpec(modelSize), w.opts))
		w.open()
		m := &model{world: w, head: make([]byte, modelSize), snaps: map[string][]byte{}, sums: map[string][32]byte{},
			removed: map[string]bool{}}
		rt.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"write":    m.opWrite,
			"zero":     m.opZero,
			"discard":  m.opDiscard,
			"snapshot": m.opSnapshot,
			"expand":   m.opExpand,
			"remove":   m.opMarkRemoved,
			"revert":   m.opRevert,
			"trim":     func(*rapid.T) { m.must(trimAll(m.world)) },
			"purge":    m.opPurge,
			"reopen":   func(*rapid.T) { m.reopen() },
			"handover": m.opHandOver,
			"copy":     func(*rapid.T) { m.must(m.c.CopyMeta()) },
			"crash":    m.opCrash,
			"hash":     m.opHash,
			"verify":   m.opVerify,
		})
		m.must(m.c.Close())
		if n := m.mem().OpenFiles(); n != 0 {
			rt.Fatalf("%d files left open", n)
		}
	})
}

func (m *model) drawRange(t *rapid.T) (off, n int64) {
	sectors := int64(len(m.head)) / 512
	first := rapid.Int64Range(0, sectors-1).Draw(t, "first")
	return first * 512, rapid.Int64Range(1, min(sectors-first, 40)).Draw(t, "sectors") * 512
}

func (m *model) opWrite(t *rapid.T) {
	off, n := m.drawRange(t)
	b := rapid.Byte().Draw(t, "byte")
	m.fill(off, n, b)
	copy(m.head[off:], bytes.Repeat([]byte{b}, int(n)))
}

func (m *model) opZero(t *rapid.T) {
	off, n := m.drawRange(t)
	m.zero(off, n)
	clear(m.head[off : off+n])
}

func (m *model) opDiscard(t *rapid.T) {
	off, n := m.drawRange(t)
	m.must(m.c.Discard(off, n))
	if first, end := (off+4095)/4096*4096, (off+n)/4096*4096; first < end {
		clear(m.head[first:end])
	}
}

func (m *model) opSnapshot(t *rapid.T) {
	m.next++
	name := fmt.Sprint("s", m.next)
	m.snapshot(name)
	m.remember(name)
}

func (m *model) remember(name string) {
	m.snaps[name] = bytes.Clone(m.head)
	m.sums[name] = sha256.Sum256(m.head)
}

func (m *model) opRevert(t *rapid.T) {
	if m.next == 0 {
		t.Skip("no snapshot")
	}
	name := fmt.Sprint("s", rapid.IntRange(1, m.next).Draw(t, "snapshot"))
	err := m.c.Revert(name, "")
	switch content := m.snaps[name]; {
	case content == nil:
		wantErr(m.t, err, chain.ErrNotFound)
	case m.removed[name]:
		wantErr(m.t, err, chain.ErrInvalid)
	default:
		m.must(err)
		clear(m.head)
		copy(m.head, content)
	}
}

// opPurge purges while other things happen in between.
func (m *model) opPurge(t *rapid.T) {
	p, err := m.c.NewPurge()
	m.must(err)
	for name := range m.snaps {
		if strings.HasPrefix(name, "expand-") {
			m.removed[name] = true
		}
	}
	for step, more := p.Next(); more; step, more = p.Next() {
		for done := false; !done; {
			done, err = workStep(m.c, p, &step)
			m.must(err)
			m.opWrite(t)
		}
		m.must(finishStep(m.c, p, &step))
	}
	if got := p.Progress(); got != 100 {
		t.Fatalf("a purge that is done is at %d percent", got)
	}
	list, err := m.c.Snapshots()
	m.must(err)
	left := map[string]bool{}
	for _, s := range list {
		left[s.Name] = true
		if s.Removed && len(s.Children) < 2 && s.Children[0] != chain.HeadName {
			t.Fatalf("%+v is still there", s)
		}
	}
	for name := range m.removed {
		if !left[name] {
			delete(m.removed, name)
			delete(m.snaps, name)
		}
	}
}

func (m *model) opExpand(t *rapid.T) {
	if len(m.head) >= 4*modelSize {
		t.Skip("large enough")
	}
	size := len(m.head) + 4096*rapid.IntRange(1, 5).Draw(t, "blocks")
	m.must(m.c.Expand(int64(size), ""))
	m.remember(fmt.Sprint("expand-", size))
	m.head = append(m.head, make([]byte, size-len(m.head))...)
}

func (m *model) opMarkRemoved(t *rapid.T) {
	if m.next == 0 {
		t.Skip("no snapshot")
	}
	name := fmt.Sprint("s", rapid.IntRange(1, m.next).Draw(t, "snapshot"))
	if m.snaps[name] == nil {
		wantErr(m.t, m.c.MarkRemoved(name), chain.ErrNotFound)
		return
	}
	m.must(m.c.MarkRemoved(name))
	m.removed[name] = true
}

// opHash computes a snapshot's checksums; the independent reader looks whether they are right for
// as long as they hold.
func (m *model) opHash(t *rapid.T) {
	if m.next == 0 {
		t.Skip("no snapshot")
	}
	name := fmt.Sprint("s", rapid.IntRange(1, m.next).Draw(t, "snapshot"))
	r, err := m.c.Hash(name, rapid.Bool().Draw(t, "rehash"), hashedAt)
	if m.snaps[name] == nil {
		wantErr(m.t, err, chain.ErrNotFound)
		return
	}
	if m.must(err); r.Corrupted {
		t.Fatalf("%s: %+v", name, r)
	}
}

// opVerify: whatever has happened, nothing that nobody damaged is ever seen as rotten.
func (m *model) opVerify(t *rapid.T) {
	for name := range m.snaps {
		if m.removed[name] {
			continue
		}
		v := m.view(name)
		verdict, rot, err := v.Verify(0, v.Size())
		if m.must(err); verdict == chain.VerdictRotten {
			t.Fatalf("%s: %+v", name, rot)
		}
		m.must(v.Close())
	}
}

func (m *model) opCrash(t *rapid.T) {
	m.must(m.c.Sync())
	m.fs = m.mem().Crash(rapid.Uint64().Draw(t, "seed"))
	m.open()
}

func (m *model) check(t *rapid.T) {
	got := m.read(0, m.c.Size())
	if !bytes.Equal(got, m.head) {
		i := 0
		for i < len(m.head) && got[i] == m.head[i] {
			i++
		}
		t.Fatalf("the head of %d bytes reads other content than was written, first at %d: %#x, not %#x", len(m.head), i,
			got[i], m.head[i])
	}
	for name, want := range m.sums {
		if m.snaps[name] == nil || m.removed[name] {
			continue
		}
		if sum, err := m.c.HashAt(name); err != nil || sum != want {
			t.Fatalf("snapshot %s has other content (%v)", name, err)
		}
	}
	list, err := m.c.Snapshots()
	m.must(err)
	if len(list) != len(m.snaps)+1 {
		t.Fatalf("%d layers listed, want %d", len(list), len(m.snaps)+1)
	}
	for _, s := range list {
		if s.Removed != m.removed[s.Name] {
			t.Fatalf("%+v, but removed is %v", s, m.removed[s.Name])
		}
	}
	raw, err := readRaw(m.fs, m.dir, false)
	m.must(err)
	if theirs, err := raw.Content(raw.Head); err != nil || !bytes.Equal(theirs, m.head) {
		t.Fatalf("the independent reader sees other content (%v)", err)
	}
}
