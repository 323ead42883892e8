package admission

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

var nodes = kind[*v1beta2.Node]{
	plural:     "nodes",
	create:     func() *v1beta2.Node { return &v1beta2.Node{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.Node]) error {
		MutateNode(r.new)
		return nil
	},
	checker: checkNodeRequest,
}

// maxCPUPercent is the largest share of a node's allocatable CPU an instance manager may request.
const maxCPUPercent = 40

// NodeFacts is what the cluster says about a Node.
type NodeFacts struct {
	// AllocatableMillis is the allocatable CPU of the Kubernetes node; 0 if that is gone.
	AllocatableMillis int64
	LegacyCPUFacts
	// Replicas and Engines on the node, in order of their names.
	Replicas []v1beta2.Replica
	Engines  []v1beta2.Engine
	// OnDisks are the replicas on the node that are not deleted. They are looked for when a disk is
	// taken off.
	OnDisks []v1beta2.Replica
}

// MutateNode brings tags and disks into their normal form.
func MutateNode(n *v1beta2.Node) {
	addFinalizer(n)
	orElse(&n.Spec.Name, n.Name)
	n.Spec.Tags = naming.Tags(n.Spec.Tags)
	if n.Spec.Disks == nil {
		n.Spec.Disks = map[string]v1beta2.DiskSpec{}
	}
	for name, d := range n.Spec.Disks {
		d.Tags = naming.Tags(d.Tags)
		if d.DiskType == "" {
			d.DiskType = v1beta2.DiskTypeFilesystem
		}
		n.Spec.Disks[name] = d
	}
}

// CheckNode refuses a Node that cannot be (old nil: creation). Without facts it leaves out what
// needs a look at the cluster.
func CheckNode(old, n *v1beta2.Node, f NodeFacts) error {
	return firstOf(
		func() error { return checkCPURequest(old, n, f) },
		func() error { return checkDisks(n) },
		func() error { return checkNewNames(old, n) },
		func() error {
			if old == nil {
				return nil
			}
			return checkNodeUpdate(old, n, f)
		},
	)
}

func checkCPURequest(old, n *v1beta2.Node, f NodeFacts) error {
	for _, request := range append(legacyCPURequests(n), n.Spec.InstanceManagerCPURequest) {
		if request < 0 {
			return invalid("CPU request %d of node %s is not valid: should be greater than or equal to 0", request, n.Name)
		}
	}
	if old == nil || f.AllocatableMillis == 0 {
		return nil
	}
	if err := checkLegacyCPURequests(old, n, f); err != nil {
		return err
	}
	was := old.Spec.InstanceManagerCPURequest
	if n.Spec.InstanceManagerCPURequest == was || f.migrated(was, n.Spec.InstanceManagerCPURequest) {
		return nil
	}
	percent := math.Round(float64(n.Spec.InstanceManagerCPURequest) * 100 / float64(f.AllocatableMillis))
	if percent > maxCPUPercent {
		return invalid("instanceManagerCPURequest %dm of node %s is %.0f%% of the allocatable CPU: should be less "+
			"than or equal to %d%%",
			n.Spec.InstanceManagerCPURequest, n.Name, percent, maxCPUPercent)
	}
	return nil
}

func checkDisks(n *v1beta2.Node) error {
	paths := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		d := n.Spec.Disks[name]
		if d.DiskType != "" && d.DiskType != v1beta2.DiskTypeFilesystem {
			return invalid("disk %s of node %s has type %q; only %q is supported", name, n.Name, d.DiskType,
				v1beta2.DiskTypeFilesystem)
		}
		if d.DiskDriver != v1beta2.DiskDriverNone {
			return invalid("disk %s of node %s: a file system takes no disk driver", name, n.Name)
		}
		if !path.IsAbs(d.Path) {
			return about("node "+n.Name, invalid("disk %s has the path %q; give an absolute path", name, d.Path))
		}
		clean := path.Clean(d.Path)
		if other, twice := paths[clean]; twice {
			return invalid("duplicate disk paths on node %s: disks %s and %s are both at %s", n.Name, other, name, clean)
		}
		paths[clean] = name
		if d.StorageReserved < 0 {
			return invalid("the storageReserved setting of disk %s is not valid: %d bytes on node %s, should not be negative",
				name, d.StorageReserved, n.Name)
		}
	}
	return nil
}

func checkNodeUpdate(old, n *v1beta2.Node, f NodeFacts) error {
	if n.Spec.Name == "" {
		return invalid("the spec of node %s has no name", n.Name)
	}
	if n.Spec.EvictionRequested && n.Spec.AllowScheduling {
		return invalid("need to disable scheduling on node %s for node eviction, or cancel eviction to enable scheduling",
			n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		d := n.Spec.Disks[name]
		if d.EvictionRequested && d.AllowScheduling {
			return invalid("need to disable scheduling on disk %s of node %s for disk eviction, or cancel eviction to "+
				"enable scheduling", name, n.Name)
		}
		if was := old.Spec.Disks[name].DiskType; was != "" && was != d.DiskType {
			return invalid("disk %s of node %s: the disk type is not allow to change from %s to %s", name, n.Name, was,
				d.DiskType)
		}
	}
	return checkDiskSet(old, n, f)
}

// checkDiskSet guards changes of disks: the controller must have taken over the last change, and a
// disk must be empty before it goes. The status of one that is not ready lists no replicas, so the
// objects are asked too.
func checkDiskSet(old, n *v1beta2.Node, f NodeFacts) error {
	if equality.Semantic.DeepEqual(old.Spec.Disks, n.Spec.Disks) {
		return nil
	}
	known := func(v1beta2.DiskSpec, v1beta2.DiskStatus) bool { return true }
	if !maps.EqualFunc(old.Spec.Disks, old.Status.DiskStatus, known) {
		return forbidden("spec and status of disks on node %s are being syncing and please retry later", n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(old.Spec.Disks)) {
		d := old.Spec.Disks[name]
		if _, stays := n.Spec.Disks[name]; stays {
			continue
		}
		if st := old.Status.DiskStatus[name]; d.AllowScheduling || st.StorageScheduled != 0 || len(st.ScheduledReplica) > 0 {
			return invalid("delete disk %s on node %s error: Please disable the disk %s first and remove all replicas "+
				"and backing images first", name, n.Name, name)
		}
		for i := range f.OnDisks {
			if r := &f.OnDisks[i]; condition.DiskOf(old, r) == name {
				return invalid("delete disk %s on node %s error: it has replica %s of volume %s; mount it again, or remove "+
					"the replica first", name, n.Name, r.Name, r.Spec.VolumeName)
			}
		}
	}
	return nil
}

// takesDiskOff says whether an update of a node removes one of its disks.
func takesDiskOff(old, n *v1beta2.Node) bool {
	for name := range old.Spec.Disks {
		if _, stays := n.Spec.Disks[name]; !stays {
			return true
		}
	}
	return false
}

// checkNewNames judges disks and tags that a node did not have before: the name of one that is
// stored keeps nothing else from being changed.
func checkNewNames(old, n *v1beta2.Node) error {
	var was v1beta2.NodeSpec
	if old != nil {
		was = old.Spec
	}
	of := "node " + n.Name
	if err := checkTags("", was.Tags, n.Spec.Tags); err != nil {
		return about(of, err)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		if _, stored := was.Disks[name]; !stored {
			if err := naming.CheckDiskName(name); err != nil {
				return invalid("node %s: %v", n.Name, err)
			}
		}
		err := checkTags("disk "+name+": ", was.Disks[name].Tags, n.Spec.Disks[name].Tags)
		if err != nil {
			return about(of, err)
		}
	}
	return nil
}

// checkTags refuses new tags that could not be label keys. The message begins with a prefix.
func checkTags(prefix string, was, tags []string) error {
	var bad []string
	for _, tag := range tags {
		if problems := naming.TagProblems(tag); len(problems) > 0 && !slices.Contains(was, tag) {
			bad = append(bad, fmt.Sprintf("tag %q: %s", tag, strings.Join(problems, "; ")))
		}
	}
	if len(bad) > 0 {
		return invalid("%sat least one error encountered while validating tags: %s", prefix, strings.Join(bad, ", "))
	}
	return nil
}

// CheckNodeDeletion refuses to delete a node that is in use or could be.
func CheckNodeDeletion(n *v1beta2.Node, f NodeFacts) error {
	if _, forced := n.Annotations[naming.AnnotationDeleteNode]; forced {
		return nil
	}
	used := len(f.Replicas) + len(f.Engines)
	if condition.NodeRemovable(n) && !n.Spec.AllowScheduling && used == 0 {
		return nil
	}
	ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	return forbidden("could not delete node %s with node ready condition is %s, reason is %s, node schedulable %t, and %d "+
		"replica and engine running on it: %s", n.Name, ready.Status, ready.Reason, n.Spec.AllowScheduling, used,
		strings.Join(stepsToDelete(n, f), "; "))
}

// stepsToDelete says what has to be done before a node may be deleted, and by which commands.
func stepsToDelete(n *v1beta2.Node, f NodeFacts) (steps []string) {
	if !condition.NodeRemovable(n) {
		steps = append(steps, "remove the Kubernetes node first, or end the manager Pod there")
	}
	if n.Spec.AllowScheduling {
		steps = append(steps, "disable scheduling with: ankole node scheduling off "+n.Name)
	}
	for _, e := range f.Engines {
		steps = append(steps, "engine "+e.Name+": ankole volume detach "+e.Spec.VolumeName)
	}
	for _, r := range f.Replicas {
		step := "replica " + r.Name
		if r.Spec.FailedAt != "" {
			step += ", failed since " + r.Spec.FailedAt
		}
		steps = append(steps, step+": ankole replica delete "+r.Spec.VolumeName+" "+r.Name)
	}
	if more := len(steps) - mostNamed; more > 0 {
		steps = append(steps[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return steps
}

// TakeOn takes down which of the replicas and engines are on a node.
func (f *NodeFacts) TakeOn(node string, replicas []v1beta2.Replica, engines []v1beta2.Engine) {
	for _, r := range replicas {
		if r.Spec.NodeID == node {
			f.Replicas = append(f.Replicas, r)
		}
	}
	for _, e := range engines {
		if e.Spec.NodeID == node {
			f.Engines = append(f.Engines, e)
		}
	}
	slices.SortFunc(f.Replicas, func(a, b v1beta2.Replica) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Engines, func(a, b v1beta2.Engine) int { return strings.Compare(a.Name, b.Name) })
}

func checkNodeRequest(ctx context.Context, w world, r request[*v1beta2.Node]) error {
	if r.updated() && removesFinalizer(r.old, r.new) {
		return nil
	}
	name := r.new
	if r.deleted() {
		name = r.old
	}
	f, err := w.nodeFacts(ctx, name.Name, r.deleted())
	if err != nil {
		return err
	}
	if r.deleted() {
		return CheckNodeDeletion(r.old, f)
	}
	if r.updated() && takesDiskOff(r.old, r.new) {
		if f.OnDisks, err = w.replicasOn(ctx, r.new.Name); err != nil {
			return err
		}
	}
	was := r.old
	if r.created() {
		was = nil
	}
	return firstOf(func() error { return CheckNode(r.old, r.new, f) },
		func() error { return w.origins.checkDisks(was, r.new) })
}

// replicasOn lists the replicas on a node that are not deleted.
func (w world) replicasOn(ctx context.Context, node string) ([]v1beta2.Replica, error) {
	all, err := w.replicasOf(ctx, "")
	return slices.DeleteFunc(all, func(r v1beta2.Replica) bool {
		return r.Spec.NodeID != node || r.DeletionTimestamp != nil
	}), err
}

func (w world) nodeFacts(ctx context.Context, name string, instances bool) (f NodeFacts, err error) {
	kube := &corev1.Node{}
	switch err := w.Get(ctx, client.ObjectKey{Name: name}, kube); {
	case err == nil:
		f.AllocatableMillis = kube.Status.Allocatable.Cpu().MilliValue()
	case !apierrors.IsNotFound(err):
		return f, err
	}
	if !instances {
		err := w.legacyCPUFacts(ctx, &f)
		return f, err
	}
	replicas, err := w.replicasOf(ctx, "")
	if err != nil {
		return f, err
	}
	engines, err := w.enginesOf(ctx, "")
	f.TakeOn(name, replicas, engines)
	return f, err
}
