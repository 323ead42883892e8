package sim

import "time"

// Fault is one thing that may go wrong. The atlas names only what the promise says must be survived, so every violation is
// a defect.
type Fault struct {
	Name   string
	Weight int
	// Do makes it happen; false: it cannot happen now.
	Do func(r *run) bool
}

// Atlas lists the faults.
var Atlas = []Fault{
	{"kill-replica", 6, func(r *run) bool {
		x := r.v.Replicas[r.w.Rand.IntN(len(r.v.Replicas))]
		if !x.Alive() {
			return false
		}
		x.Kill()
		return true
	}},
	{"kill-engine", 3, func(r *run) bool {
		if !r.v.proc.Alive() {
			return false
		}
		r.v.KillEngine()
		return true
	}},
	{"kill-all", 2, func(r *run) bool {
		r.v.KillEngine()
		for _, x := range r.v.Replicas {
			x.Kill()
		}
		return true
	}},
	{"power-loss-one", 2, func(r *run) bool {
		// One node loses power. Unflushed writes that only other replicas still have may be gone with it if the engine
		// dies before it has dropped the replica: nobody can tell later who was ahead.
		x := r.v.Replicas[r.w.Rand.IntN(len(r.v.Replicas))]
		x.Kill()
		x.Disk.Crash()
		r.check.PowerLost()
		return true
	}},
	{"power-loss-all", 2, func(r *run) bool {
		r.v.KillEngine()
		for _, x := range r.v.Replicas {
			x.Kill()
			x.Disk.Crash()
		}
		r.check.PowerLost()
		return true
	}},
	{"witness-away", 2, func(r *run) bool {
		if r.v.Witness.Down {
			return false
		}
		r.v.Witness.Down = true
		r.w.After(r.w.Between(10*time.Millisecond, time.Second), func() { r.v.Witness.Down = false })
		return true
	}},
}

// nextFault makes something go wrong after a while, again and again until faulting ends.
func (r *run) nextFault() {
	r.w.After(r.w.Between(2*time.Millisecond, 400*time.Millisecond), func() {
		if !r.faulting {
			return
		}
		total := 0
		for _, f := range Atlas {
			total += f.Weight
		}
		n := r.w.Rand.IntN(total)
		for _, f := range Atlas {
			if n -= f.Weight; n < 0 {
				if !r.o.Without[f.Name] && f.Do(r) {
					r.faults++
					r.v.log("fault %s", f.Name)
				}
				break
			}
		}
		r.nextFault()
	})
}
