package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/instancemanager/process"
)

// deviceDir is where engines make nodes of block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// binariesDirs are the paths, as the Pod sees it, of the folder that has one for each engine image
// of the node: managers name engines by the first and replicas by the second.
var binariesDirs = []string{"/engine-binaries", "/host/var/lib/longhorn/engine-binaries"}

// lookAgain is how often devices are looked for that have ended since the last look.
const lookAgain = 5 * time.Minute

// leftovers removes what killed engines have left on the node of their block devices, node, loop
// device and mount, where no engine follows that would: its volume is detached, deleted, or
// attached elsewhere.
type leftovers struct {
	dir    string
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	// removeAll removes what is left of devices of all volumes but those that are served.
	removeAll func(ctx context.Context, dir string, served map[string]bool) error

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

func newLeftovers(dir string, log *slog.Logger) *leftovers {
	ctx, cancel := context.WithCancel(context.Background())
	return &leftovers{dir: dir, log: log, ctx: ctx, cancel: cancel, removeAll: blockdev.RemoveAllDead,
		closed: !blockdev.Possible()} // there are none
}

// run begins with what an instance manager before this one has left when it ended, and all its
// engines with it. What waited for its next engine then, with the second holder, may end later.
func (l *leftovers) run(list func() ([]process.Status, int64)) {
	l.do(func() error {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			served := map[string]bool{}
			processes, _ := list()
			for _, p := range processes {
				if process.IsEngine(p.Spec.Name) {
					served[volumeOf(p.Spec.Name)] = true
				}
			}
			if err := l.removeAll(l.ctx, l.dir, served); err != nil {
				l.warn(err)
			}
			select {
			case <-tick.C:
			case <-l.ctx.Done():
				return nil
			}
		}
	})
}

// endDevice gives up what is kept of an engine that has ended for good, and removes what it has
// left.
func endDevice(engine string, kept *keeper.Server, left *leftovers) {
	if process.IsEngine(engine) {
		kept.Abandon(volumeOf(engine), engine)
		left.remove(engine)
	}
}

// remove removes what an engine has left, which has ended for good. It does not wait for that.
func (l *leftovers) remove(engine string) {
	cfg := blockdev.Config{Volume: volumeOf(engine), DeviceDir: l.dir}
	l.do(func() error { return blockdev.RemoveDead(l.ctx, cfg) })
}

// removeOf removes a volume's device that nobody keeps any more, if it does not end by itself.
func (l *leftovers) removeOf(volume string) {
	cfg := blockdev.Config{Volume: volume, DeviceDir: l.dir}
	l.do(func() error { return blockdev.RemoveLeft(l.ctx, cfg) })
}

// volumeOf is the volume of an engine's name.
func volumeOf(engine string) string { return engine[:strings.LastIndex(engine, "-e-")] }

func (l *leftovers) warn(err error) {
	l.log.Warn("something is left of the block device of a killed engine", "err", err)
}

func (l *leftovers) do(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.work.Go(func() {
		if err := f(); err != nil {
			l.warn(err)
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
