package posix

import "sync"

// quiet notices the end of a load. The start of the process counts as one.
type quiet struct {
	ops    int // submitted since the last look
	loaded bool
	rests  int // how often rest may still be called
	tell   func()
	rest   func()
	told   sync.WaitGroup
}

const (
	// quietOps is how many operations between two looks are no load: heartbeats, and questions of
	// the control plane.
	quietOps = 200
	// quietRests is how often an owner is told after a load that something was done. With a look
	// every 3 s they are enough for what is done once after a load, within 30 s of its end.
	quietRests = 15
)

func newQuiet(opts *Options) quiet {
	return quiet{ops: quietOps + 1, tell: opts.OnQuiet, rest: opts.OnRest}
}

// due reports that another look is wanted.
func (q *quiet) due() bool {
	return q.tell != nil && (q.loaded || q.ops > quietOps) || q.resting()
}

// resting reports that something was done which is told as a rest.
func (q *quiet) resting() bool { return q.rest != nil && q.rests > 0 && q.ops > 0 }

// look is called after every Trim; slack says that there will be memory for another one to give
// back.
func (q *quiet) look(slack bool) {
	switch {
	case q.tell == nil:
	case q.ops > quietOps:
		q.loaded = true
	case q.loaded && !slack:
		q.loaded, q.rests = false, quietRests
		q.told.Go(q.tell)
	case !q.loaded && q.resting():
		q.rests--
		q.told.Go(q.rest)
	}
	q.ops = 0
}
