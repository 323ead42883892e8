package engine

import (
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// The engine's memory is divided by purpose, so that no purpose can take what another one needs to
// go on: docs/design/memory.md has the parts, who waits for each, and why every wait ends.

// Parts of the arena, as shares of its budget. Each has room for one block.MaxTransfer at least:
// with that everybody gets a turn.
const (
	edgesShare     = 32
	transfersShare = 16
	importsShare   = 32
	// leastPart is the least that a part with buffers of any size can be.
	leastPart = 1 << 20
	// MinArena is the smallest budget that an engine can work with: every part at its least,
	// connections, clients of a frontend, and requests of 1 MiB one after the other.
	MinArena = 16 << 20
)

// memory hands out what the arena has for each purpose.
type memory struct {
	untimed
	e *Engine

	edges, transfers, imports, outsides bufferQueue
}

// setAside divides the arena. What is left over is for requests.
func (m *memory) setAside() {
	a := m.e.arena
	share := func(n int) int { return max(leastPart, a.Budget()/n) }
	m.edges.purpose, m.transfers.purpose, m.imports.purpose = loop.Edges, loop.Transfers, loop.Imports
	a.SetAside(loop.Connections, (maxLinks+maxSources)*wire.ConnMemory)
	a.SetAside(loop.Edges, share(edgesShare))
	a.SetAside(loop.Transfers, share(transfersShare))
	a.SetAside(loop.Imports, share(importsShare))
}

// bufferQueue hands out the buffers of one purpose, in the order in which they are asked for.
type bufferQueue struct {
	purpose loop.Purpose
	waiting []bufferAsk
}

type bufferAsk struct {
	n   int64
	use func(seg loop.Seg)
}

// buffer calls use with a buffer of n bytes, at once or at the end of the step in which there is
// one. Who has got one gives it back without waiting for anything but replicas, which answer or are
// dropped; so whoever waits gets one.
func (m *memory) buffer(q *bufferQueue, n int64, use func(seg loop.Seg)) {
	q.waiting = append(q.waiting, bufferAsk{n, use})
	m.handOut(q)
}

// handOut hands out what there is, and reports whether that was anything.
func (m *memory) handOut(q *bufferQueue) (some bool) {
	for len(q.waiting) > 0 {
		w := q.waiting[0]
		b, ok := m.e.arena.GetFor(q.purpose, int(w.n))
		if !ok {
			return some
		}
		some = true
		q.waiting = q.waiting[1:]
		w.use(loop.Seg{Buf: b, Len: int32(w.n)})
	}
	return some
}

// step hands out what was given back: that is done in steps only.
func (m *memory) step() {
	for m.handOut(&m.edges) || m.handOut(&m.transfers) || m.handOut(&m.imports) || m.handOut(&m.outsides) {
	}
}
