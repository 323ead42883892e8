package engine

// writes are those that replicas carry out, and whoever wants none of them.
type writes struct {
	e *Engine
	// inFlight counts mirrored writes, and what stops of writes wait for beside them.
	inFlight int
	// frozen counts who has writes stopped (a snapshot, the start of a rebuild). onQuiet are called
	// when none is in flight any more.
	frozen  int
	onQuiet []func()
}

// quiet calls whoever waits for the end of all writes in flight.
func (w *writes) quiet() {
	if w.inFlight > 0 || len(w.onQuiet) == 0 {
		return
	}
	fs := w.onQuiet
	w.onQuiet = nil
	for _, f := range fs {
		f()
	}
}

// freeze stops new writes and calls f when none is in flight any more. thaw lets them go on.
func (w *writes) freeze(f func()) {
	w.frozen++
	w.onQuiet = append(w.onQuiet, f)
	w.quiet()
}

func (w *writes) thaw() {
	e := w.e
	w.frozen--
	if w.frozen == 0 {
		if e.torn.job != nil {
			e.torn.job.frozen = false // it was given up by who had writes stopped for it
		}
		e.requests.retryBacklog()
		e.dirty.agreed()
	}
}
