// Package snapshot is the controller of Snapshot objects. A snapshot is the content of a volume at
// one moment, which its engine keeps as a layer below the newer writes.
//
// An object with spec.createSnapshot orders a snapshot; for every other snapshot that an engine has
// the engine controller makes an object. This package has engines take what is ordered, copies what
// engines say of their snapshots into the objects, and has engines give up what is deleted: a
// snapshot is marked as removed and the next purge merges its layer into the one above. A volume
// that nobody uses is attached meanwhile, by a ticket for each object that needs its engine.
//
// decide is pure; docs/design/snapshots.md has the states, the decision table and what ends each
// wait. Calls is how others, the REST server above all, have engines work on snapshots.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/controlplane/volume/copies"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
}

// Reconciler looks after snapshots. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	calls  Calls

	mu sync.Mutex
	// tried is the last order to an engine for a snapshot, by UID of its object.
	tried map[types.UID]attempt
	uids  map[string]types.UID
	// asked are the volumes whose engine has been given an order and has not answered yet.
	asked map[string]bool
}

// attempt is an order that an engine was given.
type attempt struct {
	// Of is the engine as it was (outline); Refusal is its answer, empty if it accepted.
	Of, Refusal string
	// Impossible is the image whose engines will never accept it.
	Impossible string
	At         time.Time
	// Looked: the engine was asked for its snapshots, and There says whether this one is among them.
	Looked, There bool
}

// New returns the reconciler; engines reaches the engines.
func New(cfg Config, engines Engines) *Reconciler {
	return &Reconciler{cfg: cfg, calls: Calls{Engines: engines},
		tried: map[types.UID]attempt{}, uids: map[string]types.UID{}, asked: map[string]bool{}}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	//lint:ignore SA1019 clients of the reference read core/v1 events, which only the old recorder writes
	r.calls.Events = mgr.GetEventRecorderFor(naming.EventSource("engine"))
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Snapshot, seen] {
	return loop.Controller[*v1beta2.Snapshot, seen]{
		Name:   naming.EventSource("snapshot"),
		New:    func() *v1beta2.Snapshot { return &v1beta2.Snapshot{} },
		Gather: r.gather,
		Decide: decide,
		Carry:  r.carry,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.forget(key.Name) },
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.Volume{}, loop.Changed(volumeView), r.onVolume),
			loop.WatchingChanges(&v1beta2.VolumeAttachment{}, ticketsChanged, func(a *v1beta2.VolumeAttachment) []string {
				return r.unsettled(index.OfVolume(a.Spec.Volume))
			}),
			loop.WatchingUpdates(&v1beta2.Engine{}, r.onEngine, r.onEngineUpdate),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(condition.CopiesView), func(*v1beta2.Node) []string {
				return r.unsettled()
			}),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

// seen is what decide looks at besides the snapshot.
type seen struct {
	// Volume, Attachment and Engine (the active one) are nil if there is none.
	Volume     *v1beta2.Volume
	Attachment *v1beta2.VolumeAttachment
	Engine     *v1beta2.Engine
	// Reachable says whether orders reach the engine.
	Reachable bool
	// At is where a volume that is attached nowhere would be attached.
	At Place
	// Lacks says why no engine could serve the volume now; empty if one could.
	Lacks string
	// PurgeDisabled is the setting disable-snapshot-purge. Crowded: as many purges run on the
	// engine's node as may.
	PurgeDisabled, Crowded bool
	// ReadBy is a volume that is still to be filled with the snapshot, empty if none is.
	ReadBy string
	// CopyOver: the snapshot was taken for a copy that is over, or whose volume is gone.
	CopyOver bool
	// Tried is the last order for this snapshot. Asked: the engine has not answered an order yet, for
	// this snapshot or another one.
	Tried attempt
	Asked bool
	// Freeze: the file system on the volume is frozen while the snapshot is taken.
	Freeze bool
}

// order is what decide has carried out at the engine.
type order string

const (
	orderTake   order = "take"
	orderLook   order = "look"
	orderRemove order = "remove"
	orderPurge  order = "purge"
)

func (r *Reconciler) carry(ctx context.Context, s *v1beta2.Snapshot, g seen, what any) error {
	return r.apart(ctx, s, func(ctx context.Context) error {
		switch what {
		case orderTake:
			return r.noted(s, g.Engine, r.calls.Take(ctx, g.Engine, s.Name, s.Spec.Labels, g.Freeze))
		case orderLook:
			return r.look(ctx, s, g.Engine)
		case orderRemove:
			return r.noted(s, g.Engine, r.calls.Remove(ctx, g.Engine, s.Name))
		case orderPurge:
			return r.noted(s, g.Engine, r.calls.Purge(ctx, g.Engine))
		}
		return fmt.Errorf("snapshot %s: nobody carries out %v", s.Name, what)
	})
}

func (r *Reconciler) gather(ctx context.Context, s *v1beta2.Snapshot) (seen, error) {
	g := seen{}
	var v v1beta2.Volume
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Volume}, &v,
		client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return g, nil
	case err != nil:
		return g, fmt.Errorf("get volume %s: %w", s.Spec.Volume, err)
	}
	g.Volume = &v
	var a v1beta2.VolumeAttachment
	switch err := r.client.Get(ctx, client.ObjectKeyFromObject(&v), &a, client.UnsafeDisableDeepCopy); {
	case err == nil:
		g.Attachment = &a
	case !apierrors.IsNotFound(err):
		return g, fmt.Errorf("get attachment of volume %s: %w", v.Name, err)
	}
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list engines: %w", err)
	}
	for i := range engines.Items {
		if e := &engines.Items[i]; e.Spec.VolumeName == v.Name && (g.Engine == nil || e.Spec.Active) {
			g.Engine = e
		}
	}
	if err := r.gatherNodes(ctx, &v, &g); err != nil {
		return g, err
	}
	if err := r.gatherCopies(ctx, s, &g); err != nil {
		return g, err
	}
	settings, err := stored.Read(ctx, r.client, s.Namespace)
	if err != nil {
		return g, err
	}
	g.PurgeDisabled = settings.Bool(setting.DisableSnapshotPurge)
	g.Crowded = g.Engine.Crowded(engines.Items, settings.Int(setting.SnapshotHeavyTaskConcurrentLimit))
	_, g.Reachable = r.calls.target(g.Engine)
	g.Asked = r.unanswered(v.Name) // before what the order has left is read
	g.Tried = r.attempt(s)
	g.Freeze = v.Spec.FreezeFilesystemForSnapshot.Or(settings.Bool(setting.FreezeFilesystemForSnapshot))
	return g, nil
}

// gatherCopies finds who is being filled with the snapshot; it matters where that is to be given
// up, or was taken for it.
func (r *Reconciler) gatherCopies(ctx context.Context, s *v1beta2.Snapshot, g *seen) error {
	forCopy := g.Engine != nil && g.Engine.Status.Snapshots[s.Name].Labels[naming.LabelForCloningVolume] != ""
	if s.DeletionTimestamp == nil && !forCopy {
		return nil
	}
	var copies v1beta2.VolumeList
	if err := r.client.List(ctx, &copies, client.InNamespace(s.Namespace), index.ClonedFrom(s.Spec.Volume),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list volumes filled from %s: %w", s.Spec.Volume, err)
	}
	for i := range copies.Items {
		if v := &copies.Items[i]; clone.Holds(v, s.Spec.Volume, s.Name) && (g.ReadBy == "" || v.Name < g.ReadBy) {
			g.ReadBy = v.Name
		}
	}
	g.CopyOver = forCopy && g.ReadBy == ""
	return nil
}

// Place is where a volume that nobody uses would be attached.
type Place struct {
	// Node is empty if there is none; Up are the nodes that are not down.
	Node string
	Up   map[string]bool
}

// PlaceOf finds where a volume that nobody uses would be attached: beside one of its replicas, or
// where its owner is if none of them has a place yet.
func PlaceOf(v *v1beta2.Volume, nodes []v1beta2.Node, replicas []v1beta2.Replica) Place {
	up := map[string]bool{}
	for i := range nodes {
		up[nodes[i].Name] = !condition.NodeDown(&nodes[i])
	}
	p := Place{Up: up}
	placed := false
	for i := range replicas {
		n, failed := replicas[i].Spec.NodeID, replicas[i].Spec.FailedAt != ""
		placed = placed || n != ""
		if up[n] && !failed && (p.Node == "" || n < p.Node) {
			p.Node = n
		}
	}
	if !placed && up[v.Status.OwnerID] {
		p.Node = v.Status.OwnerID
	}
	return p
}

// gatherNodes finds where a volume that nobody uses would be attached.
func (r *Reconciler) gatherNodes(ctx context.Context, v *v1beta2.Volume, g *seen) error {
	var nodes v1beta2.NodeList
	if err := r.client.List(ctx, &nodes, client.InNamespace(v.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, client.InNamespace(v.Namespace), index.OfVolume(v.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list replicas of volume %s: %w", v.Name, err)
	}
	g.At = PlaceOf(v, nodes.Items, replicas.Items)
	if g.Engine != nil {
		g.Lacks = copies.Of(v, []v1beta2.Engine{*g.Engine}, replicas.Items, nodes.Items).Lacks()
	}
	return nil
}

// noted remembers the outcome of an order. A refusal is no failure of the loop, which would repeat
// it: what it waits for is a change of the engine.
func (r *Reconciler) noted(s *v1beta2.Snapshot, e *v1beta2.Engine, err error) error {
	t := attempt{Of: outline(e), At: time.Now()}
	refused := errors.Is(err, engineclient.ErrPrecondition) || errors.Is(err, engineclient.ErrInvalid) ||
		errors.Is(err, engineclient.ErrNotFound)
	if refused {
		t.Refusal = err.Error()
		if errors.Is(err, engineclient.ErrInvalid) {
			t.Impossible = e.Spec.Image
		}
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried[s.UID], r.uids[s.Name] = t, s.UID
	return err
}

// look asks the engine for its snapshots, and remembers whether this one is among them. One that an
// order waits for shows in no list; the engine refuses to remove anything meanwhile, and the look
// fails. What was taken between the two questions is marked as removed.
func (r *Reconciler) look(ctx context.Context, s *v1beta2.Snapshot, e *v1beta2.Engine) error {
	all, err := r.calls.List(ctx, e)
	if err != nil {
		return err
	}
	_, there := all[s.Name]
	if !there {
		err := r.calls.Remove(ctx, e, s.Name)
		there = err == nil
		if !there && !errors.Is(err, engineclient.ErrNotFound) && !errors.Is(err, engineclient.ErrInvalid) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried[s.UID], r.uids[s.Name] = attempt{Of: outline(e), At: time.Now(), Looked: true, There: there}, s.UID
	return nil
}

func (r *Reconciler) attempt(s *v1beta2.Snapshot) attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tried[s.UID]
}

// unanswered says whether the engine of a volume has not answered its last order yet.
func (r *Reconciler) unanswered(volume string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[volume]
}

// answerWait is how long a look at a snapshot waits for the answer of its engine: others wait for
// their look.
const answerWait = 2 * time.Second

// apart carries out a call to an engine. One that is not answered soon goes on without anybody who
// waits for it, so that engines that hang hold up no other volume: each has one call at most. What
// the call remembers of its outcome is found by a later look. The context of a look ends
// with it; a call ends with its own bound.
func (r *Reconciler) apart(ctx context.Context, s *v1beta2.Snapshot, call func(context.Context) error) error {
	r.mu.Lock()
	asked := r.asked[s.Spec.Volume]
	r.asked[s.Spec.Volume] = true
	r.mu.Unlock()
	if asked {
		return nil
	}
	answer := make(chan error, 1)
	go func() {
		err := call(context.WithoutCancel(ctx))
		r.mu.Lock()
		delete(r.asked, s.Spec.Volume)
		r.mu.Unlock()
		answer <- err
	}()
	soon := time.NewTimer(answerWait)
	defer soon.Stop()
	select {
	case err := <-answer:
		return err
	case <-soon.C:
		return nil
	}
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tried, r.uids[name])
	delete(r.uids, name)
}

// outline is what of an engine decides whether it accepts an order about snapshots.
func outline(e *v1beta2.Engine) string {
	if e == nil {
		return ""
	}
	st := &e.Status
	var b strings.Builder
	fmt.Fprint(&b, st.CurrentState, st.UUID, st.IP, st.Port, st.IsExpanding, st.CurrentSize, st.SnapshotMaxCount,
		st.SnapshotMaxSize, st.SnapshotsError, st.ReplicaModeMap, e.Purging())
	for _, name := range sortedKeys(st.Snapshots) {
		s := st.Snapshots[name]
		fmt.Fprint(&b, name, s.Parent, s.Removed)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
