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

// faultyModel is a pieceModel on a disk that fails now and then, in the middle of anything.
type faultyModel struct {
	*pieceModel
	rule memdisk.Rule
	held []heldView
}

// heldView is a snapshot that a reader has open, with what it is to read.
type heldView struct {
	v    *chain.View
	on   *chain.Chain
	name string
	want [pieceSlots]byte
}

func (m *faultyModel) hold(t *rapid.T) {
	alive := slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { return m.marked[name] })
	if len(alive) == 0 || len(m.held) > 2 {
		t.Skip("no snapshot")
	}
	name := rapid.SampledFrom(alive).Draw(t, "snapshot")
	v := m.view(name)
	v.Pin()
	m.held = append(m.held, heldView{v, m.c, name, m.snaps[name]})
}

func (m *faultyModel) drop(t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip("none")
	}
	m.must(m.held[0].v.Close())
	m.held = m.held[1:]
}

// checkHeld reads what readers have open; those of a process that has ended are closed.
func (m *faultyModel) checkHeld(t *rapid.T) {
	m.held = slices.DeleteFunc(m.held, func(h heldView) bool {
		if h.on != m.c {
			m.must(h.v.Close())
			return true
		}
		return false
	})
	for _, h := range m.held {
		for i, want := range h.want {
			if got := m.slot(i, h.v.ReadAt); got != want {
				t.Fatalf("slot %d of the view of %s is %d, not %d", i, h.name, got, want)
			}
		}
	}
}

// attempt is a request that may fail: err is how it ended, again what its user does then.
type attempt struct {
	err   error
	again func()
}

// errEnds ends the process of a replica.
var errEnds = errors.New("the replica ends")

// Whatever fails, a replica that goes on and one that is started again read what they should, and
// what a request that has failed left is known to the block map.
func TestPiecesOnAFailingDisk(t *testing.T) {
	runs, failed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		w := &world{t: t, fs: memdisk.New(), dir: "/r", opts: testOptions()}
		w.must(chain.Create(w.fs, w.dir, testSpec(pieceSlots*slotSize), w.opts))
		w.open()
		m := &faultyModel{pieceModel: &pieceModel{world: w, snaps: map[string][pieceSlots]byte{}, marked: map[string]bool{}}}
		m.must(m.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
		for _, every := range []int{1, 2, 3} {
			for i := 0; i < pieceSlots; i += every {
				m.put(i, byte(every))
			}
			m.discard(rt)
			m.snap(rt)
		}
		m.mark(rt)
		fails := func(op func(t *rapid.T) attempt) func(t *rapid.T) {
			return func(t *rapid.T) {
				if m.fails(t, op) {
					failed++
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":     func(t *rapid.T) { m.checkHead(t); m.checkHeld(t) },
			"hold": m.hold, "drop": m.drop, "write": m.write, "discard": m.discard, "snap": m.snap, "mark": m.mark,
			"purge": m.purgePiece, "purge2": m.purgePiece, "purge3": m.purgePiece, "leave": m.leaveSomehow,
			"write fails": fails(m.writeFails), "zeroes fail": fails(m.zeroesFail), "discard fails": fails(m.discardFails),
			"snapshot fails": fails(m.snapFails), "mark fails": fails(m.markFails), "repair fails": fails(m.repairFails),
			"purge fails": fails(m.purgeFails), "purge fails too": fails(m.purgeFails),
			"revert": m.revert, "revert fails": fails(m.revertFails),
			"flush fails": fails(func(*rapid.T) attempt { return attempt{m.c.Sync(), func() {}} }),
		})
		m.checkSnapshots(rt)
		m.leave(m.c.Close())
		m.checkHead(rt)
		m.checkSnapshots(rt)
		m.must(m.c.Close())
	})
	// 20 runs have between 3 and 30, so that one in 20 is never too few.
	if failed < runs/20 {
		t.Errorf("nothing was tried: %d requests failed in %d runs", failed, runs)
	}
}

// fails carries op out with a fault somewhere on the way, ends the process if a replica would, and
// lets the user try again.
func (m *faultyModel) fails(t *rapid.T, op func(t *rapid.T) attempt) bool {
	kinds := []memdisk.Op{memdisk.OpWrite, memdisk.OpWrite, memdisk.OpPunch, memdisk.OpSync, memdisk.OpCreate,
		memdisk.OpRename, memdisk.OpLink, memdisk.OpRemove, memdisk.OpTruncate, memdisk.OpSyncDir, memdisk.OpOpen,
		memdisk.OpStat, memdisk.OpExtents}
	m.rule = memdisk.Rule{Op: rapid.SampledFrom(kinds).Draw(t, "op"), Skip: rapid.IntRange(0, 5).Draw(t, "skip"),
		Times: 1, Err: disk.ErrIO}
	if rapid.Bool().Draw(t, "full") && m.rule.Op != memdisk.OpSync && m.rule.Op != memdisk.OpSyncDir {
		m.rule.Err = disk.ErrNoSpace
	}
	m.rule.Partial = m.rule.Op == memdisk.OpWrite && rapid.Bool().Draw(t, "partial")
	defer m.mem().ClearRules() // op may skip
	m.mem().Inject(m.rule)
	a := op(t)
	m.mem().ClearRules()
	if errors.Is(a.err, errEnds) || m.c.State() == chain.StateError {
		m.must(m.c.Abandon())
		m.leave(nil)
		m.lookAgain()
	}
	a.again()
	return a.err != nil
}

// lookAgain finds out what has become of requests that were not answered.
func (m *faultyModel) lookAgain() {
	list, err := m.c.Snapshots()
	m.must(err)
	for _, s := range list {
		if s.Name == chain.HeadName {
			continue
		}
		m.marked[s.Name] = s.Removed
		if !slices.Contains(m.order, s.Name) {
			m.order = append(m.order, s.Name)
			m.snaps[s.Name] = m.head
		}
	}
}

// remap is what a replica does when a request to the head has failed.
func (m *faultyModel) remap(off int64, err error) error {
	if lost := m.c.Remap(off, 4096); lost != nil {
		return errors.Join(err, errEnds)
	}
	m.must(m.c.CheckMap())
	return err
}

func (m *faultyModel) writeFails(t *rapid.T) attempt {
	i, b := m.drawSlot(t), rapid.Byte().Draw(t, "byte")
	off := int64(i) * slotSize
	_, err := m.byHandle(m.c.HeadHandle()).WriteAt(bytes.Repeat([]byte{b}, 4096), off)
	if err != nil {
		err = m.remap(off, err)
	} else {
		m.c.MarkWritten(off, 4096)
	}
	return attempt{err, func() { m.put(i, b) }}
}

func (m *faultyModel) zeroesFail(t *rapid.T) attempt {
	i := m.drawSlot(t)
	off := int64(i) * slotSize
	again := func() {
		m.zero(off, 4096)
		m.head[i] = 0
	}
	f := m.byHandle(m.c.HeadHandle())
	for _, z := range m.c.ZeroPlan(off, 4096, nil) {
		var err error
		if z.Punch {
			err = f.Punch(z.Off, z.Len)
		} else {
			_, err = f.WriteAt(make([]byte, z.Len), z.Off)
		}
		switch {
		case err != nil:
			return attempt{m.remap(off, err), again}
		case z.Punch:
			m.c.MarkPunched(z.Off, z.Len)
		default:
			m.c.MarkWritten(z.Off, z.Len)
		}
	}
	return attempt{nil, again}
}

func (m *faultyModel) discardFails(t *rapid.T) attempt {
	i := m.drawSlot(t)
	off := int64(i) * slotSize
	return attempt{m.replicaDiscards(off), func() {
		m.must(m.replicaDiscards(off))
		m.head[i] = 0
	}}
}

// replicaDiscards does what a replica does for a discard of one block.
func (m *faultyModel) replicaDiscards(off int64) error {
	plan := m.c.DiscardPlan(off, 4096, nil)
	if len(plan) == 0 {
		return nil
	}
	for want, missing := m.c.WhiteoutsWanted(plan); missing; want, missing = m.c.WhiteoutsWanted(plan) {
		room, err := m.c.WhiteoutRoom(want)
		if err != nil {
			return err
		}
		m.c.TakeRoom(room)
	}
	z := plan[0]
	hidden := func() {
		if z.Whiteout && !z.Punch {
			m.c.MarkHidden(z.Off, z.Len)
		}
	}
	if z.Whiteout {
		m.c.SetWhiteouts(z.Off, z.Len, true)
		if w := m.c.PendingWhiteouts(z.Punch); w != nil {
			err := w.Do()
			m.c.WhiteoutsWritten(w, err)
			if err != nil && w.Synced() {
				return errors.Join(err, errEnds)
			} else if err != nil {
				hidden()
				return err
			}
		}
	}
	if z.Punch {
		if err := m.byHandle(m.c.HeadHandle()).Punch(z.Off, z.Len); err != nil {
			hidden()
			return m.remap(off, err)
		}
	}
	if z.Whiteout {
		m.c.MarkHidden(z.Off, z.Len)
	} else {
		m.c.MarkPunched(z.Off, z.Len)
	}
	return nil
}

func (m *faultyModel) snapFails(t *rapid.T) attempt {
	if len(m.order) > 5 {
		t.Skip("enough snapshots")
	}
	m.next++
	name := fmt.Sprint("s", m.next)
	err := m.c.Snapshot(name, true, "2026-11-21T08:00:00Z", nil)
	ended := m.c.State() == chain.StateError
	return attempt{err, func() {
		m.lookAgain()
		if made := slices.Contains(m.order, name); made != (err == nil) && !ended {
			t.Fatalf("a snapshot ended with %v, and is there %v", err, made)
		}
	}}
}

func (m *faultyModel) markFails(t *rapid.T) attempt {
	if len(m.order) == 0 {
		t.Skip("no snapshot")
	}
	err := m.c.MarkRemoved(rapid.SampledFrom(m.order).Draw(t, "snapshot"))
	return attempt{err, m.lookAgain}
}

func (m *faultyModel) purgeFails(*rapid.T) attempt {
	var err error
	switch {
	case m.purge == nil:
		m.purge, err = m.c.NewPurge()
	case m.step == nil:
		step, more := m.purge.Next()
		if !more {
			m.purge = nil
			return attempt{nil, func() {}}
		}
		m.step, m.done = &step, false
	case !m.done:
		m.done, err = workStep(m.c, m.purge, m.step)
	default:
		err = finishStep(m.c, m.purge, m.step)
		m.step = nil
	}
	if err != nil {
		m.step = nil
		if !errors.Is(err, chain.ErrInvalid) {
			m.purge = nil
		}
	}
	return attempt{err, m.forgetPurged}
}

// repairFails lets a block rot in a snapshot's file, if that holds it, and repairs it.
func (m *faultyModel) repairFails(t *rapid.T) attempt {
	m.mem().ClearRules() // what comes first is the test's
	alive := slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { return m.marked[name] })
	if len(alive) == 0 {
		t.Skip("no snapshot")
	}
	name, i := rapid.SampledFrom(alive).Draw(t, "snapshot"), m.drawSlot(t)
	if file := "/r/" + chain.SnapshotFile(name); m.holds(file, int64(i)*slotSize) {
		m.must(m.mem().Rot(file, int64(i)*slotSize, 1))
	}
	repair := func(name string) error {
		v, err := m.c.OpenView(name)
		if err != nil {
			return err
		}
		r, err := v.Repair(int64(i)*slotSize, bytes.Repeat([]byte{m.snaps[name][i]}, 4096))
		for _, h := range m.held {
			h.v.Blocks.Repaired(r)
		}
		return errors.Join(err, v.Close())
	}
	m.mem().Inject(m.rule)
	return attempt{repair(name), func() {
		for _, name := range alive { // the oldest first
			m.must(repair(name))
		}
	}}
}

func (m *faultyModel) revert(t *rapid.T) { m.must(m.revertFails(t).err) }

func (m *faultyModel) revertFails(t *rapid.T) attempt {
	alive := slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { return m.marked[name] })
	if len(alive) == 0 {
		t.Skip("no snapshot")
	}
	name := rapid.SampledFrom(alive).Draw(t, "snapshot")
	revert := func() (err error) {
		if err = m.c.Revert(name, "2026-11-21T08:00:00Z"); err == nil {
			m.head = m.snaps[name]
		}
		return err
	}
	err := revert()
	return attempt{err, func() {
		if err != nil {
			m.must(revert())
		}
	}}
}
