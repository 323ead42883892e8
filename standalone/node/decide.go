package node

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// plan is what is due for a Pod.
type plan struct {
	start []*record
	kill  []*record
	// done means that nothing of the Pod runs and nothing will start again.
	done bool
	// wake is when to look again without an event; zero for never.
	wake time.Time
}

func (p *plan) wakeAt(t time.Time) {
	if !t.IsZero() && (p.wake.IsZero() || t.Before(p.wake)) {
		p.wake = t
	}
}

// decide says what is due. ending means that the Pod is being deleted, evicted or failed:
// everything stops and nothing starts.
func decide(policy v1.RestartPolicy, recs []*record, ending bool, now time.Time) plan {
	var p plan
	if !ending && finished(policy, recs) {
		ending = true // only sidecars can still run
	}
	if ending {
		p.stopAll(recs)
		return p
	}
	for _, r := range recs {
		if r.killing && !r.hard {
			p.wakeAt(r.killAt)
		}
	}
	if !p.initDone(policy, recs, now) {
		return p
	}
	for _, r := range recs {
		if !r.init {
			p.consider(r, policy, now)
		}
	}
	return p
}

// stopAll ends the main containers first and sidecars after them, last one first, as Kubernetes
// defines.
func (p *plan) stopAll(recs []*record) {
	p.done = true
	main := false
	for _, r := range recs {
		if r.state != running {
			continue
		}
		p.done = false
		main = main || !r.sidecar()
		if r.killing && !r.hard {
			p.wakeAt(r.killAt)
		}
	}
	for i := len(recs) - 1; i >= 0; i-- {
		r := recs[i]
		if r.state != running || (main && r.sidecar()) {
			continue
		}
		if !r.killing {
			p.kill = append(p.kill, r)
		}
		if r.sidecar() {
			return // one at a time, in reverse order
		}
	}
}

// initDone goes through the init containers in order; it returns true when the main ones may run.
func (p *plan) initDone(policy v1.RestartPolicy, recs []*record, now time.Time) bool {
	done := true
	for _, r := range recs {
		switch {
		case !r.init:
			continue
		case r.sidecar():
			p.consider(r, policy, now)
			if done && (r.state != running || !r.started) {
				done = false
			}
		case r.state == terminated && r.ended.ExitCode == 0:
			continue
		default:
			if done {
				p.consider(r, policy, now)
			}
			done = false
		}
		if !done {
			return false
		}
	}
	return done
}

// consider starts a container that should run and may.
func (p *plan) consider(r *record, policy v1.RestartPolicy, now time.Time) {
	if r.state == running || (r.state == terminated && !r.restartable(policy)) {
		return
	}
	if now.Before(r.notBefore) {
		p.wakeAt(r.notBefore)
		return
	}
	p.start = append(p.start, r)
}

// finished says whether the Pod has reached its end by itself: all main containers have ended for
// good, or an init container has failed for good.
func finished(policy v1.RestartPolicy, recs []*record) bool {
	all := true
	for _, r := range recs {
		over := r.state == terminated && !r.restartable(policy)
		if r.init && over && r.ended.ExitCode != 0 {
			return true
		}
		if !r.init && !over {
			all = false
		}
	}
	return all
}

// nextPause is the back-off after a run that ended at now.
func (b BackOff) nextPause(previous time.Duration, ran time.Duration, firstEnd bool) time.Duration {
	switch {
	case firstEnd || ran >= b.Reset:
		return 0 // restart at once
	case previous == 0:
		return b.Initial
	}
	return min(previous*2, b.Max)
}
