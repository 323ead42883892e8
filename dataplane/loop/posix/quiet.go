package posix

import "sync"

// quiet notices the end of a load.
type quiet struct {
	ops    int // submitted since the last look
	loaded bool
	tell   func()
	told   sync.WaitGroup
}

// quietOps is how many operations between two looks are no load: heartbeats, and questions of the
// control plane.
const quietOps = 200

// due reports that another look is wanted.
func (q *quiet) due() bool { return q.tell != nil && (q.loaded || q.ops > quietOps) }

// look is called after every Trim; slack says that there will be memory for another one to give
// back.
func (q *quiet) look(slack bool) {
	switch {
	case q.tell == nil:
	case q.ops > quietOps:
		q.loaded = true
	case q.loaded && !slack:
		q.loaded = false
		q.told.Go(q.tell)
	}
	q.ops = 0
}
