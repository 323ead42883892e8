// Package replica runs the processes of replicas and removes their data.
//
// A replica is one copy of a volume: a directory <disk>/replicas/<dataDirectoryName> and the
// process that serves it. The volume controller decides everything about a Replica's spec: where it
// is, whether its process should run, whether it failed. This package only carries that out, in two
// reconcilers:
//
//   - Reconciler, on the leader: derives status from the instance manager of the replica's node and
//     starts or stops the process (package instance).
//   - Agent, on every node: once a deleted Replica of its node is stopped, it removes the data
//     directory and then the finalizer. If the node is gone, Reconciler removes the finalizer and
//     the directory stays behind as an orphan.
package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/live"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/copies"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
	// NodeName is the leader's node, the owner of replicas that have no place yet.
	NodeName string
	// Logs reads the logs of replicas; nil: none is read.
	Logs instance.LogReader
	// Heard is what instance managers say of their processes.
	Heard *heard.Lists
	// Keys yield what the processes of a volume show each other.
	Keys *volumekey.Keys
}

// Reconciler runs replica processes. Use New.
type Reconciler struct {
	cfg       Config
	client    client.Client
	live      client.Reader
	processes instance.Processes
	logs      *instance.Logs
	// managerLost are nodes without a working manager Pod.
	managerLost *firstseen.Stamps
}

// New returns the reconciler; processes reaches the instance managers.
func New(cfg Config, processes instance.Processes) *Reconciler {
	return &Reconciler{cfg: cfg, processes: processes, logs: instance.NewLogs(cfg.Logs), managerLost: firstseen.New()}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// seen is what decide looks at besides the replica.
type seen struct {
	// Managers have the lists that were heard from them; Silent are those without, by name.
	Managers []v1beta2.InstanceManager
	Silent   map[string]bool
	// Young: a process of the replica has begun to start a moment ago.
	Young bool
	// Node is the replica's node, nil if it has none or that is gone; NodeDown: it is down or gone.
	Node *v1beta2.Node
	// ManagerLostSince is when this process has seen first that the node has no working manager Pod.
	ManagerLostSince time.Time
	NodeDown         bool
	// InUse: an engine has the replica among its own, as far as is known, or the volume of a deleted
	// replica cannot do without it.
	InUse bool
	// Holds says why a deleted replica's object must stay; empty if it may go.
	Holds string
	// Image of the instance managers that new processes go to.
	Image string
	// Owner of a replica without a place.
	Owner string
	// Backing is the image below the replica.
	Backing backing
	// Rebuild is what the volume's engines say of the replica's rebuild.
	Rebuild rebuild
	// Answer is what the instance manager says of a process that it does not list.
	Answer instance.Answer
	// Log is what has become of a request for the replica's log.
	Log instance.LogAnswer
}

// The orders that decide names.
type (
	startOrder struct{ In *v1beta2.InstanceManager }
	// stopOrder ends a process of the replica's name.
	stopOrder struct {
		In   *v1beta2.InstanceManager
		UUID string
	}
	// logOrder has the end of the log of the replica's process copied.
	logOrder struct{ In *v1beta2.InstanceManager }
)

func (r *Reconciler) carry(ctx context.Context, rep *v1beta2.Replica, s seen, order any) error {
	switch o := order.(type) {
	case startOrder:
		return r.start(ctx, rep, s, o.In)
	case stopOrder:
		return r.processes.Delete(ctx, o.In, rep.Name, o.UUID)
	case logOrder:
		return r.logs.Fetch(ctx, o.In, rep.Name, string(rep.UID))
	}
	return fmt.Errorf("replica %s: nobody carries out %T", rep.Name, order)
}

func (r *Reconciler) start(ctx context.Context, rep *v1beta2.Replica, s seen, im *v1beta2.InstanceManager) error {
	secret, err := r.cfg.Keys.Named(ctx, r.client, rep.Spec.VolumeName)
	if err != nil {
		return err
	}
	var v v1beta2.Volume
	err = r.client.Get(ctx, client.ObjectKey{Namespace: r.cfg.Namespace, Name: rep.Spec.VolumeName}, &v)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.processes.Create(ctx, im, process(rep, instance.StorageIP(im), secret, v.Spec.Encrypted, s.Backing.Path))
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Replica, seen] {
	return loop.Controller[*v1beta2.Replica, seen]{
		Name:   naming.EventSource("replica"),
		New:    func() *v1beta2.Replica { return &v1beta2.Replica{} },
		Gather: r.gather,
		Decide: decide,
		Carry:  r.carry,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.logs.Forget(key.Name) },
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.InstanceManager{}, instance.Changed, r.onManager),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(readiness), r.onNode),
			loop.WatchingChanges(&v1beta2.BackingImage{}, copiesChanged, r.onImage),
			// A deleted replica waits until its engine has removed it from the set of replicas; of the
			// others the engine tells how their rebuild ended.
			loop.WatchingUpdates(&v1beta2.Engine{}, r.onEngine, func(before, after *v1beta2.Engine) []string {
				return append(r.onEngine(after), rebuilt(before, after)...)
			}),
		},
		Wakeups: []loop.Wakeups{{From: r.cfg.Heard.Replicas(), Names: r.onHeard}},
	}
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client, r.live = c, c
	return r
}

func (r *Reconciler) gather(ctx context.Context, rep *v1beta2.Replica) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Log: r.logs.Answer(rep.Name, string(rep.UID), rep.Spec.LogRequested)}
	settings, err := stored.Read(ctx, r.client, rep.Namespace)
	if err != nil {
		return s, err
	}
	s.Image = settings.String(setting.DefaultInstanceManagerImage)
	if s.Managers, s.Silent, err = r.cfg.Heard.Near(ctx, r.client, rep.Namespace, rep.Name, rep.Spec.NodeID,
		rep.Status.InstanceManagerName); err != nil {
		return s, err
	}
	s.Young = r.cfg.Heard.Starting(rep.Name)
	im := instance.Choose(s.Managers, rep.Status.InstanceManagerName, rep.Spec.NodeID, s.Image)
	if rep.Spec.DesireState != v1beta2.InstanceStateRunning || rep.DeletionTimestamp != nil {
		s.Answer = instance.Ask(ctx, r.processes, im, rep.Name, &rep.Status.InstanceStatus)
	}
	if s.Backing, err = r.backing(ctx, rep); err != nil {
		return s, err
	}
	if rep.Spec.NodeID != "" {
		var node v1beta2.Node
		err := r.client.Get(ctx, client.ObjectKey{Namespace: rep.Namespace, Name: rep.Spec.NodeID}, &node,
			client.UnsafeDisableDeepCopy)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return s, fmt.Errorf("get node %s: %w", rep.Spec.NodeID, err)
		case err != nil:
			s.NodeDown = true
		default:
			s.Node, s.NodeDown = &node, condition.NodeDown(&node)
			s.ManagerLostSince = r.managerLost.At(time.Now(), node.Name, condition.ManagerStamp(&node))
		}
	}
	if rep.DeletionTimestamp == nil {
		s.Rebuild, err = r.rebuild(ctx, rep)
		return s, err
	}
	set, engines, err := readCopies(ctx, r.live, rep)
	if err != nil {
		return s, err
	}
	s.Holds, s.InUse = set.Holds(rep), set.Serves(rep) != ""
	for i := range engines {
		s.InUse = s.InUse || usedBy(&engines[i], rep.Name)
	}
	return s, nil
}

// usedBy says whether an engine has a replica among its own. One that cannot be observed may serve
// on with those that it had, and would lose a replica that it cannot drop without the witness.
func usedBy(e *v1beta2.Engine, replica string) bool {
	switch e.Status.CurrentState {
	case v1beta2.InstanceStateStopped, v1beta2.InstanceStateError, "":
		return false
	}
	mode, listed := e.Status.ReplicaModeMap[replica]
	return listed && mode != v1beta2.ReplicaModeERR
}

// rebuild reads what the engines of a replica's volume say of its rebuild. An engine that has it in
// sync decides.
func (r *Reconciler) rebuild(ctx context.Context, rep *v1beta2.Replica) (rebuild, error) {
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(rep.Namespace), index.OfVolume(rep.Spec.VolumeName),
		client.UnsafeDisableDeepCopy); err != nil {
		return rebuild{}, fmt.Errorf("list engines of volume %s: %w", rep.Spec.VolumeName, err)
	}
	var out rebuild
	for i := range engines.Items {
		told := rebuildOf(&engines.Items[i], rep.Name)
		out.Done = out.Done || told.Done
		if told.Error != "" {
			out.Error = told.Error
		}
	}
	return out, nil
}

// readCopies reads what decides about a deleted replica: its volume, with all engines and replicas,
// and the nodes that those are on.
// The reader should read live.
func readCopies(ctx context.Context, c client.Reader, rep *v1beta2.Replica) (copies.Set, []v1beta2.Engine, error) {
	volume := &v1beta2.Volume{}
	key := client.ObjectKey{Namespace: rep.Namespace, Name: rep.Spec.VolumeName}
	switch err := c.Get(ctx, key, volume); {
	case client.IgnoreNotFound(err) != nil:
		return copies.Set{}, nil, fmt.Errorf("get volume %s: %w", key.Name, err)
	case err != nil, VolumeUID(rep) != "" && string(volume.UID) != VolumeUID(rep):
		volume = nil // gone, or another one of the same name
	}
	of := []client.ListOption{client.InNamespace(rep.Namespace),
		client.MatchingLabels(naming.VolumeLabels(rep.Spec.VolumeName))}
	var engines v1beta2.EngineList
	if err := c.List(ctx, &engines, of...); err != nil {
		return copies.Set{}, nil, fmt.Errorf("list engines of volume %s: %w", key.Name, err)
	}
	var replicas v1beta2.ReplicaList
	if err := c.List(ctx, &replicas, of...); err != nil {
		return copies.Set{}, nil, fmt.Errorf("list replicas of volume %s: %w", key.Name, err)
	}
	nodes, err := live.NodesOf(ctx, c, rep.Namespace, replicas.Items)
	if err != nil {
		return copies.Set{}, nil, err
	}
	return copies.Of(volume, engines.Items, replicas.Items, nodes), engines.Items, nil
}

// onManager wakes the replicas on the instance manager's node, and those it holds a stray process
// of.
func (r *Reconciler) onManager(im *v1beta2.InstanceManager) []string {
	names := r.onNodeNamed(im.Spec.NodeID)
	if list, _ := r.cfg.Heard.Of(im.Name); list != nil {
		names = slices.AppendSeq(names, maps.Keys(list.Replicas))
	}
	return names
}

// onHeard wakes whom a piece of news from an instance manager is for: one replica, or all there.
func (r *Reconciler) onHeard(about client.Object) []string {
	if _, all := about.(*v1beta2.InstanceManager); !all {
		return []string{about.GetName()}
	}
	var im v1beta2.InstanceManager
	if err := r.client.Get(context.Background(), client.ObjectKeyFromObject(about), &im); err != nil {
		return nil // it is gone, which wakes them too
	}
	return r.onManager(&im)
}

func (r *Reconciler) onNode(n *v1beta2.Node) []string { return r.onNodeNamed(n.Name) }

// readiness is what of its node a replica looks at.
func readiness(n *v1beta2.Node) v1beta2.Condition {
	c := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	c.Message, c.LastProbeTime = "", ""
	return c
}

func (r *Reconciler) onNodeNamed(node string) []string {
	return r.names(index.OnNode(node), func(*v1beta2.Replica) bool { return true })
}

// onEngine wakes deleted replicas: the others do not look at their engine.
func (r *Reconciler) onEngine(e *v1beta2.Engine) []string {
	return r.names(index.OfVolume(e.Spec.VolumeName), func(rep *v1beta2.Replica) bool {
		return rep.DeletionTimestamp != nil
	})
}

func (r *Reconciler) names(which client.ListOption, ok func(*v1beta2.Replica) bool) []string {
	var list v1beta2.ReplicaList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), which,
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	var out []string
	for i := range list.Items {
		if ok(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// process describes the process that serves a replica, on an image where image is its path; see
// docs/architecture.md, "Instances". It listens at the address for data alone: nobody but its
// engine and other replicas asks it anything.
func process(rep *v1beta2.Replica, storageIP, secret string, encrypted bool, image string) instance.Process {
	args := []string{
		"--volume-name", rep.Spec.VolumeName,
		"replica", naming.InHostMount(naming.ReplicaPath(rep.Spec.DiskPath, rep.Spec.DataDirectoryName)),
		"--size", strconv.FormatInt(rep.Spec.VolumeSize, 10),
		"--replica-instance-name", rep.Name,
		"--snapshot-max-count", strconv.Itoa(rep.Spec.SnapshotMaxCount),
		"--snapshot-max-size", strconv.FormatInt(rep.Spec.SnapshotMaxSize, 10),
	}
	if !rep.Spec.Active {
		args = append(args, "--standby") // another process has the directory
	}
	if image != "" {
		args = append(args, "--backing-file", naming.InHostMount(image))
	}
	if encrypted {
		args = append(args, "--encrypted")
	}
	if rep.Spec.RevisionCounterDisabled {
		args = append(args, "--disableRevCounter")
	}
	return instance.Process{
		Name: rep.Name, Binary: naming.ReplicaBinaryInPod(rep.Spec.Image), Args: args,
		PortCount: naming.ReplicaPortCount, PortArgs: []string{"--listen," + storageIP + ":"}, Order: rep.Status.Order,
		Environment: map[string]string{"ANKOLE_VOLUME_UUID": VolumeUID(rep), "ANKOLE_VOLUME_SECRET": secret,
			"ANKOLE_DATA_NETWORK": naming.Network(rep.Spec.StorageNetwork)},
	}
}

// VolumeUID is the UID of the Volume that owns an Engine or Replica; the data path knows the volume
// by it.
func VolumeUID(o client.Object) string {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == "Volume" {
			return string(ref.UID)
		}
	}
	return ""
}

// stopAgainAfter is when an order to stop is repeated; the instance manager kills on repetition
// after 60 s.
const stopAgainAfter = time.Minute
