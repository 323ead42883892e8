package fuseloop

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// This file is the journal's part of a Frontend: where requests lie, and what becomes of those that
// a predecessor has left.
//
// A request stays in the small cell that it was received in until its answer is accepted. Before
// its data may be overwritten, and so before it is answered, its result is noted. So of what a
// successor finds, requests without a result were never answered: they are carried out, again
// perhaps, and nothing that was sent after an answer can be behind them. Those with a result may
// have been answered: they are answered so again, which the kernel refuses if it was, and never
// carried out: something that their user sent after the answer would be overwritten. Reads are
// carried out again in either case.
//
// The kernel that is stopped in the middle of handing a request out fails it. What lies in the cell
// then is not whole. So of a request that nobody has said to be whole, the kernel is asked whether
// it waits for an answer.

// recovery is the part of a Frontend that knows the journal.
type recovery struct {
	small, large loop.Pool
	// current is the cell of the request that is being taken in.
	current loop.Buf
	// left are requests of a predecessor that are not under way again yet.
	left []leftover
	// probing: the kernel is being asked about the first of them.
	probing bool
}

// leftover is a request of a predecessor in its cells.
type leftover struct {
	intake
	journal.Entry
}

// openJournal takes the journal's cells into the arena, and those out of it that a predecessor has
// requests in.
func (f *Frontend) openJournal() {
	j := f.cfg.Journal
	if j == nil {
		return
	}
	f.recovery.small, f.recovery.large = j.Attach(f.cfg.Arena)
	if !f.cfg.Resume {
		j.Clear()
		return
	}
	for _, e := range j.Inherit() {
		l := leftover{Entry: e}
		l.intake.small = f.claim(f.recovery.small, e.Small)
		if e.Large >= 0 {
			l.intake.large = f.claim(f.recovery.large, e.Large)
		}
		f.left = append(f.left, l)
	}
}

// claim takes a cell; each is claimed once, since the journal was checked.
func (f *Frontend) claim(p loop.Pool, i int) loop.Buf {
	b, ok := f.cfg.Arena.ClaimPool(p, i)
	if !ok {
		panic("fuse: a cell of the journal is in use already")
	}
	return b
}

// cell returns a buffer to receive in.
func (f *Frontend) cell(n int) (loop.Buf, bool) {
	switch {
	case f.cfg.Journal == nil:
		return f.cfg.Arena.Get(n)
	case n <= smallSize:
		return f.cfg.Arena.GetPool(f.recovery.small)
	}
	return f.cfg.Arena.GetPool(f.recovery.large)
}

// offer notes that the kernel may fill an intake.
func (f *Frontend) offer(r *intake) {
	if j := f.cfg.Journal; j != nil {
		j.Offer(loop.PoolIndex(r.small), loop.PoolIndex(r.large))
	}
}

// enter notes that an intake holds a whole request, leave that it has a slot or is answered. The
// request takes the small cell along.
func (f *Frontend) enter(r *intake) {
	if j := f.cfg.Journal; j != nil {
		f.current = r.small
		j.Take(loop.PoolIndex(r.small))
	}
}

func (f *Frontend) leave(r *intake) {
	if f.cfg.Journal == nil {
		return
	}
	if r.small == 0 {
		f.cfg.Arena.Retain(f.current) // it is the request's buffer too
	}
	r.small, f.current = 0, 0
}

// finish notes a request's result, before its data may be overwritten. A read is carried out again
// instead.
func (f *Frontend) finish(r *request, errno int32) {
	if r.cell != 0 && r.kind != block.Read {
		f.cfg.Journal.Finish(loop.PoolIndex(r.cell), errno)
	}
}

// forgetCell notes that a cell holds no request any more.
func (f *Frontend) forgetCell(cell loop.Buf) {
	if f.cfg.Journal != nil && cell != 0 {
		f.cfg.Journal.Free(loop.PoolIndex(cell))
	}
}

// recover puts requests of a predecessor under way, as far as there is room. Those with a large
// cell come first, so that the others find one: with it no request needs more memory than it has.
func (f *Frontend) recover(reqs *[]frontend.Request, out *[]loop.Op) {
	if f.answers == 0 {
		return
	}
	for len(f.left) > 0 && len(f.free) > 0 && !f.probing && !f.gone && !f.closing {
		l := &f.left[0]
		if l.State == journal.Receiving {
			f.probe(l.Unique, out)
			return
		}
		if l.intake.large == 0 {
			var ok bool
			if l.intake.large, ok = f.cell(block.MaxTransfer); !ok {
				return
			}
		}
		if l.State == journal.Done && f.repeats(l) {
			f.repeat(l, out)
		} else {
			f.message(&l.intake, l.Len, reqs, out)
		}
		f.next()
	}
}

// next ends with the first leftover: what it still has of its cells is free.
func (f *Frontend) next() {
	f.drop(&f.left[0].intake)
	f.left = f.left[1:]
}

// probe asks the kernel whether it waits for the answer to a request: a message that answers its
// interruption, of which there was none, is taken if it does, and refused if it does not.
func (f *Frontend) probe(unique uint64, out *[]loop.Op) {
	f.probing = true
	slot := f.take(0)
	putOut(f.answerBytes(slot), outHeader, 0, unique|interruptBit)
	f.send(slot, loop.Seg{Buf: f.answers, Off: int32(slot) * answerSize, Len: outHeader}, out)
	(*out)[len(*out)-1].Tag = f.tag(tagProbe, int(slot))
}

// probed takes the kernel's answer. A request that it does not wait for was answered, or failed
// before it was whole.
func (f *Frontend) probed(slot uint32, waits bool) {
	f.release(slot)
	f.probing = false
	switch {
	case len(f.left) == 0:
	case waits:
		f.left[0].State = journal.Taken
	default:
		f.next()
	}
}

// head is the request as far as it lies in the small cell.
func (f *Frontend) head(l *leftover) []byte {
	return f.cfg.Arena.Seg(loop.Seg{Buf: l.intake.small, Off: -requestHeader,
		Len: int32(min(l.Len, requestHeader+smallSize))})
}

// repeats tells whether a result is all there is to an answer.
func (f *Frontend) repeats(l *leftover) bool {
	switch ne.Uint32(f.head(l)[4:]) {
	case opWrite:
		return l.Len >= requestHeader
	case opFsync, opFallocate:
		return true
	}
	return false
}

// repeat answers with the result that a predecessor has noted.
func (f *Frontend) repeat(l *leftover, out *[]loop.Op) {
	write := ne.Uint32(f.head(l)[4:]) == opWrite
	f.current = l.intake.small
	slot := f.take(l.Unique)
	f.leave(&l.intake)
	n := 0
	if write && l.Errno == 0 {
		n = writeOut
		p := f.answerBytes(slot)
		ne.PutUint32(p[outHeader:], uint32(l.Len-requestHeader))
		ne.PutUint32(p[outHeader+4:], 0)
	}
	f.answer(slot, l.Errno, n, out)
}

// abandon releases what was left, when the connection has ended.
func (f *Frontend) abandon() {
	for len(f.left) > 0 {
		f.next()
	}
}
