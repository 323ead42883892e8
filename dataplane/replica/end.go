package replica

// End, posted to the loop, asks the replica to end in order. It ends all sessions, waits until
// nothing is under way on its directory, and closes that as cleanly stopped; then it has Stopped.
//
// Nobody else may close the directory of a core so. A write that is on its way to the disk may
// still fail and leave space in the head that hides the snapshot below; the core puts that right
// when it hears of it, and after an unclean stop the next open does.
type End struct{}

// end begins the end.
func (r *Replica) end() {
	if r.ending || r.dead {
		return
	}
	r.ending = true
	for _, s := range r.sessions.conns {
		if s != nil {
			s.end(endReason)
		}
	}
	r.losing.save(func() {
		r.handover.giveUp(&metaOp{done: func(v any) {
			r.stopped = true
			r.handover.released(v.(result).err, endReason)
		}})
	})
}

const endReason = "the replica is asked to end"

// Stopped reports that the replica has ended as it was asked to: its directory is closed.
func (r *Replica) Stopped() bool { return r.stopped }
