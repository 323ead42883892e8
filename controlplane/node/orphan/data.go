package orphan

import (
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
)

const (
	// diskWait is how long the removal of data waits for a node or a disk that is not ready, and
	// diskRetry how often it looks at the disk.
	diskWait  = 2 * time.Minute
	diskRetry = 2 * time.Second
	// lookRetry is how long after a look at a disk that failed the next one is.
	lookRetry = 30 * time.Second
)

// OfData returns the Orphan of a replica's directory.
func OfData(namespace, node string, at place, directory string) *v1beta2.Orphan {
	return &v1beta2.Orphan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: naming.OrphanDataName(node, at.Disk, at.Path, at.UUID, directory),
			Labels:     naming.OrphanLabels(node, string(v1beta2.OrphanTypeReplicaData)),
			Finalizers: []string{v1beta2.Finalizer},
		},
		Spec: v1beta2.OrphanSpec{
			NodeID: node, OrphanType: v1beta2.OrphanTypeReplicaData,
			Parameters: map[string]string{
				v1beta2.OrphanParameterDataName: directory,
				v1beta2.OrphanParameterDiskName: at.Disk,
				v1beta2.OrphanParameterDiskPath: at.Path,
				v1beta2.OrphanParameterDiskUUID: at.UUID,
				v1beta2.OrphanParameterDiskType: string(v1beta2.DiskTypeFilesystem),
			},
		},
	}
}

func placeOf(o *v1beta2.Orphan) place {
	p := o.Spec.Parameters
	return place{Disk: p[v1beta2.OrphanParameterDiskName], Path: p[v1beta2.OrphanParameterDiskPath],
		UUID: p[v1beta2.OrphanParameterDiskUUID]}
}

func directoryOf(o *v1beta2.Orphan) string { return o.Spec.Parameters[v1beta2.OrphanParameterDataName] }

func pathOf(o *v1beta2.Orphan) string { return naming.ReplicaPath(placeOf(o).Path, directoryOf(o)) }

// standing says whether data at a place may be removed.
type standing struct {
	// Reason is that of condition DataCleanable if it is False, empty if it is True.
	Reason string
	// Gone: there is no such place any more.
	Gone bool
	// Passes: the node or the disk is only not ready, which may end.
	Passes bool
}

// judge tells where data at a place of a node stands; the node is nil if it is gone.
func judge(n *v1beta2.Node, at place) standing {
	if n == nil {
		return standing{Reason: v1beta2.OrphanReasonNodeUnavailable, Gone: true}
	}
	spec, wanted := n.Spec.Disks[at.Disk]
	status := n.Status.DiskStatus[at.Disk]
	switch {
	case !condition.NodeReady(n):
		return standing{Reason: v1beta2.OrphanReasonNodeUnavailable, Passes: true}
	case !wanted:
		return standing{Reason: v1beta2.OrphanReasonDiskInvalid, Gone: true}
	case path.Clean(spec.Path) != path.Clean(at.Path):
		return standing{Reason: v1beta2.OrphanReasonDiskChanged, Gone: true}
	case !condition.DiskReady(status):
		return standing{Reason: v1beta2.OrphanReasonDiskInvalid, Passes: true}
	case at.UUID == "" || status.DiskUUID != at.UUID:
		return standing{Reason: v1beta2.OrphanReasonDiskChanged, Gone: true}
	case n.Spec.EvictionRequested:
		return standing{Reason: v1beta2.OrphanReasonNodeEvicted}
	case spec.EvictionRequested:
		return standing{Reason: v1beta2.OrphanReasonDiskEvicted}
	}
	return standing{}
}

// dataSeen is what the agent of the node knows of an orphan's data.
type dataSeen struct {
	// Mine: it is this node's, and the node is Ready.
	Mine     bool
	Standing standing
	// Claim names the object that has the directory; empty if there is none.
	Claim string
	// Exists says whether the directory is there, if Standing allows to look.
	Exists bool
	// Problem is why the last look, or the last removal, failed.
	Problem string
	// Unseen: Exists could not be learnt.
	Unseen bool
	// Auto: orphaned data is deleted when it is Grace old.
	Auto  bool
	Grace time.Duration
	// Since is when this process has seen it first, or that it is deleted.
	Since time.Time
}

// removeData is the only order about orphaned data.
type removeData struct{}

// decideData is the node's part of the decision table of docs/design/controlplane.md.
func decideData(now time.Time, o *v1beta2.Orphan, s dataSeen) loop.Decision {
	if !s.Mine {
		return loop.Decision{}
	}
	observeData(now, o, o.Spec.NodeID, s.Standing.Reason)
	setError(now, o, s.Problem)
	if o.DeletionTimestamp != nil {
		return decideDataDeletion(now, o, s)
	}
	switch cleanable := s.Standing.Reason == ""; {
	case s.Standing.Gone:
		return loop.Decision{Do: loop.Delete{Object: o}}
	case !cleanable:
		return loop.Decision{}
	case s.Claim != "":
		return loop.Decision{Do: loop.Delete{Object: o}}
	case s.Unseen:
		return loop.Decision{After: lookRetry}
	case !s.Exists:
		return loop.Decision{Do: loop.Delete{Object: o}}
	case !s.Auto:
		return loop.Decision{}
	}
	if wait := firstseen.Left(now, o.CreationTimestamp.Time, s.Since, s.Grace); wait > 0 {
		return loop.Decision{After: wait}
	}
	return loop.Decision{Do: loop.Delete{Object: o}}
}

func decideDataDeletion(now time.Time, o *v1beta2.Orphan, s dataSeen) loop.Decision {
	switch {
	case s.Standing.Passes && now.Sub(s.Since) < diskWait:
		return loop.Decision{After: diskRetry}
	case s.Standing.Reason != "":
		return letGo(o, "DataCleanable is False: "+s.Standing.Reason)
	case s.Claim != "":
		return letGo(o, s.Claim+" has it")
	case s.Unseen:
		return loop.Decision{After: lookRetry}
	case s.Exists:
		return loop.Decision{Do: loop.Call{What: "remove " + pathOf(o), Order: removeData{}}, After: time.Millisecond,
			FailureReason: naming.EventFailedDeleting}
	}
	d := removeFinalizer(o)
	if d.Do != nil {
		d.Events = []loop.Event{{Reason: naming.EventOrphanCleanupCompleted, Message: pathOf(o) + " is removed"}}
	}
	return d
}

// decideAway is the leader's part: data of a node that is gone, or not Ready.
func decideAway(now time.Time, o *v1beta2.Orphan, s seen) loop.Decision {
	if s.Node != nil && condition.NodeReady(s.Node) {
		return loop.Decision{} // its manager looks after it
	}
	observeData(now, o, s.Owner, v1beta2.OrphanReasonNodeUnavailable)
	if o.DeletionTimestamp != nil {
		wait := diskWait - now.Sub(s.Since)
		if condition.NodeDown(s.Node) || wait <= 0 {
			return letGo(o, "node "+o.Spec.NodeID+" is not ready")
		}
		return loop.Decision{After: wait}
	}
	if s.Node == nil {
		return loop.Decision{Do: loop.Delete{Object: o}}
	}
	return loop.Decision{}
}

func observeData(now time.Time, o *v1beta2.Orphan, owner, reason string) {
	o.Status.OwnerID = owner
	c := v1beta2.Condition{Type: v1beta2.OrphanConditionDataCleanable, Status: v1beta2.ConditionTrue}
	if reason != "" {
		c.Status, c.Reason = v1beta2.ConditionFalse, reason
	}
	o.Status.Conditions, _ = v1beta2.SetCondition(o.Status.Conditions, c, now)
}

func setError(now time.Time, o *v1beta2.Orphan, problem string) {
	c := v1beta2.Condition{Type: v1beta2.OrphanConditionError, Status: v1beta2.ConditionFalse}
	if problem != "" {
		c.Status, c.Message = v1beta2.ConditionTrue, problem
	}
	o.Status.Conditions, _ = v1beta2.SetCondition(o.Status.Conditions, c, now)
}

// letGo ends an Orphan of data that was deleted, and leaves the data alone.
func letGo(o *v1beta2.Orphan, why string) loop.Decision {
	d := removeFinalizer(o)
	if d.Do != nil {
		d.Events = []loop.Event{{Warning: true, Reason: naming.EventFailedDeleting,
			Message: "Left " + pathOf(o) + " where it is: " + why}}
	}
	return d
}

func removeFinalizer(o *v1beta2.Orphan) loop.Decision {
	c := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}
