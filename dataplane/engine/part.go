package engine

import "ankole.storage/dataplane/clock"

// part is a piece of the engine's work with fields and deadlines of its own.
type part interface {
	// due is when time alone lets the part go on, Never while it waits for something else.
	due() clock.Ticks
	// step does what can be done now. It is called in every step of the engine.
	step()
}

// untimed is a part without deadlines.
type untimed struct{}

func (untimed) due() clock.Ticks { return clock.Never }

// assemble makes the parts. Their order is that of the work of a step, on which histories depend:
// who is dropped is known before requests go on, and requests go before the engine's own work.
func (e *Engine) assemble() {
	e.votes = votes{e: e, at: clock.Never}
	e.lease = lease{e: e, checkAt: clock.Never}
	e.scrubs = scrubs{e: e}
	e.memory = memory{e: e}
	e.imports = imports{e: e}
	e.purges = purges{e: e}
	e.rebuilds = rebuilds{e: e, compareInFull: map[string]bool{}}
	e.sources = sources{e: e}
	e.snapshotReads = snapshotReads{e: e}
	e.torn = tornRegions{e: e}
	e.chainMarks = chainMarks{e: e}
	e.passing = passing{e: e}
	e.changes = changes{e: e}
	e.writes = writes{e: e}
	e.links = links{e: e, byName: map[string]*link{}}
	e.members = membership{e: e}
	e.gathering = gathering{e: e, askAt: clock.Never, until: clock.Never, leaseOver: clock.Never}
	e.standstill = standstill{e: e, wakeAt: clock.Never}
	e.sizes = snapshotList{e: e}
	e.lost = noReplica{e: e, since: clock.Never}
	e.users = users{e: e}
	e.detaching = detaching{e: e}
	e.requests = requests{e: e}
	e.held = held{e: e}
	e.dirty = dirtyLog{e: e}
	e.unwritten = unwritten{e: e}
	e.tasks = tasks{e: e}
	e.parts = []part{
		// the set of replicas, and what ends by time alone
		&e.members, &e.standstill, &e.gathering, &e.lease, &e.links, &e.sources, &e.sizes, &e.dirty, &e.lost,
		// what the quorum core makes of that, then requests: those that wait before new ones
		&e.members, &e.requests, &e.users, &e.held, &e.detaching, &e.passing,
		// the engine's own work
		&e.votes, &e.rebuilds, &e.torn, &e.purges, &e.chainMarks, &e.scrubs, &e.imports, &e.snapshotReads, &e.memory,
	}
}
