// Package integrity has the data of snapshots checked: after a snapshot was taken, on a schedule,
// or because somebody asked for it. Engines do the work (SnapshotHash: read, compare, mend); this
// package decides when, one snapshot at a time on a node, and writes the checksums into the
// Snapshot objects. It reconciles Volumes.
//
// decide is pure; docs/design/snapshots.md, section Integrity, has the decision table.
package integrity

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Engines is what is asked of engines.
type Engines interface {
	// SnapshotHash begins to compute the checksum of a snapshot on every replica in sync; see
	// engineclient.EngineClient.
	SnapshotHash(ctx context.Context, t engineclient.Target, name string, rehash bool) error
	// SnapshotHashStatus tells the progress or result by replica address.
	SnapshotHashStatus(ctx context.Context, t engineclient.Target, name string) (map[string]engineclient.Hash, error)
}

// Reconciler has the data of snapshots checked. Use New.
type Reconciler struct {
	namespace string
	engines   Engines
	client    client.Client

	mu sync.Mutex
	// checks under way, by name of the volume.
	checks map[string]check
	// tried is when the last check without a result has ended, by volume, then by UID of the
	// snapshot.
	tried map[string]map[types.UID]time.Time
}

// check of a snapshot that an engine was told to make.
type check struct {
	// Snapshot is the UID of the object, Name its name; Parent is the layer below when it began.
	Snapshot     types.UID
	Name, Parent string
	// Node of the engine; Engine is the UUID of its process.
	Node, Engine string
	// Regular: the snapshot is due by the schedule. Begun is when, in whole seconds.
	Regular bool
	Begun   time.Time
	// Hashes are the replicas' parts as told last, by address.
	Hashes map[string]engineclient.Hash
}

// New returns the reconciler; engines reaches the engines.
func New(namespace string, engines Engines) *Reconciler {
	return &Reconciler{namespace: namespace, engines: engines, checks: map[string]check{},
		tried: map[string]map[types.UID]time.Time{}}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Volume, seen] {
	return loop.Controller[*v1beta2.Volume, seen]{
		Name:    naming.EventSource("snapshot-integrity"),
		New:     func() *v1beta2.Volume { return &v1beta2.Volume{} },
		Gather:  r.gather,
		Carry:   r.carry,
		Reserve: r.reserve,
		Decide:  decide,
		Gone:    func(_ context.Context, key client.ObjectKey) { r.forget(key.Name) },
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.Engine{}, loop.Changed(process),
				func(e *v1beta2.Engine) []string { return []string{e.Spec.VolumeName} }),
			loop.WatchingChanges(&v1beta2.Snapshot{}, loop.Changed(checked),
				func(s *v1beta2.Snapshot) []string { return []string{s.Spec.Volume} }),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

// processShape is what of an engine decides whether it can be asked.
type processShape struct {
	state      v1beta2.InstanceState
	uuid, ip   string
	port, size int
}

func process(e *v1beta2.Engine) processShape {
	return processShape{e.Status.CurrentState, e.Status.UUID, e.Status.IP, e.Status.Port, len(e.Status.Snapshots)}
}

// snapshotShape is what of a snapshot decides whether it is due.
type snapshotShape struct {
	created, checked, parent string
	removed                  bool
}

func checked(s *v1beta2.Snapshot) snapshotShape {
	st := &s.Status
	return snapshotShape{st.CreationTime, st.ChecksumCalculatedAt, st.Parent, st.MarkRemoved}
}

// onSetting wakes all volumes where a setting of checks has changed.
func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.SnapshotDataIntegrity, setting.SnapshotDataIntegrityCronJob,
		setting.SnapshotDataIntegrityImmediateCheckAfterSnapshotCreation:
	default:
		return nil
	}
	var list v1beta2.VolumeList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

// seen is what decide looks at besides the volume.
type seen struct {
	// Engine is the active one. Reachable says whether orders reach it; if not, nothing else is set.
	Engine    *v1beta2.Engine
	Reachable bool
	Snapshots []*v1beta2.Snapshot
	Mode      v1beta2.SnapshotDataIntegrity
	// Immediate: a snapshot is checked as soon as it is taken.
	Immediate bool
	Schedule  setting.Schedule
	// Check is the one under way, nil if none is. NodeBusy: one of another volume is, on the node.
	Check    *check
	NodeBusy bool
	// Node is the one of the engine, nil if it is gone; set during a regular check only.
	Node *v1beta2.Node
	// Tried is when checks without a result have ended, by UID of the snapshot.
	Tried map[types.UID]time.Time
}

// The orders that decide names.
type (
	startOrder struct {
		Snapshot *v1beta2.Snapshot
		// Regular: it is due by the schedule.
		Regular bool
		At      time.Time
	}
	// askOrder fetches the replicas' parts of the check under way, endOrder ends it without a result.
	askOrder struct{ At time.Time }
	endOrder struct{ At time.Time }
)

func (r *Reconciler) carry(ctx context.Context, v *v1beta2.Volume, g seen, order any) error {
	target, _ := engine.Target(g.Engine)
	switch o := order.(type) {
	case startOrder:
		return r.start(ctx, target, g, o)
	case askOrder:
		return r.ask(ctx, o.At, target)
	case endOrder:
		r.end(v.Name, o.At, true)
		return nil
	}
	return fmt.Errorf("volume %s: nobody carries out %T", v.Name, order)
}

// reserve has a check end with the write of its result: ended earlier it would be lost with it,
// later it would be written again.
func (r *Reconciler) reserve(_ context.Context, v *v1beta2.Volume, g seen, _ loop.Change) (func(error), error) {
	return func(err error) {
		if err == nil {
			verdict, _ := result(g.Check.Hashes)
			count(verdict, g.Check.Hashes)
			r.end(v.Name, time.Time{}, false)
		}
	}, nil
}

func (r *Reconciler) gather(ctx context.Context, v *v1beta2.Volume) (seen, error) {
	var g seen
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(v.Namespace), index.OfVolume(v.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list engines of volume %s: %w", v.Name, err)
	}
	for i := range engines.Items {
		if engines.Items[i].Spec.Active {
			g.Engine = &engines.Items[i]
		}
	}
	if g.Engine != nil {
		_, g.Reachable = engine.Target(g.Engine)
	}
	if !g.Reachable {
		r.forget(v.Name)
		return g, nil
	}
	var list v1beta2.SnapshotList
	if err := r.client.List(ctx, &list, client.InNamespace(v.Namespace), index.OfVolume(v.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list snapshots of volume %s: %w", v.Name, err)
	}
	for i := range list.Items {
		g.Snapshots = append(g.Snapshots, &list.Items[i])
	}
	if err := r.gatherSettings(ctx, v, &g); err != nil {
		return g, err
	}
	r.gatherChecks(v.Name, &g)
	return g, r.gatherNode(ctx, v.Namespace, &g)
}

func (r *Reconciler) gatherSettings(ctx context.Context, v *v1beta2.Volume, g *seen) error {
	values, err := stored.Read(ctx, r.client, v.Namespace)
	if err != nil {
		return err
	}
	g.Mode = v.Spec.SnapshotDataIntegrity
	if g.Mode == "" || g.Mode == v1beta2.SnapshotDataIntegrityIgnored {
		g.Mode = v1beta2.SnapshotDataIntegrity(values.String(setting.SnapshotDataIntegrity))
	}
	g.Immediate = values.Bool(setting.SnapshotDataIntegrityImmediateCheckAfterSnapshotCreation)
	g.Schedule, err = setting.ParseCron(values.String(setting.SnapshotDataIntegrityCronJob))
	return err
}

// gatherChecks finds the check under way. One that another process of the engine was told is
// forgotten: this one knows of none.
func (r *Reconciler) gatherChecks(volume string, g *seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.checks[volume]; ok && c.Engine == g.Engine.Status.UUID {
		g.Check = &c
	} else {
		delete(r.checks, volume)
	}
	g.NodeBusy = r.busy(g.Engine)
	g.Tried = maps.Clone(r.tried[volume])
}

// gatherNode reads the node of a regular check.
func (r *Reconciler) gatherNode(ctx context.Context, namespace string, g *seen) error {
	if g.Check == nil || !g.Check.Regular {
		return nil
	}
	var n v1beta2.Node
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: g.Check.Node}, &n)
	switch {
	case err == nil:
		g.Node = &n
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get node %s: %w", g.Check.Node, err)
	}
	return nil
}

// busy says whether a check of another volume is under way on the engine's node. The caller holds
// the lock.
func (r *Reconciler) busy(e *v1beta2.Engine) bool {
	for volume, c := range r.checks {
		if volume != e.Spec.VolumeName && c.Node == e.Spec.NodeID {
			return true
		}
	}
	return false
}

// start has the engine begin a check.
//
// Crash window: a manager that ends forgets what it has ordered. The next one orders it again,
// which changes nothing for an engine that is at it.
func (r *Reconciler) start(ctx context.Context, t engineclient.Target, g seen, o startOrder) error {
	e, s := g.Engine, o.Snapshot
	c := check{Snapshot: s.UID, Name: s.Name, Parent: s.Status.Parent, Node: e.Spec.NodeID, Engine: e.Status.UUID,
		Regular: o.Regular, Begun: o.At.Truncate(time.Second)}
	r.mu.Lock()
	busy := r.busy(e)
	if !busy {
		r.checks[s.Spec.Volume] = c
	}
	r.mu.Unlock()
	if busy {
		return nil // another worker was faster; the loop looks again
	}
	err := r.engines.SnapshotHash(ctx, t, s.Name, g.Mode == v1beta2.SnapshotDataIntegrityEnabled)
	if err != nil {
		r.end(s.Spec.Volume, o.At, true)
		return fmt.Errorf("check snapshot %s: %w", s.Name, err)
	}
	return nil
}

// ask fetches the replicas' parts.
func (r *Reconciler) ask(ctx context.Context, now time.Time, t engineclient.Target) error {
	r.mu.Lock()
	c := r.checks[t.Volume]
	r.mu.Unlock()
	hashes, err := r.engines.SnapshotHashStatus(ctx, t, c.Name)
	if err != nil {
		r.end(t.Volume, now, true)
		return fmt.Errorf("checksum of snapshot %s: %w", c.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.checks[t.Volume]; ok && have.Snapshot == c.Snapshot && have.Engine == c.Engine {
		have.Hashes = hashes
		r.checks[t.Volume] = have
	}
	return nil
}

// end forgets the check of a volume, and remembers for a while that it has failed.
func (r *Reconciler) end(volume string, now time.Time, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.checks[volume]
	delete(r.checks, volume)
	delete(r.tried[volume], c.Snapshot)
	if ok && failed {
		checks.WithLabelValues(void.String()).Inc()
		if r.tried[volume] == nil {
			r.tried[volume] = map[types.UID]time.Time{}
		}
		r.tried[volume][c.Snapshot] = now
	}
}

// forget drops what is held for a volume.
func (r *Reconciler) forget(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.checks, volume)
	delete(r.tried, volume)
}
