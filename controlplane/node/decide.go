package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
)

// seen is what the leader's decide knows besides the object.
type seen struct {
	// KubeNode and ManagerPod belong to the node of the same name; nil if gone.
	KubeNode *corev1.Node
	// Unready is since when this process has seen that the kubelet says the node is not ready, zero
	// while it does not.
	Unready    time.Time
	ManagerPod *corev1.Pod
	// Replicas are all replicas that are on this node, or on a disk whose UUID this node reports.
	Replicas []v1beta2.Replica
	// Siblings are all replicas of the volumes that have one in Replicas.
	Siblings []v1beta2.Replica
	// Images are the backing images on the node's disks, by the UUID of the disk.
	Images map[string]imageBytes
	// DrainPolicy is the value of node-drain-policy; Shelter is where a drain leaves copies alone.
	DrainPolicy string
	Shelter     instancemanager.Shelter
	// Others are the other nodes that report a disk with the UUID of one of this node, and those that
	// the Replicas name; by name.
	Others map[string]*v1beta2.Node
	// TwinsSince is since when this process has seen disks of this node be ready beside another one
	// with the same UUID; see twinStamps.
	TwinsSince map[string]time.Time
	// DefaultManager is the instance manager for the default image on this node, nil if there is
	// none yet.
	DefaultManager *v1beta2.InstanceManager
	// DefaultManagerImage is that image.
	DefaultManagerImage string
	// DisableOnCordon and Policy are settings.
	DisableOnCordon bool
	Policy          schedule.Policy
}

// decide is the leader's part; docs/design/controlplane.md has its table.
func decide(now time.Time, n *v1beta2.Node, s seen) loop.Decision {
	if n.DeletionTimestamp != nil {
		return decideDeletion(n)
	}
	recheck := observe(now, n, s)
	r, waits := movedReplica(n, s)
	if r != nil {
		return loop.Decision{Do: loop.Update{Object: r}}
	}
	if waits {
		recheck = sooner(recheck, moveWait)
	}
	if d, evicts := decideEviction(n, s); evicts {
		return d
	}
	if s.DefaultManager == nil && s.DefaultManagerImage != "" && s.KubeNode != nil && s.ManagerPod != nil {
		return loop.Decision{Do: loop.Create{Object: managerFor(n, s.DefaultManagerImage)}}
	}
	return loop.Decision{After: recheck}
}

// decideDeletion lets the object go; the webhook refused the deletion of a node in use already.
func decideDeletion(n *v1beta2.Node) loop.Decision {
	i := slices.Index(n.Finalizers, v1beta2.Finalizer)
	if i < 0 {
		return loop.Decision{}
	}
	u := n.DeepCopy()
	u.Finalizers = slices.Delete(u.Finalizers, i, i+1)
	return loop.Decision{
		Do:     loop.Update{Object: u},
		Events: []loop.Event{{Warning: true, Reason: naming.EventDelete, Message: "node " + n.Name + " is being removed"}},
	}
}

// observe writes the leader's fields.
func observe(now time.Time, n *v1beta2.Node, s seen) (recheck time.Duration) {
	st := &n.Status
	ready, recheck := readiness(kubeletGraceLeft(now, n, s.Unready), n.Name, s.KubeNode, s.ManagerPod)
	st.Conditions = withReadiness(now, st.Conditions, ready)
	schedulable := schedulability(s.KubeNode, s.DisableOnCordon, s.DrainPolicy)
	st.Conditions, _ = v1beta2.SetCondition(st.Conditions, schedulable, now)
	if s.KubeNode != nil {
		st.Zone = s.KubeNode.Labels[naming.NodeLabelZone]
		st.Region = s.KubeNode.Labels[naming.NodeLabelRegion]
	}
	st.AutoEvicting = autoEvicting(n, s)
	syncDiskKeys(n)
	up := ready.Status == v1beta2.ConditionTrue
	for name, disk := range st.DiskStatus {
		if !up && !condition.DiskAway(disk) { // what was found of a disk that is away is told on
			disk.Conditions, _ = v1beta2.SetCondition(disk.Conditions, v1beta2.Condition{
				Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionFalse,
				Reason: v1beta2.DiskReasonNodeNotReady, Message: "node " + n.Name + " is not ready",
			}, now)
			st.DiskStatus[name] = disk
		}
	}
	for name, disk := range st.DiskStatus {
		var again time.Duration
		st.DiskStatus[name], again = observeDisk(now, n, name, disk, up, s)
		recheck = sooner(recheck, again)
	}
	return recheck
}

// withReadiness sets condition Ready. The loss of the manager Pod is a transition of its own.
func withReadiness(now time.Time, list []v1beta2.Condition, ready v1beta2.Condition) []v1beta2.Condition {
	before := v1beta2.FindCondition(list, ready.Type)
	list, _ = v1beta2.SetCondition(list, ready, now)
	if condition.NoManager(ready) && !condition.NoManager(before) {
		i := slices.IndexFunc(list, func(c v1beta2.Condition) bool { return c.Type == ready.Type })
		list[i].LastTransitionTime = now.UTC().Format(time.RFC3339)
	}
	return list
}

// syncDiskKeys gives every disk of the spec a status and drops the status of removed ones. Nobody
// else adds or removes entries.
func syncDiskKeys(n *v1beta2.Node) {
	if n.Status.DiskStatus == nil {
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{}
	}
	for name := range n.Status.DiskStatus {
		if _, wanted := n.Spec.Disks[name]; !wanted {
			delete(n.Status.DiskStatus, name)
		}
	}
	for name, spec := range n.Spec.Disks {
		if _, present := n.Status.DiskStatus[name]; !present {
			n.Status.DiskStatus[name] = v1beta2.DiskStatus{DiskPath: spec.Path, DiskType: v1beta2.DiskTypeFilesystem}
		}
	}
}

// observeDisk returns the status of one disk with the leader's fields brought up to date.
func observeDisk(now time.Time, n *v1beta2.Node, name string, d v1beta2.DiskStatus, nodeReady bool,
	s seen) (_ v1beta2.DiskStatus, recheck time.Duration) {
	ready := condition.DiskReady(d)
	d.StorageScheduled, d.ScheduledReplica, d.ScheduledBackingImage = 0, map[string]int64{}, map[string]int64{}
	if ready && d.DiskUUID != "" {
		for i := range s.Replicas {
			r := &s.Replicas[i]
			// A duplicate takes no room of its own.
			if r.Spec.Active && r.Spec.NodeID == n.Name && condition.DiskOf(n, r) == name {
				d.ScheduledReplica[r.Name] = r.Spec.VolumeSize
				d.StorageScheduled += r.Spec.VolumeSize
			}
		}
		for image, size := range s.Images[d.DiskUUID] {
			d.ScheduledBackingImage[image] = size
			d.StorageScheduled += size
		}
	}
	d.InstanceManagerName = ""
	if s.DefaultManager != nil {
		d.InstanceManagerName = s.DefaultManager.Name
	}
	c, recheck := twinProblem(now, n, name, s)
	if c.Reason == "" {
		c = diskSchedulability(n, name, d, nodeReady, ready, s)
	}
	d.Conditions, _ = v1beta2.SetCondition(d.Conditions, c, now)
	return d, recheck
}

func diskSchedulability(n *v1beta2.Node, name string, d v1beta2.DiskStatus, nodeReady, diskReady bool,
	s seen) v1beta2.Condition {
	no := func(reason, message string) v1beta2.Condition {
		return v1beta2.Condition{
			Type: v1beta2.DiskConditionSchedulable, Status: v1beta2.ConditionFalse, Reason: reason, Message: message,
		}
	}
	space := schedule.Disk{
		Maximum: d.StorageMaximum, Available: d.StorageAvailable,
		Reserved: n.Spec.Disks[name].StorageReserved, Scheduled: d.StorageScheduled,
	}
	switch {
	case !nodeReady:
		return no(v1beta2.DiskReasonNodeNotReady, "node "+n.Name+" is not ready")
	case !diskReady:
		return no(v1beta2.DiskReasonDiskNotReady, "disk "+name+" is not ready")
	case !space.Fits(0, 0, s.Policy):
		return no(v1beta2.DiskReasonDiskPressure, "disk "+name+" at "+d.DiskPath+
			" has too little free space, or too much of it is promised; free some, add a disk, or see the settings"+
			" storage-minimal-available-percentage and storage-over-provisioning-percentage")
	}
	return v1beta2.Condition{Type: v1beta2.DiskConditionSchedulable, Status: v1beta2.ConditionTrue}
}

// managerFor returns the instance manager of a node for an image.
func managerFor(n *v1beta2.Node, image string) *v1beta2.InstanceManager {
	yes := true
	return &v1beta2.InstanceManager{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.Namespace,
			Name:      naming.InstanceManagerName(n.Name, image),
			Labels:    naming.InstanceManagerLabels(n.Name, image, string(v1beta2.InstanceManagerTypeAllInOne)),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta2.GroupVersion.String(), Kind: "Node",
				Name: n.Name, UID: n.UID, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: v1beta2.InstanceManagerSpec{
			DataEngine: v1beta2.DataEngineTypeV1,
			Image:      image,
			NodeID:     n.Name,
			Type:       v1beta2.InstanceManagerTypeAllInOne,
		},
	}
}
