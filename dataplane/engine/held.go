package engine

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// held are tasks that are done and not answered: a member that missed them is still part of the
// committed set, or the lease does not cover them.
type held struct {
	untimed
	e     *Engine
	tasks []*task
	// onAgreed are callers of changes, who are answered with the tasks.
	onAgreed []func(err error)
}

// step answers those that the lease covers since something has confirmed it.
func (h *held) step() {
	if h.e.lease.news && len(h.tasks) > 0 {
		h.release()
	}
}

// add finishes a task, or keeps it while a member that missed it is still part of the committed
// set.
func (h *held) add(t *task, code block.Code) {
	e := h.e
	if e.fatal != "" {
		e.requests.finish(t, block.IOError)
		return
	}
	if !h.answerable(t) {
		t.code = code
		h.tasks = append(h.tasks, t)
		return
	}
	e.requests.finish(t, code)
}

func (h *held) release() {
	if h.e.quorum.Holding() {
		return
	}
	tasks := h.tasks
	h.tasks = nil
	for _, t := range tasks {
		if !h.answerable(t) {
			h.tasks = append(h.tasks, t)
			continue
		}
		h.e.requests.finish(t, t.code)
	}
	h.agreed(nil)
}

func (h *held) fail() {
	tasks := h.tasks
	h.tasks = nil
	for _, t := range tasks {
		h.e.requests.finish(t, block.IOError)
	}
	h.agreed(errNotAgreed)
}

// answerable reports whether a task that is done may be told to the frontend.
func (h *held) answerable(t *task) bool {
	return !h.e.quorum.Holding() && (t.kind != wire.Read || h.e.lease.covers(t.arrived))
}

// whenAgreed replies to the caller of a change with err, after the set of replicas that made it is
// agreed.
func (h *held) whenAgreed(reply func(error), err error) {
	switch {
	case err != nil:
		reply(err)
	case h.e.fatal != "":
		reply(errNotAgreed)
	case h.e.quorum.Holding():
		h.onAgreed = append(h.onAgreed, reply)
	default:
		reply(nil)
	}
}

// agreed answers everybody who waits for the set.
func (h *held) agreed(err error) {
	waiting := h.onAgreed
	h.onAgreed = nil
	for _, reply := range waiting {
		reply(err)
	}
}
