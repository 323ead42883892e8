package replica

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// freeSpace gives back the space of files that a metadata operation has removed: beside everything
// else, since it can take the file system longer than the engine waits for an answer.
func (r *Replica) freeSpace() {
	if r.freeing || len(r.giveBack) == 0 {
		return
	}
	r.freeing = true
	giveBack := r.giveBack[0]
	r.giveBack = r.giveBack[1:]
	r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerSpace, 0), Fn: func() any { return result{err: giveBack()} }})
}

// roomWait bounds the wait for space that is being given back. An engine that has no answer for
// long takes the disk for one that hangs; who is told that it is not done yet asks again.
const roomWait = time.Second

// awaitedRoom calls again when space was given back, or late when it has not been at until.
type awaitedRoom struct {
	again, late func()
	until       clock.Ticks
}

// roomComes calls again when space is given back that somebody may have found missing, or late
// after roomWait. false: none is on its way, and none has come since this was asked last.
func (r *Replica) roomComes(again, late func()) bool {
	switch {
	case r.freeing:
		r.whenFreed = append(r.whenFreed, awaitedRoom{again, late, r.now.Add(roomWait)})
	case r.freed:
		again()
	default:
		return false
	}
	r.freed = false
	return true
}

func (r *Replica) spaceFreed(d *loop.Done) {
	r.freeing, r.freed = false, true
	if err := d.Value.(result).err; err != nil {
		r.cfg.Event("io-error", err.Error())
	}
	r.freeSpace()
	waiting := r.whenFreed
	r.whenFreed = nil
	for _, w := range waiting {
		r.freed = false
		w.again()
	}
}

// roomLate ends the waits for space that have lasted for roomWait, and says when the next one has.
func (r *Replica) roomLate() clock.Ticks {
	for len(r.whenFreed) > 0 && r.whenFreed[0].until <= r.now {
		w := r.whenFreed[0]
		r.whenFreed = r.whenFreed[1:]
		w.late()
	}
	if len(r.whenFreed) == 0 {
		return clock.Never
	}
	return r.whenFreed[0].until
}
