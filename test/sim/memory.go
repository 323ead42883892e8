package sim

import (
	"fmt"
	"time"

	"ankole.storage/dataplane/engine"
)

// connBuffers is how many buffers a connection holds for as long as it lives, one to receive and
// one to send (wire.ConnMemory).
const connBuffers = 2

// checkMemory ends the engine cleanly. Nothing is under way then, so every buffer must have been
// given back, by the engine and by the replicas, but for what a process takes at its beginning, and
// those of each connection to a machine that has lost power.
func (r *run) checkMemory() error {
	e := r.v.Current
	ended := false
	e.Post(engine.Shutdown{Reply: func(error) { ended = true }})
	if !r.w.Until(time.Minute, func() bool { return ended }) {
		return fmt.Errorf("%s does not end within a minute", e.Name)
	}
	processes := []*Process{e.Process}
	for _, x := range r.v.Replicas {
		processes = append(processes, x.proc)
	}
	for _, p := range processes {
		if !r.w.Until(time.Minute, func() bool { return p.arena.InUse() <= p.keeps+connBuffers*len(p.conns) }) {
			return fmt.Errorf("%s keeps %d buffers with nothing to do", p.Name, p.arena.InUse()-p.keeps)
		}
	}
	return nil
}
