package witness

import "time"

// SetWaits replaces the bounds on waiting; before the first question.
func (r *Relay) SetWaits(total, attempt time.Duration) { r.totalWait, r.attemptWait = total, attempt }

// Outstanding is the number of questions in the relay.
func (r *Relay) Outstanding() int { return len(r.outstanding) }
