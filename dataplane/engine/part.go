package engine

import "ankole.storage/dataplane/clock"

// assemble makes the parts.
func (e *Engine) assemble() {
	e.votes = votes{e: e, at: clock.Never}
	e.lease = lease{e: e, checkAt: clock.Never}
	e.scrubs = scrubs{e: e}
}
