package engine

// quiet calls whoever waits for the end of all writes in flight.
func (e *Engine) quiet() {
	if e.writes > 0 || len(e.onQuiet) == 0 {
		return
	}
	fs := e.onQuiet
	e.onQuiet = nil
	for _, f := range fs {
		f()
	}
}

// freeze stops new writes and calls f when none is in flight any more. thaw lets them go on.
func (e *Engine) freeze(f func()) {
	e.frozen++
	e.onQuiet = append(e.onQuiet, f)
	e.quiet()
}

func (e *Engine) thaw() {
	e.frozen--
	if e.frozen == 0 {
		if e.torn.job != nil {
			e.torn.job.frozen = false // it was given up by who had writes stopped for it
		}
		e.retryBacklog()
		e.dirty.agreed(e)
	}
}
