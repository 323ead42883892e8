package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// The replica's memory is divided by purpose, so that no purpose can take what another one needs to
// go on: docs/design/memory.md has the parts, who waits for each, and why every wait ends.

// Parts of the arena, as shares of its budget.
const (
	edgesShare   = 24
	readersShare = 12
	// MinArena is the smallest budget that a replica can work with: connections, zeroes, readers,
	// and two requests of 1 MiB, since a payload may be on its way while a read waits for its turn.
	MinArena = 8 << 20
)

// setAside divides the arena. What is left over is for the engine's requests.
func setAside(a *loop.Arena) {
	a.SetAside(loop.Connections, maxConns*wire.ConnMemory)
	a.SetAside(loop.Edges, max(4*block.Size, a.Budget()/edgesShare))
	a.SetAside(loop.Readers, max(block.MaxTransfer, a.Budget()/readersShare))
}

// buffer returns a buffer for what the session reads: that of room, if there is one.
func (s *session) buffer(n int64, room loop.Seg) (loop.Buf, bool) {
	if room.Buf != 0 {
		return room.Buf, true
	}
	p := loop.Requests
	if s.reader {
		p = loop.Readers
	}
	return s.r.arena.GetFor(p, int(n))
}
