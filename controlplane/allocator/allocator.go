package allocator

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// uncertainFor is how long a change counts whose call ended without a clear answer: longer than any
// request to an API server lasts, which ends it after 60 s by default.
const uncertainFor = 2 * time.Minute

// Allocator owns the slots for rebuilds and upgrades, and the room on disks. Use New. It is safe
// for concurrent use.
type Allocator struct {
	now    func() time.Time
	wakes  *wakes
	synced chan struct{}

	mu sync.Mutex
	// entries of replicas and volumes, by kind and name.
	entries map[object]*entry
	// rebuilds and upgrades are the slots of each node for those.
	rebuilds, upgrades *pool
	// scheduled are the bytes claimed of each disk, by UUID.
	scheduled map[string]int64
}

// object names a replica or a volume.
type object struct {
	volume bool
	name   string
}

// claim is what a replica, or a volume, takes of what is limited.
type claim struct {
	volume string
	// upgradeOn is the node on which a volume holds a slot for its upgrade; empty if it holds none.
	upgradeOn string
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

// claimOfVolume says what a volume takes, by its object alone.
func claimOfVolume(v *v1beta2.Volume) claim {
	c := claim{volume: v.Name}
	if v.DeletionTimestamp == nil && v.Status.CurrentImage != "" && v.Spec.Image != "" &&
		v.Spec.Image != v.Status.CurrentImage {
		c.upgradeOn = v.Status.OwnerID
	}
	return c
}

// entry is what is known of one replica or volume.
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
	a := &Allocator{
		now: now, wakes: newWakes(namespace), synced: make(chan struct{}), entries: map[object]*entry{},
		rebuilds: newPool(), upgrades: newPool(), scheduled: map[string]int64{},
	}
	a.SettingGone(setting.ConcurrentReplicaRebuildPerNodeLimit)
	a.SettingGone(setting.ConcurrentAutomaticEngineUpgradePerNodeLimit)
	return a
}

// locked runs f with the lock, and wakes the volumes whose turn it is on the nodes that f names.
func (a *Allocator) locked(f func() (nodes []string)) {
	a.mu.Lock()
	var volumes []string
	for _, node := range f() {
		volumes = append(volumes, a.rebuilds.turns(a.now(), node)...)
		volumes = append(volumes, a.upgrades.turns(a.now(), node)...)
	}
	a.mu.Unlock()
	a.wakes.send(volumes)
}

// Observe takes in a replica as the cache shows it.
func (a *Allocator) Observe(rep *v1beta2.Replica) {
	a.observe(object{name: rep.Name}, claimOf(rep), rep.ResourceVersion)
}

// ObserveVolume takes in a volume as the cache shows it.
func (a *Allocator) ObserveVolume(v *v1beta2.Volume) {
	a.observe(object{volume: true, name: v.Name}, claimOfVolume(v), v.ResourceVersion)
}

func (a *Allocator) observe(of object, shown claim, version string) {
	a.locked(func() []string {
		e := a.entries[of]
		if e == nil {
			e = &entry{}
			a.entries[of] = e
		}
		if later(e.version, version) {
			return nil
		}
		before := e.claim()
		e.shown, e.version = shown, version
		if e.assumed != nil && later(version, e.assumed.base) {
			e.assumed = nil
		}
		return a.moved(before, e.claim())
	})
}

// Gone takes in that a replica is no more.
func (a *Allocator) Gone(name string) { a.gone(object{name: name}) }

// VolumeGone takes in that a volume is no more.
func (a *Allocator) VolumeGone(name string) { a.gone(object{volume: true, name: name}) }

func (a *Allocator) gone(of object) {
	a.locked(func() []string {
		e := a.entries[of]
		if e == nil {
			return nil
		}
		delete(a.entries, of)
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
	return append(a.rebuilds.moved(before.rebuildOn, after.rebuildOn),
		a.upgrades.moved(before.upgradeOn, after.upgradeOn)...)
}

// ObserveSetting takes in a limit as the cache shows it.
func (a *Allocator) ObserveSetting(s *v1beta2.Setting) { a.limitIs(s.Name, s.Value) }

// SettingGone takes in that a limit is the default.
func (a *Allocator) SettingGone(name string) { a.limitIs(name, "") }

func (a *Allocator) limitIs(name, value string) {
	switch values := (setting.Values{name: value}); name {
	case setting.ConcurrentReplicaRebuildPerNodeLimit:
		a.SetRebuildLimit(values.Int(name))
	case setting.ConcurrentAutomaticEngineUpgradePerNodeLimit:
		a.SetUpgradeLimit(values.Int(name))
	}
}

// SetRebuildLimit sets the number of rebuilds of each node; 0 allows none.
func (a *Allocator) SetRebuildLimit(limit int) { a.setLimit(a.rebuilds, limit) }

// SetUpgradeLimit sets the number of upgrades of each node up to which others begin; 0 allows none.
func (a *Allocator) SetUpgradeLimit(limit int) { a.setLimit(a.upgrades, limit) }

func (a *Allocator) setLimit(p *pool, limit int) {
	a.locked(func() (nodes []string) {
		if limit == p.limit {
			return nil
		}
		p.limit = limit
		return p.queued()
	})
}

// MayRebuild tells whether a volume may start a rebuild on the node now.
func (a *Allocator) MayRebuild(volume, node string) bool { return a.may(a.rebuilds, volume, node) }

// MayUpgrade tells whether the upgrade of a volume of the node may begin now.
func (a *Allocator) MayUpgrade(volume, node string) bool { return a.may(a.upgrades, volume, node) }

func (a *Allocator) may(p *pool, volume, node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := p.may(volume, node)
	if w := p.waiter(volume, node); ok && w != nil && w.turn.IsZero() {
		w.turn = a.now()
	}
	return ok
}

// Wait says on which nodes a volume wants to rebuild, and whether MayRebuild allowed it there. The
// volume is woken when its turn comes on a node where it did not. Without nodes it wants nothing.
func (a *Allocator) Wait(volume string, wanted map[string]bool) {
	a.locked(func() []string { return a.rebuilds.wait(a.now(), volume, wanted) })
}

// WaitUpgrade is Wait for a volume that wants to be upgraded.
func (a *Allocator) WaitUpgrade(volume string, wanted map[string]bool) {
	a.locked(func() []string { return a.upgrades.wait(a.now(), volume, wanted) })
}

// Scheduled is the sum of the full sizes of all replicas on a disk, in bytes: those that the cache
// shows, and those whose place was ordered.
func (a *Allocator) Scheduled(disk string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.scheduled[disk]
}

// Reserve reserves the slot and the room that a write of rep, a modified copy of a replica, takes.
// scheduledBytes is what Scheduled said of its disk when the place, or the larger size, was chosen.
// done is to be told how the write ended; nil: slot or room are not there any more.
func (a *Allocator) Reserve(rep *v1beta2.Replica, scheduledBytes int64) (done func(error)) {
	return a.reserved(object{name: rep.Name}, rep.ResourceVersion, claimOf(rep), scheduledBytes)
}

// ReserveUpgrade is Reserve for the slot of an upgrade, of a volume with another image.
func (a *Allocator) ReserveUpgrade(v *v1beta2.Volume) (done func(error)) {
	return a.reserved(object{volume: true, name: v.Name}, v.ResourceVersion, claimOfVolume(v), 0)
}

func (a *Allocator) reserved(of object, base string, after claim, scheduledBytes int64) (done func(error)) {
	if !a.reserve(of, base, after, scheduledBytes) {
		return nil
	}
	return func(err error) { a.settle(of, base, err) }
}

// reserve assumes the change of an object, unless its room or its slot has been taken meanwhile.
func (a *Allocator) reserve(of object, base string, after claim, scheduledBytes int64) bool {
	taken := false
	a.locked(func() []string {
		e := a.entries[of]
		if e == nil || later(e.version, base) {
			return nil // the write would be refused: the object is gone or has changed
		}
		before := e.claim()
		rebuild := after.rebuildOn != "" && after.rebuildOn != before.rebuildOn
		upgrade := after.upgradeOn != "" && after.upgradeOn != before.upgradeOn
		switch {
		case after.disk != "" && (after.disk != before.disk || after.sizeBytes > before.sizeBytes) &&
			a.scheduled[after.disk] > scheduledBytes:
			return nil
		case rebuild && !a.rebuilds.may(after.volume, after.rebuildOn),
			upgrade && !a.upgrades.may(after.volume, after.upgradeOn):
			return nil
		}
		taken = true
		if e.assumed == nil || e.assumed.base != base {
			e.assumed = &assumption{base: base}
		}
		e.assumed.claim, e.assumed.ordered = after, true
		if rebuild {
			a.rebuilds.leave(after.volume, after.rebuildOn)
		}
		if upgrade {
			a.upgrades.leave(after.volume, after.upgradeOn)
		}
		return a.moved(before, after)
	})
	return taken
}

// settle is told how the write of an assumed change ended.
func (a *Allocator) settle(of object, base string, err error) {
	a.locked(func() []string {
		e := a.entries[of]
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
		a.rebuilds.returned(a.now(), before.volume, before.rebuildOn, e.claim().rebuildOn)
		a.upgrades.returned(a.now(), before.volume, before.upgradeOn, e.claim().upgradeOn)
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
		for _, e := range a.entries {
			s := e.assumed
			if s != nil && !s.ordered && !s.outdated && !s.until.IsZero() && !now.Before(s.until) {
				nodes = append(nodes, a.forget(e)...)
			}
		}
		return append(append(nodes, a.rebuilds.queued()...), a.upgrades.queued()...)
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
