package quorum

func (w *world) begin(e *engine) {
	e.write, e.ok, e.pending = w.writes, 0, e.rw|e.wo
	w.writes++
	for i := range e.links {
		if e.pending&(1<<i) != 0 && e.links[i].state == open {
			e.links[i].queue = append(e.links[i].queue, message{write: e.write, sent: w.now})
		}
	}
}

// settleWrite acknowledges a write, or gives it up.
func (w *world) settleWrite(k int) {
	e := w.engines[k]
	if e.write < 0 || e.pending != 0 || !e.alive {
		return
	}
	switch {
	case e.ok&e.rw == 0:
		e.write = -1
	case e.core.Holding():
	default:
		n := e.write
		e.write = -1
		e.acked |= 1 << n
		w.checkFollows()
		for i := range w.disks {
			if e.rw&(1<<i) != 0 && w.disks[i].has&(1<<n) == 0 {
				w.fail("e%d acknowledges write %d, which %s misses", k, n, replicaName(i))
			}
		}
		// It may do so late, after a successor has begun, but only what that one has heard of.
		for x, o := range w.engines {
			for i := range w.disks {
				if o.core.Epoch() > e.core.Epoch() && o.began && o.rw&(1<<i) != 0 && w.disks[i].has&(1<<n) == 0 {
					w.fail("e%d acknowledges write %d, which %s misses, where e%d of a later epoch serves", k, n, replicaName(i), x)
				}
			}
		}
	}
}
