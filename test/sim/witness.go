package sim

import (
	"errors"
	"fmt"
	"time"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
)

// Witness is the record in the cluster's API. The zero value is an empty one that answers everybody
// at once.
type Witness struct {
	// Down makes it answer nobody.
	Down   bool
	w      *World
	record quorum.WitnessRecord
	// past are the records it has held before, for a restore; late counts swaps that may still arrive.
	past []quorum.WitnessRecord
	late int
	// order is the newest one for an engine process that the control plane has recorded. It is not
	// restored with the record: the control plane sees the process of a newer order at once.
	order int
	// noOrders: the engines' instance managers are older, and tell nobody its order.
	noOrders bool
	// down witnesses answer nobody; lossy ones lose one answer in two of what they carry out; slow
	// is added to answers.
	down  int
	lossy bool
	slow  time.Duration
	// cut nodes do not reach it.
	cut map[*Node]int
}

// witnessTimeout is when a caller gives up; a swap may be carried out later.
const witnessTimeout = 3 * time.Second

var (
	errWitnessDown = errors.New("witness is down")
	errWitnessLost = errors.New("witness did not answer in time")
)

// Read implements engine.Witness.
func (w *Witness) Read() (quorum.WitnessRecord, error) {
	if w.Down {
		return quorum.WitnessRecord{}, errWitnessDown
	}
	return w.record, nil
}

// Swap implements engine.Witness.
func (w *Witness) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	if w.Down {
		return quorum.WitnessRecord{}, false, errWitnessDown
	}
	same := expected.Epoch == w.record.Epoch && expected.Record.Equal(w.record.Record)
	if same {
		w.past = append(w.past, w.record)
		w.record = next
	}
	return w.record, same, nil
}

// witnessCalls is the witness as one engine reaches it.
type witnessCalls struct {
	*Witness
	e *EngineProcess
}

// swap carries a swap out, unless another engine was ordered meanwhile.
func (c *witnessCalls) swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	if c.e.order < c.order && !c.noOrders {
		return quorum.WitnessRecord{}, false, fmt.Errorf("%w: made for order %d, %d is the newest", engine.ErrSuperseded,
			c.e.order, c.order)
	}
	return c.Witness.Swap(expected, next)
}

// reach decides what becomes of a call: it may not arrive, or arrive and have no answer.
func (c *witnessCalls) reach() (arrives, answers bool) {
	if c.Down || c.down > 0 || c.cut[c.e.node] > 0 {
		c.e.answerDelay = c.w.Between(time.Millisecond, witnessTimeout)
		return false, false
	}
	c.e.answerDelay = c.slow
	if c.lossy && c.w.Rand.IntN(2) == 0 {
		c.e.answerDelay = witnessTimeout
		return c.w.Rand.IntN(2) == 0, false
	}
	return true, true
}

// Read implements engine.Witness.
func (c *witnessCalls) Read() (quorum.WitnessRecord, error) {
	if arrives, answers := c.reach(); !arrives || !answers {
		return quorum.WitnessRecord{}, errWitnessDown
	}
	return c.record, nil
}

// Swap implements engine.Witness.
func (c *witnessCalls) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	arrives, answers := c.reach()
	if !arrives {
		if c.lossy && c.w.Rand.IntN(2) == 0 {
			// It is on its way still, and arrives after the caller has given up.
			c.late++
			c.w.After(c.w.Between(0, 2*witnessTimeout), func() {
				c.late--
				_, _, _ = c.swap(expected, next)
			})
		}
		return quorum.WitnessRecord{}, false, errWitnessDown
	}
	record, swapped, err := c.swap(expected, next)
	if !answers {
		return quorum.WitnessRecord{}, false, errWitnessLost
	}
	return record, swapped, err
}
