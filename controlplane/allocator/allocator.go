package allocator

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// uncertainFor is how long a change counts whose call ended without a clear answer: longer than any
// request to an API server lasts, which ends it after 60 s by default.
const uncertainFor = 2 * time.Minute

// Allocator owns the slots for rebuilds and the room on disks. Use New. It is safe for concurrent
// use.
type Allocator struct {
	now    func() time.Time
	wakes  *wakes
	synced chan struct{}

	mu sync.Mutex
	// replicas by name.
	replicas map[string]*entry
	rebuilds *slots
	// scheduled are the bytes claimed of each disk, by UUID.
	scheduled map[string]int64
	// waits are the nodes in whose queues a volume is.
	waits map[string]map[string]bool
}

// claim is what a replica takes of what is limited.
type claim struct {
	volume string
	// rebuildOn is the node on which it holds a slot for its rebuild; empty if it holds none.
	rebuildOn string
	// disk is the UUID of the disk on which it holds sizeBytes; empty if it has no place.
	disk      string
	sizeBytes int64
}

// claimOf says what a replica takes, by its object alone.
func claimOf(rep *v1beta2.Replica) claim {
	c := claim{volume: rep.Spec.VolumeName}
	if !rep.Spec.Active {
		return c // a second process on the directory of another replica
	}
	if rep.Spec.DiskID != "" {
		c.disk, c.sizeBytes = rep.Spec.DiskID, rep.Spec.VolumeSize
	}
	if rep.Spec.DesireState == v1beta2.InstanceStateRunning && rep.Spec.FailedAt == "" && rep.Spec.HealthyAt == "" &&
		(rep.Spec.RebuildRetryCount != 0 || rep.Spec.LastHealthyAt != "") {
		c.rebuildOn = rep.Spec.NodeID
	}
	return c
}

// entry is what is known of one replica.
type entry struct {
	shown   claim
	version string // of the object that the cache shows
	assumed *assumption
}

// assumption is a change of a replica that was ordered and is not shown yet.
type assumption struct {
	claim
	// base is the version that the change is made to: whatever the cache shows after it settles the
	// change, since a write to an older version is refused.
	base string
	// ordered: a call has not ended yet. outdated: the API server has a later version than base, made
	// by a call of ours or by somebody else, which the cache will show.
	ordered, outdated bool
	// until is when a change with an uncertain outcome stops to count; zero if no call ended so.
	until time.Time
}

func (e *entry) claim() claim {
	if e.assumed != nil {
		return e.assumed.claim
	}
	return e.shown
}

// New returns an allocator that knows of nothing; see SetupWithManager and Observe. now is the
// clock; nil means time.Now. namespace is that of the volumes it wakes.
func New(namespace string, now func() time.Time) *Allocator {
	if now == nil {
		now = time.Now
	}
	return &Allocator{
		now: now, wakes: newWakes(namespace), synced: make(chan struct{}), replicas: map[string]*entry{},
		rebuilds: newSlots(), scheduled: map[string]int64{}, waits: map[string]map[string]bool{},
	}
}

// locked runs f with the lock, and wakes the volumes whose turn it is on the nodes that f names.
func (a *Allocator) locked(f func() (nodes []string)) {
	a.mu.Lock()
	var volumes []string
	for _, node := range f() {
		volumes = append(volumes, a.rebuilds.turns(a.now(), node)...)
	}
	a.mu.Unlock()
	a.wakes.send(volumes)
}

// Observe takes in a replica as the cache shows it.
func (a *Allocator) Observe(rep *v1beta2.Replica) {
	a.locked(func() []string {
		e := a.replicas[rep.Name]
		if e == nil {
			e = &entry{}
			a.replicas[rep.Name] = e
		}
		if later(e.version, rep.ResourceVersion) {
			return nil
		}
		before := e.claim()
		e.shown, e.version = claimOf(rep), rep.ResourceVersion
		if e.assumed != nil && later(rep.ResourceVersion, e.assumed.base) {
			e.assumed = nil
		}
		return a.moved(before, e.claim())
	})
}

// Gone takes in that a replica is no more.
func (a *Allocator) Gone(name string) {
	a.locked(func() []string {
		e := a.replicas[name]
		if e == nil {
			return nil
		}
		delete(a.replicas, name)
		return a.moved(e.claim(), claim{})
	})
}

// moved brings the sums up to date and returns the nodes whose slots have changed.
func (a *Allocator) moved(before, after claim) (nodes []string) {
	if before.disk != "" {
		if a.scheduled[before.disk] -= before.sizeBytes; a.scheduled[before.disk] == 0 {
			delete(a.scheduled, before.disk)
		}
	}
	if after.disk != "" {
		a.scheduled[after.disk] += after.sizeBytes
	}
	if before.rebuildOn == after.rebuildOn {
		return nil
	}
	if before.rebuildOn != "" {
		a.rebuilds.add(before.rebuildOn, -1)
		nodes = append(nodes, before.rebuildOn)
	}
	if after.rebuildOn != "" {
		a.rebuilds.add(after.rebuildOn, 1)
		nodes = append(nodes, after.rebuildOn)
	}
	return nodes
}

// SetRebuildLimit sets the number of rebuilds of each node; 0 allows none.
func (a *Allocator) SetRebuildLimit(limit int) {
	a.locked(func() (nodes []string) {
		if limit == a.rebuilds.limit {
			return nil
		}
		a.rebuilds.limit = limit
		for node := range a.rebuilds.queues {
			nodes = append(nodes, node)
		}
		return nodes
	})
}

// MayRebuild tells whether a volume may start a rebuild on the node now.
func (a *Allocator) MayRebuild(volume, node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.rebuilds.may(volume, node)
	if w := a.rebuilds.waiter(volume, node); ok && w != nil && w.turn.IsZero() {
		w.turn = a.now()
	}
	return ok
}

// Wait says on which nodes a volume wants to rebuild, and whether MayRebuild allowed it there. The
// volume is woken when its turn comes on a node where it did not. Without nodes it wants nothing.
func (a *Allocator) Wait(volume string, wanted map[string]bool) {
	a.locked(func() (nodes []string) {
		for node := range a.waits[volume] {
			if _, still := wanted[node]; !still {
				a.rebuilds.leave(volume, node)
				delete(a.waits[volume], node)
				nodes = append(nodes, node)
			}
		}
		for node, allowed := range wanted {
			var turn time.Time
			if allowed {
				turn = a.now()
			}
			a.enter(volume, node, turn)
			nodes = append(nodes, node)
		}
		if len(a.waits[volume]) == 0 {
			delete(a.waits, volume)
		}
		return nodes
	})
}

func (a *Allocator) enter(volume, node string, turn time.Time) {
	if a.waits[volume] == nil {
		a.waits[volume] = map[string]bool{}
	}
	a.waits[volume][node] = true
	a.rebuilds.enter(volume, node, turn)
}

// Scheduled is the sum of the full sizes of all replicas on a disk, in bytes: those that the cache
// shows, and those whose place was ordered.
func (a *Allocator) Scheduled(disk string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.scheduled[disk]
}

// Reserving returns the change that writes rep, a modified copy of a replica, once the slot and the
// room that it takes have been reserved. scheduledBytes is what Scheduled said of its disk when the
// place, or the larger size, was chosen.
func (a *Allocator) Reserving(rep *v1beta2.Replica, scheduledBytes int64) loop.Change {
	base := rep.ResourceVersion
	return loop.Reserving{
		Change:  loop.Update{Object: rep},
		Reserve: func(context.Context) (bool, error) { return a.reserve(rep, base, scheduledBytes), nil },
		Done:    func(err error) { a.settle(rep.Name, base, err) },
	}
}

// reserve assumes the change of a replica, unless its room or its slot has been taken meanwhile.
func (a *Allocator) reserve(rep *v1beta2.Replica, base string, scheduledBytes int64) bool {
	taken := false
	a.locked(func() []string {
		e := a.replicas[rep.Name]
		if e == nil || later(e.version, base) {
			return nil // the write would be refused: the replica is gone or has changed
		}
		before, after := e.claim(), claimOf(rep)
		slot := after.rebuildOn != "" && after.rebuildOn != before.rebuildOn
		switch {
		case after.disk != "" && (after.disk != before.disk || after.sizeBytes > before.sizeBytes) &&
			a.scheduled[after.disk] > scheduledBytes:
			return nil
		case slot && !a.rebuilds.may(after.volume, after.rebuildOn):
			return nil
		}
		taken = true
		if e.assumed == nil || e.assumed.base != base {
			e.assumed = &assumption{base: base}
		}
		e.assumed.claim, e.assumed.ordered = after, true
		if slot {
			a.rebuilds.leave(after.volume, after.rebuildOn)
			delete(a.waits[after.volume], after.rebuildOn)
		}
		return a.moved(before, after)
	})
	return taken
}

// settle is told how the write of an assumed change ended.
func (a *Allocator) settle(name, base string, err error) {
	a.locked(func() []string {
		e := a.replicas[name]
		if e == nil || e.assumed == nil || e.assumed.base != base {
			return nil // the cache shows it already
		}
		was := e.assumed
		was.ordered = false
		switch {
		case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
			was.outdated = true
			return nil
		case !refused(err):
			was.until = a.now().Add(uncertainFor)
			return nil
		case was.outdated, !was.until.IsZero():
			return nil // this call changed nothing, an earlier one did or may
		}
		// A volume whose turn came to nothing is first in the queue again.
		before := e.claim()
		nodes := a.forget(e)
		if node := before.rebuildOn; node != "" && node != e.claim().rebuildOn {
			a.enter(before.volume, node, a.now())
			a.rebuilds.restore(before.volume, node, a.now())
		}
		return nodes
	})
}

// forget ends an assumption of which the cache shows nothing.
func (a *Allocator) forget(e *entry) []string {
	before := e.claim()
	e.assumed = nil
	return a.moved(before, e.claim())
}

// Sweep ends what has lasted for too long: changes with an uncertain outcome, and turns that nobody
// takes.
func (a *Allocator) Sweep() {
	a.locked(func() (nodes []string) {
		now := a.now()
		for _, e := range a.replicas {
			s := e.assumed
			if s != nil && !s.ordered && !s.outdated && !s.until.IsZero() && !now.Before(s.until) {
				nodes = append(nodes, a.forget(e)...)
			}
		}
		for node := range a.rebuilds.queues {
			nodes = append(nodes, node)
		}
		return nodes
	})
}

// refused says of a failed call that it changed nothing.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// later tells whether resource version x is later than y. An empty one is the earliest; versions
// that cannot be compared count as later if they differ.
func later(x, y string) bool {
	if x == y || x == "" {
		return false
	}
	if y == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(x, y)
	return err != nil || order > 0
}
