// Package volume is the controller of volumes: it makes a volume's engine and replicas, decides
// where replicas go and which processes run, and keeps the number of good copies where the user
// wants it.
//
// It reads what everybody reports and writes the specs of the volume's Engine and Replica objects;
// it talks to no process. docs/design/volume.md has the states, the invariants, the decision table
// and who owns which field.
//
// One rule stands above the others: which copy is up to date is decided by the engine, never here.
// The engines of a volume run a membership protocol among the replicas; opening a volume gives the
// engine every replica that may hold data, failed ones included, and the engine answers RW or ERR
// for each. This package follows that answer.
//
// decide and everything it calls are pure. Files: decide.go (order of the steps), create.go,
// follow.go (from the engine's word to the replicas' marks), place.go (scheduling), state.go,
// open.go and close.go (the state machine), salvage.go, replenish.go, cleanup.go, delete.go.
package volume

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/concern"
	"ankole.storage/controlplane/volume/networkclaim"
	"ankole.storage/controlplane/volume/runs"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
	// NodeName is the leader's node, the owner of volumes nobody else could own.
	NodeName string
	// Allocator owns the slots for rebuilds and the room on disks.
	Allocator *allocator.Allocator
	// Keys are the master keys of what processes show each other.
	Keys *volumekey.Keys
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Reconciler looks after volumes. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	// live reads past the cache.
	live client.Reader
	runs *runs.Runs
	// since is when this process has first seen conditions of volumes as they are.
	since *firstseen.Stamps
	// claims are the storage networks of volumes that are being attached, or are.
	claims *networkclaim.Claims
	// idle are the volumes with work that waits for a node or an instance manager, and those that are
	// being looked at.
	idle *concern.Noted
	// unplaced are the volumes of which the last look found no place for some replica that is there or
	// is to be made, or no room for a larger size, or whose file system takes no writes, and those
	// that are being looked at.
	unplaced *concern.Noted
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Reconciler{cfg: cfg, runs: runs.New(), since: firstseen.New(),
		claims: networkclaim.New(), idle: concern.NewNoted(), unplaced: concern.NewNoted()}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client, r.live = c, c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Volume, seen] {
	return loop.Controller[*v1beta2.Volume, seen]{
		Name:       naming.EventSource("volume"),
		New:        func() *v1beta2.Volume { return &v1beta2.Volume{} },
		Gather:     r.gather,
		GatherAll:  r.gatherAll,
		Decide:     decide,
		Note:       r.note,
		Carry:      r.carry,
		Reserve:    r.reserve,
		Conditions: conditions,
		Now:        r.cfg.Now,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.runs.Forget(key.Name)
			r.gatherSince(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, &seen{}) // forgets
			r.claims.Forget(key.Name)
			r.idle.Note(key.Name, false)
			r.unplaced.Note(key.Name, false)
			r.cfg.Allocator.Wait(key.Name, nil)
			r.cfg.Allocator.WaitUpgrade(key.Name, nil)
		},
		Wakeups: loop.By(r.cfg.Allocator.Wakeups()),
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.Engine{}, loop.ByLabel[*v1beta2.Engine](naming.LabelVolume)),
			loop.Watching(&v1beta2.Replica{}, loop.ByLabel[*v1beta2.Replica](naming.LabelVolume)),
			loop.WatchingChanges(&v1beta2.Volume{}, loop.Changed(viewForClones), r.onClone),
			loop.WatchingChanges(&v1beta2.BackupVolume{}, loop.Changed(newestBackup),
				r.onBackupVolume),
			// A deleted volume waits for the end of its snapshots.
			loop.WatchingChanges(&v1beta2.Snapshot{}, func(_, _ *v1beta2.Snapshot) bool { return false },
				func(s *v1beta2.Snapshot) []string { return []string{s.Spec.Volume} }),
			loop.WatchingChanges(&v1beta2.VolumeAttachment{}, concern.TicketsChanged,
				loop.BySameName[*v1beta2.VolumeAttachment]()),
			loop.WatchingUpdates(&v1beta2.Node{}, func(*v1beta2.Node) []string { return r.unsettled() }, r.onNodeUpdate),
			loop.WatchingChanges(&v1beta2.InstanceManager{}, instance.Changed,
				func(*v1beta2.InstanceManager) []string { return r.unsettled() }),
			loop.WatchingChanges(&v1beta2.EngineImage{}, concern.DeploymentChanged, r.onImage),
			loop.WatchingChanges(&v1beta2.BackingImage{}, concern.SelectorsChanged,
				func(*v1beta2.BackingImage) []string { return r.unplaced.Names() }),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

func conditions(v *v1beta2.Volume) []loop.Condition {
	return loop.Conditions(slices.DeleteFunc(slices.Clone(v.Status.Conditions), func(c v1beta2.Condition) bool {
		// A True that is no good news, which the volume's state or an event of its own tells already.
		return c.Type == ConditionWaitForReplicas || c.Type == v1beta2.VolumeConditionWaitForExpansion ||
			c.Type == ConditionEngineUpgrade || c.Type == ConditionEviction ||
			c.Type == v1beta2.VolumeConditionTooManySnapshots || c.Type == v1beta2.VolumeConditionHasContent ||
			c.Type == v1beta2.ConditionReplicaFilesLost || c.Type == v1beta2.VolumeConditionDeviceKept ||
			c.Type == v1beta2.VolumeConditionNoSpace || c.Type == v1beta2.VolumeConditionBackupDamage
	}))
}

// claimNetwork is the only order about a volume.
type claimNetwork struct{}

func (r *Reconciler) carry(ctx context.Context, v *v1beta2.Volume, _ seen, _ any) error {
	return r.claims.Claim(ctx, networkclaim.API{Client: r.client, Live: r.live, Now: r.cfg.Now()}, v)
}

// reserve takes the slot or the room that the write of a replica or of the volume needs.
func (r *Reconciler) reserve(_ context.Context, _ *v1beta2.Volume, s seen, change loop.Change) (func(error), error) {
	if rep, ok := change.(loop.Update).Object.(*v1beta2.Replica); ok {
		return r.cfg.Allocator.Reserve(rep, s.ScheduledBytes[rep.Spec.DiskID]), nil
	}
	return r.cfg.Allocator.ReserveUpgrade(change.(loop.Update).Object.(*v1beta2.Volume)), nil
}

// notes are what is remembered of a volume until the next look: whether it has work that waits, or
// lacks a place or room, and on which nodes it wants to rebuild and to be upgraded. A pass that
// ended before the last two questions leaves the answer of the last one in force.
type notes struct {
	idle, unplaced            bool
	slotsAsked, upgradesAsked bool
	slots, upgradeSlots       map[string]bool
}

func decide(now time.Time, v *v1beta2.Volume, s seen) loop.Decision {
	p, d := judge(now, v, s)
	if p.nodes.lacks {
		return loop.Decision{Lacks: true}
	}
	d.Note = notes{
		idle:       p.workWaits || (v.Status.State == v1beta2.VolumeStateAttached && p.balances()),
		unplaced:   p.lacksPlace() || p.lacksRoom || p.noRoom != "" || p.takesNoWrites(),
		slotsAsked: p.slotsAsked || d.Do == nil, slots: p.slots,
		upgradesAsked: p.upgradeSlots != nil || d.Do == nil, upgradeSlots: p.upgradeSlots,
	}
	return d
}

func (r *Reconciler) note(v *v1beta2.Volume, note any) {
	n := note.(notes)
	r.idle.Note(v.Name, n.idle)
	r.unplaced.Note(v.Name, n.unplaced)
	if n.slotsAsked {
		r.cfg.Allocator.Wait(v.Name, n.slots)
	}
	if n.upgradesAsked {
		r.cfg.Allocator.WaitUpgrade(v.Name, n.upgradeSlots)
	}
}

// onSetting wakes all volumes for the settings by which a resting volume gets work.
func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.OfflineReplicaRebuilding, setting.ReplicaAutoBalance, setting.SnapshotCountWarningThreshold,
		setting.ReplicaRebuildConcurrentSyncLimit:
		return r.names(nil, func(*v1beta2.Volume) bool { return true })
	case setting.DefaultEngineImage, setting.ConcurrentAutomaticEngineUpgradePerNodeLimit:
		if values, err := stored.Read(context.Background(), r.client, r.cfg.Namespace); err == nil {
			return append(r.unsettled(), r.outdated(values)...)
		}
	}
	return r.unsettled()
}

// onNodeUpdate wakes every volume that is not settled when a node can be used otherwise than
// before. Of its room, which changes with each replica that comes and goes, only those hear that
// lack some.
func (r *Reconciler) onNodeUpdate(before, after *v1beta2.Node) []string {
	if concern.NodeChanged(before, after) {
		return r.unsettled()
	}
	return r.unplaced.Names()
}

// unsettled names the volumes that a change of nodes, instance managers, images or settings may
// concern: those that do not rest, and those whose work waits. Thousands of others cost nothing.
func (r *Reconciler) unsettled() []string {
	names := r.names(index.Unsettled(), func(*v1beta2.Volume) bool { return true })
	return append(names, r.idle.Names()...)
}

// onImage wakes the volumes to which it matters where an image is, and those that may be brought to
// it by themselves.
func (r *Reconciler) onImage(ei *v1beta2.EngineImage) []string {
	names := r.unsettled()
	values, err := stored.Read(context.Background(), r.client, r.cfg.Namespace)
	if err == nil && values.String(setting.DefaultEngineImage) == ei.Spec.Image {
		names = append(names, r.outdated(values)...)
	}
	return names
}

// outdated names the volumes that automatic upgrades are for.
func (r *Reconciler) outdated(values setting.Values) []string {
	if values.Int(setting.ConcurrentAutomaticEngineUpgradePerNodeLimit) <= 0 {
		return nil
	}
	image := values.String(setting.DefaultEngineImage)
	return r.names(nil, func(v *v1beta2.Volume) bool { return v.Spec.Image != image })
}

// names lists the volumes of which ok holds, of all or of those that an index selects.
func (r *Reconciler) names(which client.ListOption, ok func(*v1beta2.Volume) bool) []string {
	options := []client.ListOption{client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy}
	if which != nil {
		options = append(options, which)
	}
	var list v1beta2.VolumeList
	if err := r.client.List(context.Background(), &list, options...); err != nil {
		return nil // the cache does not fail; unsettled volumes also look again by themselves
	}
	var out []string
	for i := range list.Items {
		if ok(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}
