package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/claim"
	"ankole.storage/controlplane/volume/runs"
)

// seen is everything decide looks at besides the volume. All objects belong to the cache and are
// only read.
type seen struct {
	Settings setting.Values
	// Engine is the active engine, nil if there is none.
	Engine *v1beta2.Engine
	// Engines and Replicas are all of the volume's, by name.
	Engines  []v1beta2.Engine
	Replicas []v1beta2.Replica
	// Snapshots are the objects of its snapshots, read for a volume that is deleted only.
	Snapshots  []v1beta2.Snapshot
	Attachment *v1beta2.VolumeAttachment
	// Published are the nodes to which Kubernetes has the volume attached; read where the volume is
	// attached and has no attachment object.
	Published []string
	// PV and PVC stand for a volume that is deleted; nil if nothing does.
	PV  *corev1.PersistentVolume
	PVC *corev1.PersistentVolumeClaim
	// Source is the volume that this one is being filled from, nil if there is none; Clones are the
	// volumes that are or were filled from this one.
	Source *v1beta2.Volume
	Clones []v1beta2.Volume
	// BackingImage is the one that the volume is made of, nil if there is none.
	BackingImage *v1beta2.BackingImage
	// BackupVolume is what the volume's backup target has of it, nil if there is nothing.
	BackupVolume *v1beta2.BackupVolume
	// BackedJobs is what the backup that the volume is made of has of recurring jobs, and Jobs are
	// those that there are: read before the restore begins, and where they are wanted.
	BackedJobs string
	Jobs       []v1beta2.RecurringJob
	// HasKey: there is the master key of what its processes show each other. NewestKey is the one for
	// processes that are started when none runs.
	HasKey    bool
	NewestKey string
	// Nodes and Managers are those of the cluster. Partial: those only that are near, see gatherNear,
	// and of Absent it is known that there is no such node.
	Nodes    []v1beta2.Node
	Managers []v1beta2.InstanceManager
	Partial  bool
	Absent   []string
	// ImageOn are the nodes that have the image of the volume's replicas.
	ImageOn map[string]bool
	// Images are all engine images.
	Images []v1beta2.EngineImage
	// Slots are the nodes of the volume's replicas on which it may start a rebuild now.
	Slots map[string]bool
	// MayUpgrade: the volume's node has a slot for its upgrade.
	MayUpgrade bool
	// MayLeave are the volume's replicas, by name, whose turn it is to leave a disk under pressure.
	MayLeave map[string]bool
	// ScheduledBytes are the full sizes of all replicas on each disk, by UUID.
	ScheduledBytes map[string]int64
	// WaitsSince is since when this process has seen condition WaitForReplicas be true, zero while it
	// is not; UpgradeSince the same of what condition EngineUpgrade is.
	WaitsSince, UpgradeSince time.Time
	// FailedSince is since when it has seen the present failure of each replica that has failed.
	FailedSince map[string]time.Time
	// Run is what is remembered of the engine's failed runs.
	Run runs.Run
	// StandInRun is the same of the process that stands in for it where the volume migrates to.
	StandInRun runs.Run
	// ReplicaRuns is the same of the replicas, by name.
	ReplicaRuns map[string]runs.Run
	// Network is the storage network that processes of the volume are ordered for. Unclaimed: it has
	// to be claimed first, which makes sure that the setting does not change any more.
	Network   string
	Unclaimed bool
	// Owner is the node of last resort for status.ownerID.
	Owner string
	// Suffixes are fresh random name suffixes: decide draws no random numbers itself.
	Suffixes [2]string
}

func (r *Reconciler) gather(ctx context.Context, v *v1beta2.Volume) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Suffixes: [2]string{naming.RandomSuffix(), naming.RandomSuffix()},
		HasKey: r.cfg.Keys.Has(v.Status.ProcessKey), NewestKey: r.cfg.Keys.Newest()}
	// Before anything is read: what changes after that is not in what decide sees.
	r.idle.Note(v.Name, true)
	r.unplaced.Note(v.Name, true)
	var err error
	if s.Settings, err = stored.Read(ctx, r.client, v.Namespace); err != nil {
		return s, err
	}
	s.Network, s.Unclaimed = r.claims.Network(v, s.Settings)
	mine := []client.ListOption{client.InNamespace(v.Namespace), index.OfVolume(v.Name),
		client.UnsafeDisableDeepCopy}
	if err := r.gatherOwn(ctx, v, &s, mine); err != nil {
		return s, err
	}
	if err := r.gatherClone(ctx, v, &s); err != nil {
		return s, err
	}
	if err := r.gatherBackups(ctx, v, &s); err != nil {
		return s, err
	}
	if err := r.gatherNear(ctx, v, &s); err != nil {
		return s, err
	}
	if err := r.gatherImages(ctx, v, &s); err != nil {
		return s, err
	}
	if err := r.gatherLimited(ctx, v, &s); err != nil {
		return s, err
	}
	if err := r.gatherTurns(ctx, v, &s); err != nil {
		return s, err
	}
	r.gatherSince(v, &s)
	s.Run = r.runs.Engine(r.cfg.Now(), v.Name, s.Engine)
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Spec.StandInFor != "" {
			s.StandInRun = r.runs.Observe(r.cfg.Now(), v.Name, e.Name, &e.Status.InstanceStatus, e.Status.Endpoint != "")
		}
	}
	if s.Engine != nil {
		s.ReplicaRuns = r.runs.Replicas(r.cfg.Now(), v.Name, s.Engine, s.Engines, s.Replicas)
	}
	return s, nil
}

// gatherSince says since when this process has seen what bounded waits are measured from.
func (r *Reconciler) gatherSince(v *v1beta2.Volume, s *seen) {
	stamp := func(kind string, lasting ...v1beta2.ConditionStatus) time.Time {
		c, text := v1beta2.FindCondition(v.Status.Conditions, kind), ""
		if c.LastTransitionTime != "" && slices.Contains(lasting, c.Status) {
			text = string(c.Status) + c.LastTransitionTime
		}
		return r.since.At(r.cfg.Now(), v.Name+" "+kind, text)
	}
	s.WaitsSince = stamp(ConditionWaitForReplicas, v1beta2.ConditionTrue)
	s.UpgradeSince = stamp(ConditionEngineUpgrade, v1beta2.ConditionTrue, v1beta2.ConditionUnknown)
	failures := map[string]string{}
	for i := range s.Replicas {
		failures[s.Replicas[i].Name] = s.Replicas[i].Spec.FailedAt
	}
	s.FailedSince = r.since.Each(r.cfg.Now(), v.Name, failures)
}

// gatherOwn reads the volume's own objects.
func (r *Reconciler) gatherOwn(ctx context.Context, v *v1beta2.Volume, s *seen, mine []client.ListOption) error {
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, mine...); err != nil {
		return fmt.Errorf("list engines of volume %s: %w", v.Name, err)
	}
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, mine...); err != nil {
		return fmt.Errorf("list replicas of volume %s: %w", v.Name, err)
	}
	if v.DeletionTimestamp != nil {
		var snapshots v1beta2.SnapshotList
		if err := r.client.List(ctx, &snapshots, mine...); err != nil {
			return fmt.Errorf("list snapshots of volume %s: %w", v.Name, err)
		}
		s.Snapshots = snapshots.Items
	}
	s.Engines, s.Replicas = engines.Items, replicas.Items
	slices.SortFunc(s.Engines, func(a, b v1beta2.Engine) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Replicas, func(a, b v1beta2.Replica) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.Engines {
		if s.Engine == nil || s.Engines[i].Spec.Active {
			s.Engine = &s.Engines[i]
		}
	}
	var attachment v1beta2.VolumeAttachment
	switch err := r.client.Get(ctx, client.ObjectKeyFromObject(v), &attachment, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Attachment = &attachment
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get attachment of volume %s: %w", v.Name, err)
	}
	if err := r.gatherPublished(ctx, v, s); err != nil {
		return err
	}
	if v.DeletionTimestamp != nil {
		var err error
		if s.PV, s.PVC, err = claim.Standing(ctx, r.live, v); err != nil {
			return err
		}
	}
	return nil
}

// gatherImages reads the volume's images.
func (r *Reconciler) gatherImages(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	var images v1beta2.EngineImageList
	if err := r.client.List(ctx, &images, client.InNamespace(v.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list engine images: %w", err)
	}
	s.Images = images.Items
	if v.Spec.BackingImage != "" {
		var b v1beta2.BackingImage
		key := client.ObjectKey{Namespace: v.Namespace, Name: v.Spec.BackingImage}
		switch err := r.client.Get(ctx, key, &b, client.UnsafeDisableDeepCopy); {
		case err == nil:
			s.BackingImage = &b
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get backing image %s of volume %s: %w", key.Name, v.Name, err)
		}
	}
	name := naming.EngineImageName(replicaImage(v, s))
	for i := range s.Images {
		if s.Images[i].Name == name {
			s.ImageOn = s.Images[i].Status.NodeDeploymentMap
		}
	}
	return nil
}

// gatherLimited asks the allocator for what the volume competes for with others.
func (r *Reconciler) gatherLimited(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	a := r.cfg.Allocator
	if err := a.Synced(ctx); err != nil {
		return err
	}
	s.MayUpgrade = v.Status.OwnerID != "" && a.MayUpgrade(v.Name, v.Status.OwnerID)
	s.Slots = map[string]bool{}
	for i := range s.Replicas {
		if node := s.Replicas[i].Spec.NodeID; node != "" {
			s.Slots[node] = a.MayRebuild(v.Name, node)
		}
	}
	r.gatherScheduled(s)
	return nil
}

// replicaImage is the image of the volume's replicas and of those that are made: the engine's. It
// is not the one that the volume should run while an attached volume waits for its upgrade.
func replicaImage(v *v1beta2.Volume, s *seen) string {
	if s.Engine != nil {
		return s.Engine.Spec.Image
	}
	return imageOf(v, s.Settings)
}

// imageOf is the engine image the volume should run.
func imageOf(v *v1beta2.Volume, settings setting.Values) string {
	if v.Spec.Image != "" {
		return v.Spec.Image
	}
	return settings.String(setting.DefaultEngineImage)
}

// Most looks at a volume need the nodes and instance managers only that its own objects name. Those
// are read first, so that a look costs the same in a cluster of a thousand nodes. Whatever asks for
// another one, such as who looks for a place, asks type nodes, which notes that
// the facts do not suffice; then all are read, and it is decided anew (loop.Decision.Lacks).

// gatherNear reads the nodes that the volume and its objects name, and the instance managers of its
// replicas.
func (r *Reconciler) gatherNear(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	s.Partial = true
	nodes, managers := map[string]bool{"": true}, map[string]bool{}
	for i := range s.Replicas {
		rep := &s.Replicas[i]
		if !nodes[rep.Spec.NodeID] {
			if err := r.managersOn(ctx, v, rep.Spec.NodeID, managers, s); err != nil {
				return err
			}
		}
		if err := r.nodeNamed(ctx, v, rep.Spec.NodeID, nodes, s); err != nil {
			return err
		}
	}
	for i := range s.Replicas {
		if err := r.managerNamed(ctx, v, s.Replicas[i].Status.InstanceManagerName, managers, s); err != nil {
			return err
		}
	}
	for i := range s.Engines {
		if err := r.nodeNamed(ctx, v, s.Engines[i].Spec.NodeID, nodes, s); err != nil {
			return err
		}
	}
	for _, name := range []string{v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.OwnerID} {
		if err := r.nodeNamed(ctx, v, name, nodes, s); err != nil {
			return err
		}
	}
	return nil
}

// nodeNamed reads a node that is not in known yet.
func (r *Reconciler) nodeNamed(ctx context.Context, v *v1beta2.Volume, name string, known map[string]bool,
	s *seen) error {
	if known[name] {
		return nil
	}
	known[name] = true
	var n v1beta2.Node
	key := client.ObjectKey{Namespace: v.Namespace, Name: name}
	switch err := r.client.Get(ctx, key, &n, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Nodes = append(s.Nodes, n)
	case apierrors.IsNotFound(err):
		s.Absent = append(s.Absent, name)
	default:
		return fmt.Errorf("get node %s: %w", name, err)
	}
	return nil
}

// managerNamed reads an instance manager that is not in known yet.
func (r *Reconciler) managerNamed(ctx context.Context, v *v1beta2.Volume, name string, known map[string]bool,
	s *seen) error {
	if name == "" || known[name] {
		return nil
	}
	known[name] = true
	var im v1beta2.InstanceManager
	err := r.client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: name}, &im, client.UnsafeDisableDeepCopy)
	if err == nil {
		s.Managers = append(s.Managers, im)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get instance manager %s: %w", name, err)
	}
	return nil
}

// managersOn reads the instance managers of a node.
func (r *Reconciler) managersOn(ctx context.Context, v *v1beta2.Volume, node string, known map[string]bool,
	s *seen) error {
	var managers v1beta2.InstanceManagerList
	if err := r.client.List(ctx, &managers, client.InNamespace(v.Namespace), index.OnNode(node),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list instance managers of node %s: %w", node, err)
	}
	for i := range managers.Items {
		known[managers.Items[i].Name] = true
	}
	s.Managers = append(s.Managers, managers.Items...)
	return nil
}

// gatherAll reads all nodes and instance managers.
func (r *Reconciler) gatherAll(ctx context.Context, v *v1beta2.Volume, s seen) (seen, error) {
	in := client.InNamespace(v.Namespace)
	var nodes v1beta2.NodeList
	if err := r.client.List(ctx, &nodes, in, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list nodes: %w", err)
	}
	var managers v1beta2.InstanceManagerList
	if err := r.client.List(ctx, &managers, in, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list instance managers: %w", err)
	}
	s.Nodes, s.Managers, s.Partial, s.Absent = nodes.Items, managers.Items, false, nil
	r.gatherScheduled(&s)
	return s, nil
}

// gatherScheduled asks the allocator for the room that is taken on the disks of the nodes.
func (r *Reconciler) gatherScheduled(s *seen) {
	s.ScheduledBytes = map[string]int64{}
	for i := range s.Nodes {
		for _, d := range s.Nodes[i].Status.DiskStatus {
			s.ScheduledBytes[d.DiskUUID] = r.cfg.Allocator.Scheduled(d.DiskUUID)
		}
	}
}

// nodes are those that a pass knows of.
type nodes struct {
	known map[string]*v1beta2.Node // nil for one that is not there
	// partial: there are others. lacks: one of them was asked for, so that nothing that was decided
	// counts.
	partial, lacks bool
}

func newNodes(s *seen) *nodes {
	n := &nodes{known: map[string]*v1beta2.Node{}, partial: s.Partial}
	for i := range s.Nodes {
		n.known[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, name := range s.Absent {
		n.known[name] = nil
	}
	return n
}

// named is a node by its name, nil if there is none.
func (n *nodes) named(name string) *v1beta2.Node {
	node, known := n.known[name]
	n.lacks = n.lacks || !known && n.partial && name != ""
	return node
}

// all are all nodes.
func (n *nodes) all() map[string]*v1beta2.Node {
	n.lacks = n.lacks || n.partial
	return n.known
}
