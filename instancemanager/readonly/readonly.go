// Package readonly finds file systems on volumes that the kernel has made read-only, and has them
// made writable again where the kernel allows it.
//
// When a file system meets an error that it cannot live with, it refuses to write from then on
// (ext4 with errors=remount-ro, btrfs), or altogether (a shutdown). Nobody tells the volume: its
// engine goes on serving, and all that can be seen is in the host's table of mounts. There a mount
// has options of its own, "rw" or "ro" as it was asked for, and those of the file system behind it.
// A mount that may write to a file system that does not is one that has gone read-only by itself.
package readonly

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"ankole.storage/host/mountinfo"
	"ankole.storage/instancemanager/filesystem"
	"ankole.storage/instancemanager/process"
)

// Condition is what is told of an engine whose volume has such a file system.
const Condition = "FilesystemReadOnly"

// Period is how often the table of mounts is looked at; the number is the reference's.
const Period = 10 * time.Second

// Checker looks at the volumes of running engines.
type Checker struct {
	Manager *process.Manager
	// Mounts looks at the host's table of mounts.
	Mounts func() (filesystem.Of, error)
	// Remount makes a volume's file system writable again. It blocks as long as the volume's I/O does.
	Remount func(volume string) error
	Log     *slog.Logger
	// Period is that between two looks.
	Period time.Duration

	mu sync.Mutex
	// tries are by volume, only of file systems that are read-only.
	tries map[string]*try
}

// maxWait is the most looks between two attempts to make a file system writable: after an error the
// kernel refuses for good, and a person has to check it.
const maxWait = 64

// try is what was done to make a file system writable again.
type try struct {
	running bool
	// last is the wait before this one, left what is left of this one, in looks.
	last, left int
}

// Run looks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	tick := time.NewTicker(c.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.Look(); err != nil {
				c.Log.Warn("cannot tell whether file systems on volumes are read-only", "err", err)
			}
		}
	}
}

// Look tells the Manager which engines' volumes have a file system that has gone read-only, and
// which no longer have one.
func (c *Checker) Look() error {
	engines := c.engines()
	c.forget(engines)
	if len(engines) == 0 {
		return nil
	}
	mounts, err := c.Mounts()
	if err != nil {
		return err
	}
	for _, e := range engines {
		volume := volumeOf(e.Spec.Name)
		own, former := mounts(volume)
		state := max(stateOf(own), min(stateOf(former), notToBeMended))
		bad := state != sound
		// An engine of which there is nothing to tell has no condition: most never get one.
		if bad != e.Conditions[Condition] {
			c.Log.Warn("file system of a volume", "volume", volume, "readOnly", bad)
			c.Manager.SetCondition(e.Spec.Name, e.UUID, Condition, bad)
		}
		c.mend(volume, state == refuses)
	}
	return nil
}

// mend has a file system made writable that has gone read-only: at once, and as long as it stays so
// again after ever more looks.
func (c *Checker) mend(volume string, bad bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tries[volume]
	switch {
	case t != nil && t.running:
		return
	case !bad:
		delete(c.tries, volume)
		return
	case t == nil:
		t = &try{}
		if c.tries == nil {
			c.tries = map[string]*try{}
		}
		c.tries[volume] = t
	case t.left > 1:
		t.left--
		return
	}
	t.running = true
	t.last = min(max(1, 2*t.last), maxWait)
	t.left = t.last
	go func() {
		err := c.Remount(volume)
		if err != nil {
			c.Log.Warn("file system of a volume stays read-only", "volume", volume, "err", err)
		} else {
			c.Log.Info("file system of a volume was made writable again", "volume", volume)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		t.running = false
	}()
}

// forget drops what was tried for volumes that have no engine here any more.
func (c *Checker) forget(engines []process.Status) {
	here := map[string]bool{}
	for _, e := range engines {
		here[volumeOf(e.Spec.Name)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.tries, func(volume string, t *try) bool { return !here[volume] && !t.running })
}

func (c *Checker) engines() []process.Status {
	list, _ := c.Manager.List()
	return slices.DeleteFunc(list, func(p process.Status) bool {
		return p.State != process.Running || !process.IsEngine(p.Spec.Name)
	})
}

// volumeOf takes the end off an engine's name, <volume>-e-<suffix>.
func volumeOf(engine string) string { return engine[:strings.LastIndex(engine, "-e-")] }

// What the table of mounts says of a file system.
type state int

const (
	sound state = iota
	// notToBeMended: it takes no writes, and one of its mounts is read-only because somebody wants it
	// so, of that mount or of the file system; or its device has ended.
	notToBeMended
	// refuses: it takes no writes, and all its mounts may write.
	refuses
)

// stateOf tells of a volume's mounts what the worst of its file systems has become: one has gone
// read-only if a mount may write while the file system does not.
func stateOf(mounts []mountinfo.Mount) (worst state) {
	wanted := map[string]bool{}
	for i := range mounts {
		if mounts[i].ReadOnly() {
			wanted[mounts[i].Device] = true
		}
	}
	for i := range mounts {
		switch m := &mounts[i]; {
		case m.ReadOnly() || m.Refuses() == "":
		case wanted[m.Device]:
			worst = max(worst, notToBeMended)
		default:
			worst = max(worst, refuses)
		}
	}
	return worst
}
