package node

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

// The UUID of a disk is in a file on it, so that a copy of the disk, as of a cloned machine or a
// restored image, has it too. A disk that was moved cannot be told from a copy by its content: it
// is the moved one if the former one is known to be gone.

const (
	// twinGrace is how long two disks with one UUID are ready at once before they count as copies:
	// the agent of the node that a disk was taken from looks every agentInterval.
	twinGrace = 2 * agentInterval
	// moveWait is how soon a replica is looked at again whose process runs while its disk is
	// elsewhere.
	moveWait = 10 * time.Second
	// maxTwinsTold bounds the message of a condition.
	maxTwinsTold = 3
)

// presence is what is known of a disk that a node reports.
type presence int

const (
	gone presence = iota
	unknown
	there
)

// presenceOf says whether a disk is where its node has it. What a node does not say itself, or says
// of a disk that cannot be read, is not known.
func presenceOf(n *v1beta2.Node, d v1beta2.DiskStatus) presence {
	ready := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady)
	switch {
	case outOfKubernetes(n):
		return gone
	case ready.Status == v1beta2.ConditionTrue:
		return there
	case condition.NodeReady(n) && ready.Reason == v1beta2.DiskReasonDiskFilesystemChanged:
		return gone
	}
	return unknown
}

func outOfKubernetes(n *v1beta2.Node) bool {
	return v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady).Reason ==
		v1beta2.NodeReasonKubernetesNodeGone
}

// twin is another disk with the UUID of a disk.
type twin struct {
	what     string
	presence presence
	ready    v1beta2.Condition
}

// twinsOf finds the other disks with the UUID of a disk, those that are there first.
func twinsOf(n *v1beta2.Node, name string, s seen) (out []twin) {
	uuid := n.Status.DiskStatus[name].DiskUUID
	if uuid == "" {
		return nil
	}
	add := func(of *v1beta2.Node) {
		for _, disk := range slices.Sorted(maps.Keys(of.Spec.Disks)) {
			d := of.Status.DiskStatus[disk]
			if d.DiskUUID != uuid || of == n && disk == name {
				continue
			}
			out = append(out, twin{"disk " + disk + " of node " + of.Name, presenceOf(of, d),
				v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady)})
		}
	}
	add(n)
	for _, other := range slices.Sorted(maps.Keys(s.Others)) {
		add(s.Others[other])
	}
	slices.SortStableFunc(out, func(a, b twin) int { return int(b.presence - a.presence) })
	return out
}

// twinStamps says of the disks that are ready, and that have the UUID of another one that is there,
// since when both are, by the clocks of their nodes.
func twinStamps(n *v1beta2.Node, s seen) map[string]string {
	stamps := map[string]string{}
	for name, d := range n.Status.DiskStatus {
		if twins := twinsOf(n, name, s); len(twins) > 0 && twins[0].presence == there && condition.DiskReady(d) {
			own := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady)
			stamps[name] = strings.Join([]string{d.DiskUUID, own.LastTransitionTime, twins[0].what,
				twins[0].ready.LastTransitionTime}, " ")
		}
	}
	return stamps
}

// twinProblem is why a disk may not take replicas because of another one with its UUID; the reason
// is empty if there is none. Disks that were seen at the same time are copies until one of them is
// taken off, whatever becomes of the other one.
func twinProblem(now time.Time, n *v1beta2.Node, name string, s seen) (c v1beta2.Condition, recheck time.Duration) {
	d := n.Status.DiskStatus[name]
	marked := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionSchedulable).Reason ==
		v1beta2.DiskReasonDuplicateUUID
	twins := twinsOf(n, name, s)
	if len(twins) == 0 || !marked && (!condition.DiskReady(d) || twins[0].presence == gone) {
		return c, 0
	}
	if !marked && twins[0].presence == there {
		recheck = s.TwinsSince[name].Add(twinGrace).Sub(now)
		marked = recheck <= 0
	}
	var names []string
	for _, t := range twins[:min(len(twins), maxTwinsTold)] {
		names = append(names, t.what)
	}
	c = v1beta2.Condition{Type: v1beta2.DiskConditionSchedulable, Status: v1beta2.ConditionFalse,
		Reason: v1beta2.DiskReasonUUIDOfOtherDisk}
	c.Message = fmt.Sprintf("disk %s at %s of node %s has UUID %s, which %s has too", name, d.DiskPath, n.Name,
		d.DiskUUID, strings.Join(names, ", "))
	remedy := fmt.Sprintf("take the copy off its node, delete %s and %s on it, and add it again",
		naming.DiskConfigFile, naming.ReplicaDirectory)
	if marked {
		c.Reason = v1beta2.DiskReasonDuplicateUUID
		c.Message += ": one is a copy of the other. Neither takes new replicas, and no replica moves from one to the " +
			"other; " + remedy
		return c, 0
	}
	c.Message += "; whether that one is gone is not known. If the disk was moved, remove its former node from Kubernetes, " +
		"or have that node say that the disk is not mounted there any more, and the replicas follow; if it is a copy, " +
		remedy
	return c, max(recheck, 0)
}

// movedReplica returns a corrected copy of a replica whose disk now belongs to this node, nil if
// there is none: a disk may be carried from a dead machine to another. waits: there is one, and its
// process runs still.
func movedReplica(n *v1beta2.Node, s seen) (moved *v1beta2.Replica, waits bool) {
	for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		d, to := n.Status.DiskStatus[name], n.Spec.Disks[name].Path
		if d.DiskUUID == "" || !condition.DiskReady(d) || d.DiskPath != to || twinKnown(d) {
			continue
		}
		for i := range s.Replicas {
			r := &s.Replicas[i]
			if r.Spec.DiskID != d.DiskUUID || r.DeletionTimestamp != nil ||
				r.Spec.NodeID == n.Name && r.Spec.DiskPath == to || !formerGone(n, name, r, s) {
				continue
			}
			if r.Status.CurrentState == v1beta2.InstanceStateRunning {
				waits = true
				continue
			}
			u := r.DeepCopy()
			u.Spec.NodeID, u.Spec.DiskPath = n.Name, to
			return u, false
		}
	}
	return nil, waits
}

// twinKnown says whether a disk is told to have another one's UUID.
func twinKnown(d v1beta2.DiskStatus) bool {
	reason := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionSchedulable).Reason
	return reason == v1beta2.DiskReasonDuplicateUUID || reason == v1beta2.DiskReasonUUIDOfOtherDisk
}

// formerGone says whether the disk that a replica names is known not to be where the replica has
// it. to is the disk of n that has its UUID.
func formerGone(n *v1beta2.Node, to string, r *v1beta2.Replica, s seen) bool {
	of := s.Others[r.Spec.NodeID]
	if r.Spec.NodeID == n.Name {
		of = n
	}
	if of == nil || outOfKubernetes(of) {
		return true
	}
	for disk, spec := range of.Spec.Disks {
		if path.Clean(spec.Path) != path.Clean(r.Spec.DiskPath) || of == n && disk == to {
			continue
		}
		d := of.Status.DiskStatus[disk]
		if d.DiskUUID == "" || d.DiskPath != spec.Path {
			return false // its agent has not looked yet
		}
		return d.DiskUUID != r.Spec.DiskID || presenceOf(of, d) == gone
	}
	return true
}

// twinView is what a node with a disk of the same UUID looks at of a node.
func twinView(n *v1beta2.Node) string {
	var b strings.Builder
	ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	fmt.Fprintf(&b, "%s %s", ready.Status, ready.Reason)
	for _, name := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		d := n.Status.DiskStatus[name]
		c := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady)
		fmt.Fprintf(&b, "\n%s %s %s %s %s", name, d.DiskPath, d.DiskUUID, c.Status, c.Reason)
	}
	return b.String()
}

// sooner is the earlier of two times to look again, of which 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
