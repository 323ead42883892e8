package quorum

import "fmt"

// read is one that a user waits for.
type read struct {
	at      int // the replica asked, -1 for none
	arrived Time
	needs   uint16 // what was acknowledged when it arrived
	has     uint16
	done    bool
}

// settleRead answers a read when the lease allows it.
func (w *world) settleRead(k int) {
	e := w.engines[k]
	r := &e.read
	if r.at < 0 || !r.done || !e.alive || e.core.Holding() || w.leaseEnd(e) <= r.arrived {
		return
	}
	if missing := r.needs &^ r.has; missing != 0 {
		w.fail("e%d answers a read from %s, which misses writes %b that were acknowledged before it arrived", k,
			replicaName(r.at), missing)
	}
	*r = read{at: -1}
}

func (w *world) leaseEnd(e *engine) Time {
	return e.core.LeaseEnd(leaseTicks, func(m string) Time {
		if l := &e.links[replicaIndex(m)]; l.state == open {
			return l.confirmed
		}
		return 0
	})
}

// readEvents are what helps a read that waits for the lease.
func (w *world) readEvents(e *engine, add adder) {
	if r := &e.read; r.at < 0 || !r.done || e.core.Holding() {
		return
	}
	if e.question == nil {
		add("asks the witness for its lease", func(w *world, e *engine) { e.core.AskForLease() })
	}
	for i := range e.links {
		if l := &e.links[i]; l.state == open && l.confirmed < w.now && len(l.queue) == 0 {
			add("pings "+replicaName(i), func(w *world, e *engine) {
				e.links[i].queue = append(e.links[i].queue, message{write: aPing, sent: w.now})
			})
		}
	}
}

func (w *world) beginRead(k, i int) {
	e := w.engines[k]
	w.limits.reads--
	e.read = read{at: i, arrived: w.now}
	for _, o := range w.engines {
		e.read.needs |= o.acked
	}
	e.links[i].queue = append(e.links[i].queue, message{write: aRead, sent: w.now})
}

// leaseTicks is the lease in a model, where time comes in steps.
const leaseTicks = 1

// tell is the replica's side of a question that promises nothing.
func (w *world) tell(k, i int) {
	d := &w.disks[i]
	w.engines[k].links[i].state = closed
	p := Probed{Answer: w.answerOf(i), Promised: d.promised}
	if d.to >= 0 {
		p.InstanceManager = fmt.Sprintf("im%d", w.engines[d.to].im)
	}
	w.engines[k].core.ProbeAnswered(p)
}
