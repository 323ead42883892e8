package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// pieceModel is a chain whose operations go on in pieces, in any order: what a replica's queue of
// metadata operations may make of the requests of several sessions. A volume's content is one byte
// for each of its slots, the first block of each piece of a merge, so that merges take several
// pieces and little is read.
type pieceModel struct {
	*world
	head  [pieceSlots]byte
	snaps map[string][pieceSlots]byte
	// order has all snapshots, oldest first; marked are to be purged.
	order  []string
	marked map[string]bool
	next   int
	purge  *chain.Purge
	step   *chain.PurgeStep
	done   bool
	hash   *chain.Hash
}

const (
	pieceSlots = 72 // two full pieces of a merge and a bit
	slotSize   = chain.SumPiece
)

// Nothing that was acknowledged, taken or repaired is lost, whatever pieces of whatever operations
// come in between.
func TestPiecesInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: t, fs: memdisk.New(), dir: "/r", opts: testOptions()}
		w.must(chain.Create(w.fs, w.dir, testSpec(pieceSlots*slotSize), w.opts))
		w.open()
		m := &pieceModel{world: w, snaps: map[string][pieceSlots]byte{}, marked: map[string]bool{}}
		m.must(m.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
		// Something to merge and to repair, in every slot of which a merge may be stopped.
		for _, every := range []int{1, 2, 3} {
			for i := 0; i < pieceSlots; i += every {
				m.put(i, byte(every))
			}
			m.discard(rt)
			m.snap(rt)
		}
		m.mark(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":        m.checkHead,
			"write":   m.write,
			"zero":    m.zeroSlot,
			"discard": m.discard,
			"failed":  m.failedWrite,
			"snap":    m.snap,
			"mark":    m.mark,
			"repair":  m.repair,
			// Often, so that purges get somewhere.
			"purge": m.purgePiece, "purge2": m.purgePiece, "purge3": m.purgePiece, "purge4": m.purgePiece,
			"purge5": m.purgePiece,
			"hash":   m.hashPiece,
			"leave":  m.leaveSomehow,
		})
		m.checkSnapshots(rt)
		m.leave(m.c.Close())
		m.checkHead(rt)
		m.checkSnapshots(rt)
		m.must(m.c.Close())
	})
}

func (m *pieceModel) drawSlot(t *rapid.T) int { return rapid.IntRange(0, pieceSlots-1).Draw(t, "slot") }

func (m *pieceModel) put(i int, b byte) {
	m.fill(int64(i)*slotSize, 4096, b)
	m.head[i] = b
}

func (m *pieceModel) write(t *rapid.T) { m.put(m.drawSlot(t), rapid.Byte().Draw(t, "byte")) }

func (m *pieceModel) zeroSlot(t *rapid.T) {
	i := m.drawSlot(t)
	m.zero(int64(i)*slotSize, 4096)
	m.head[i] = 0
}

func (m *pieceModel) discard(t *rapid.T) {
	i := m.drawSlot(t)
	for end := min(i+rapid.IntRange(1, 9).Draw(t, "slots"), pieceSlots); i < end; i++ {
		m.must(m.c.Discard(int64(i)*slotSize, 4096))
		m.head[i] = 0
	}
}

// failedWrite fails for want of space, after the block was written or before.
func (m *pieceModel) failedWrite(t *rapid.T) {
	i, b := m.drawSlot(t), rapid.Byte().Draw(t, "byte")
	look := m.c.Look(int64(i)*slotSize, 4096)
	if rapid.Bool().Draw(t, "written") {
		_, err := m.byHandle(m.c.HeadHandle()).WriteAt(bytes.Repeat([]byte{b}, 4096), int64(i)*slotSize)
		m.must(err)
		m.head[i] = b
	}
	found, err := look()
	m.must(err)
	if j := m.drawSlot(t); j != i { // the engine keeps the range of the failed write locked
		m.put(j, b)
	}
	m.c.Found(found)
}

func (m *pieceModel) snap(t *rapid.T) {
	if len(m.order) > 5 {
		t.Skip("enough snapshots")
	}
	m.next++
	name := fmt.Sprint("s", m.next)
	m.snapshot(name)
	m.snaps[name] = m.head
	m.order = append(m.order, name)
}

func (m *pieceModel) mark(t *rapid.T) {
	if len(m.order) == 0 {
		t.Skip("no snapshot")
	}
	name := rapid.SampledFrom(m.order).Draw(t, "snapshot")
	m.must(m.c.MarkRemoved(name))
	m.marked[name] = true
}

// purgePiece does what a replica does for one request: it begins, works or finishes, and plans
// again where the chain has changed.
func (m *pieceModel) purgePiece(t *rapid.T) {
	var err error
	switch {
	case m.purge == nil:
		m.purge, err = m.c.NewPurge()
		m.must(err)
	case m.step == nil:
		step, more := m.purge.Next()
		if !more {
			m.purge = nil
			return
		}
		m.step, m.done = &step, false
	case !m.done:
		m.done, err = workStep(m.c, m.purge, m.step)
	default:
		err = finishStep(m.c, m.purge, m.step)
		m.step = nil
		m.forgetPurged()
	}
	if err != nil {
		wantErr(m.t, err, chain.ErrInvalid)
		m.step = nil
	}
}

func (m *pieceModel) forgetPurged() {
	list, err := m.c.Snapshots()
	m.must(err)
	m.order = slices.DeleteFunc(m.order, func(name string) bool {
		gone := !slices.ContainsFunc(list, func(s chain.SnapshotInfo) bool { return s.Name == name })
		if gone && !m.marked[name] {
			m.t.Fatalf("%s is gone and was never marked", name)
		}
		return gone
	})
}

// repair lets a block rot that an unmarked snapshot reads, and repairs all of them, the oldest
// first, as a scrub does.
func (m *pieceModel) repair(t *rapid.T) {
	alive := slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { return m.marked[name] })
	if len(alive) == 0 {
		t.Skip("no snapshot")
	}
	name, i := rapid.SampledFrom(alive).Draw(t, "snapshot"), m.drawSlot(t)
	for at := slices.Index(m.order, name); at >= 0; at-- {
		file := "/r/" + chain.SnapshotFile(m.order[at])
		if m.holds(file, int64(i)*slotSize) {
			m.must(m.mem().Rot(file, int64(i)*slotSize, 1))
			break
		}
	}
	for _, name := range alive {
		v := m.view(name)
		_, err := v.Repair(int64(i)*slotSize, bytes.Repeat([]byte{m.snaps[name][i]}, 4096))
		m.must(err)
		m.must(v.Close())
	}
}

func (m *pieceModel) holds(file string, off int64) bool {
	f, err := m.fs.Open(file, disk.ReadOnly)
	m.must(err)
	defer f.Close() // only read
	extents, _, err := f.Extents(off, nil)
	m.must(err)
	return len(extents) > 0 && extents[0].Off <= off
}

func (m *pieceModel) hashPiece(t *rapid.T) {
	if m.hash == nil {
		if len(m.order) == 0 {
			t.Skip("no snapshot")
		}
		var err error
		if m.hash, err = m.c.NewHash(rapid.SampledFrom(m.order).Draw(t, "snapshot"), true); err != nil {
			wantErr(m.t, err, chain.ErrNotFound)
		}
		return
	}
	done, err := m.hash.Work()
	if err == nil && done {
		_, err = m.hash.Finish("2026-11-21T09:00:00Z")
	}
	if err != nil && !errors.Is(err, chain.ErrInvalid) {
		m.t.Fatal(err)
	}
	if err != nil || done {
		m.must(m.hash.Close())
		m.hash = nil
	}
}

// leaveSomehow ends the process in one of three ways, now and then: a purge begins anew after each.
func (m *pieceModel) leaveSomehow(t *rapid.T) {
	switch rapid.IntRange(0, 11).Draw(t, "how") {
	case 0:
		m.leave(m.c.Abandon())
	case 1:
		m.leave(m.c.Close())
	case 2:
		m.power(t)
	}
}

// leave opens the directory again, after it was closed or its process was killed.
func (m *pieceModel) leave(err error) {
	m.must(err)
	m.purge, m.step, m.hash = nil, nil, nil
	m.open()
	m.forgetPurged()
}

// power goes, right after a flush.
func (m *pieceModel) power(t *rapid.T) {
	m.must(m.c.Sync())
	fs := m.mem().Crash(rapid.Uint64().Draw(t, "outcome"))
	m.must(m.c.Abandon())
	m.fs = fs
	m.leave(nil)
}

func (m *pieceModel) slot(i int, readAt func(p []byte, off int64) (int, error)) byte {
	p := make([]byte, 4096)
	_, err := readAt(p, int64(i)*slotSize)
	m.must(err)
	if !bytes.Equal(p, bytes.Repeat(p[:1], 4096)) {
		m.t.Fatalf("slot %d is torn", i)
	}
	return p[0]
}

// checkHead comes after each operation, as does the copy of the metadata if there was time for it.
func (m *pieceModel) checkHead(t *rapid.T) {
	if m.c.MetaStale() && rapid.Bool().Draw(t, "copied") {
		m.must(m.c.CopyMeta())
	}
	m.must(m.c.CheckMap())
	for i, want := range m.head {
		if got := m.slot(i, m.c.ReadAt); got != want {
			t.Fatalf("slot %d of the head is %d, not %d", i, got, want)
		}
	}
}

func (m *pieceModel) checkSnapshots(t *rapid.T) {
	for _, name := range m.order {
		if m.marked[name] {
			continue
		}
		at, err := m.c.At(name)
		m.must(err)
		for i, want := range m.snaps[name] {
			if got := m.slot(i, at.ReadAt); got != want {
				t.Fatalf("slot %d of %s is %d, not %d", i, name, got, want)
			}
		}
		m.must(at.Close())
	}
}
