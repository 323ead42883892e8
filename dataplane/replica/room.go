package replica

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// space gives back the space of files that have lost their names, one after the other, and knows
// who waits for it.
type space struct {
	r *Replica
	// giveBack frees the space of removed files; freeing: that is under way, for whenFreed; freed:
	// some has come since comes was asked.
	giveBack       []func() error
	freeing, freed bool
	whenFreed      []awaitedRoom
}

// add takes over what frees the space of removed files; free begins with it.
func (g *space) add(giveBack func() error) { g.giveBack = append(g.giveBack, giveBack) }

// free gives back the space of files that a metadata operation has removed: beside everything
// else, since it can take the file system longer than the engine waits for an answer.
func (g *space) free() {
	if g.freeing || len(g.giveBack) == 0 {
		return
	}
	g.freeing = true
	giveBack := g.giveBack[0]
	g.giveBack = g.giveBack[1:]
	g.r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerSpace, 0), Fn: func() any { return result{err: giveBack()} }})
}

// roomWait bounds the wait for space that is being given back. An engine that has no answer for
// long takes the disk for one that hangs; who is told that it is not done yet asks again.
const roomWait = time.Second

// awaitedRoom calls again when space was given back, or late when it has not been at until.
type awaitedRoom struct {
	again, late func()
	until       clock.Ticks
}

// comes calls again when space is given back that somebody may have found missing, or late
// after roomWait. false: none is on its way, and none has come since this was asked last.
func (g *space) comes(again, late func()) bool {
	switch {
	case g.freeing:
		g.whenFreed = append(g.whenFreed, awaitedRoom{again, late, g.r.now.Add(roomWait)})
	case g.freed:
		again()
	default:
		return false
	}
	g.freed = false
	return true
}

func (g *space) spaceFreed(d *loop.Done) {
	g.freeing, g.freed = false, true
	if err := d.Value.(result).err; err != nil {
		g.r.cfg.Event("io-error", err.Error())
	}
	g.free()
	waiting := g.whenFreed
	g.whenFreed = nil
	for _, w := range waiting {
		g.freed = false
		w.again()
	}
}

// late ends the waits for space that have lasted for roomWait, and says when the next one has.
func (g *space) late() clock.Ticks {
	for len(g.whenFreed) > 0 && g.whenFreed[0].until <= g.r.now {
		w := g.whenFreed[0]
		g.whenFreed = g.whenFreed[1:]
		w.late()
	}
	if len(g.whenFreed) == 0 {
		return clock.Never
	}
	return g.whenFreed[0].until
}
