package quorum

import (
	"slices"
	"time"
)

// Time is a point on the engine's monotonic clock, in nanoseconds. 0 is before everything.
type Time int64

// DefaultLease is how long an engine may answer reads after the last proof that no successor can
// have begun.
const DefaultLease = 10 * time.Second

// SuccessorWait is how long a successor waits after the last promise. It is a tenth longer than the
// lease, for clocks that do not run equally fast.
func SuccessorWait(term time.Duration) time.Duration { return term + term/10 }

// LeaseEnd returns when the engine's lease ends: a read that arrived before may be answered.
// confirmed tells, for each member, when the last request was sent that it has answered in this
// epoch's session: at that time it had not promised a newer epoch.
//
// A successor needs half, rounded up, of the highest record it finds; so it cannot have gathered
// before the time at which a majority of that record was still ours, nor before the witness named
// this engine. It serves when it has waited for longer than the term. The record it finds may be
// the committed one, or one that a joiner holds and nobody has agreed on yet, so the majority must
// be one of each.
func (c *Core) LeaseEnd(term time.Duration, confirmed func(member string) Time) Time {
	if c.phase != Serving {
		return 0
	}
	at := majorityAt(c.committed, confirmed)
	if c.prop != nil && c.prop.joinerWritten {
		at = min(at, majorityAt(c.prop.rec, confirmed))
	}
	at = max(at, c.witnessAt)
	if at == 0 {
		return 0
	}
	return at + Time(term)
}

// majorityAt is the latest time at which a majority of r was still ours: the majority-th largest of
// all.
func majorityAt(r Record, confirmed func(member string) Time) Time {
	times := make([]Time, 0, 32)
	for _, m := range r.Members {
		times = append(times, confirmed(m))
	}
	slices.Sort(times)
	return times[len(times)-majority(len(times))]
}

// WitnessConfirmed reports that a question sent at the given time was answered with w: if it still
// names this engine, no successor was granted an epoch before.
func (c *Core) WitnessConfirmed(sent Time, w WitnessRecord) {
	// An engine that has taken over without the witness is not named yet; the grant it follows is.
	if c.epoch != 0 && granted(w.Epoch) == granted(c.epoch) && !c.overtaken(w) {
		c.witnessAt = max(c.witnessAt, sent)
	}
}

// AskForLease asks the witness, when the replicas do not confirm the lease. The engine calls it at
// intervals of its choice.
func (c *Core) AskForLease() {
	if c.phase == Serving && !c.asked && !c.swap {
		c.asked = true
		c.do(Action{Kind: AskWitness})
	}
}

// oldReader tells why an older engine may still answer reads, or nothing if none can. Whoever
// proposed a record has waited for all before it; so only the proposer of the base counts. It reads
// from members of the base, or from nobody once all of them have promised; and it does not live any
// more if the instance manager that ran it is ours.
func (c *Core) oldReader(base Record) string {
	var silent []string
	for _, m := range base.Members {
		if !slices.ContainsFunc(c.answers, func(a Answer) bool { return a.Member == m }) {
			silent = append(silent, m)
		}
	}
	switch {
	case len(silent) == 0:
		return ""
	case c.before.Epoch != 0 && granted(c.before.Epoch) == granted(base.Epoch) &&
		c.before.InstanceManager == c.cfg.InstanceManager && c.cfg.InstanceManager != "" && !c.void:
		return ""
	}
	return "silent: " + joined(silent)
}
