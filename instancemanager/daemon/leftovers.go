package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/instancemanager/process"
)

// deviceDir is where engines make nodes of block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// leftovers removes what killed engines have left on the node of their block devices, node, loop
// device and mount, where no engine follows that would: its volume is detached, deleted, or
// attached elsewhere.
type leftovers struct {
	dir    string
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// newLeftovers begins with what an instance manager before this one has left when it was killed,
// and all its engines with it.
func newLeftovers(dir string, log *slog.Logger) *leftovers {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leftovers{dir: dir, log: log, ctx: ctx, cancel: cancel}
	if blockdev.Available() != nil {
		l.closed = true // there are none
		return l
	}
	l.do(func() error { return blockdev.RemoveAllDead(ctx, dir) })
	return l
}

// remove removes what an engine has left, which has ended for good. It does not wait for that.
func (l *leftovers) remove(engine string) {
	if !process.IsEngine(engine) {
		return
	}
	volume := engine[:strings.LastIndex(engine, "-e-")]
	l.do(func() error { return blockdev.RemoveDead(l.ctx, blockdev.Config{Volume: volume, DeviceDir: l.dir}) })
}

func (l *leftovers) do(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.work.Go(func() {
		if err := f(); err != nil {
			l.log.Warn("something is left of the block device of a killed engine", "err", err)
		}
	})
}

// close ends what is under way.
func (l *leftovers) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
}
