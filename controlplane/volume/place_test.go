package volume

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// lacking is the fixture with a third replica that has no place, on a third node that is full.
func lacking() (*v1beta2.Volume, *seen) {
	v, s := fixture()
	v.Spec.NumberOfReplicas = 3
	third(s)
	c := &s.Replicas[2]
	c.Spec.NodeID, c.Spec.DiskID, c.Spec.DataDirectoryName, c.Spec.HealthyAt, c.Spec.LastHealthyAt, c.Spec.DesireState =
		"", "", "", "", "", stopped
	c.Status.CurrentState = stopped
	degrade(v, 0)
	s.Settings["storage-minimal-available-percentage"] = "25"
	s.Settings["storage-over-provisioning-percentage"] = "100"
	free(s, 2, 24)
	return v, s
}

// free sets how many GiB of 100 a node's disk has free.
func free(s *seen, node int, gib int64) {
	d := s.Nodes[node].Status.DiskStatus["d"]
	d.StorageAvailable = gib << 30
	s.Nodes[node].Status.DiskStatus["d"] = d
}

func scheduled(v *v1beta2.Volume) v1beta2.Condition {
	return v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
}

// TestScheduledMessage: condition Scheduled names the categories, sorted, and what each node and
// disk says; the first message of a failure stays.
func TestScheduledMessage(t *testing.T) {
	v, s := lacking()
	d := settle(v, s)
	const inUse = "n1: the node has a replica of the volume; n2: the node has a replica of the volume; n3 "
	const first = "insufficient storage (" + inUse + "/data: DiskPressure: 24.0 % free, more than 25 % wanted)"
	if c := scheduled(v); c.Status != v1beta2.ConditionFalse || c.Message != first ||
		c.Reason != v1beta2.VolumeReasonReplicaSchedulingFailure {
		t.Fatalf("condition %+v", c)
	}
	if d.Do != nil || d.After != 30*time.Second {
		t.Errorf("looks again after %v, want 30 s (%v)", d.After, d.Do)
	}
	s.Nodes[2].Spec.AllowScheduling = false
	settle(v, s)
	if c := scheduled(v); c.Message != first {
		t.Errorf("the message has become %q", c.Message)
	}
	s.Nodes[2].Spec.AllowScheduling = true
	free(s, 2, 90)
	u, _ := update(settle(v, s))
	r, ok := u.Object.(*v1beta2.Replica)
	if !ok || r.Spec.NodeID != "n3" {
		t.Fatalf("with room, does %v", u)
	}
	s.Replicas[2] = good("c", "n3", "v-cccccccc")
	s.Engine.Spec.ReplicaAddressMap["c"], s.Engine.Status.ReplicaModeMap["c"] = "10.0.0.3:10000", v1beta2.ReplicaModeRW
	s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, "v-cccccccc")
	s.Engine.Status.ReplicaTransitionTimeMap["c"] = ago(time.Hour)
	settle(v, s)
	if c := scheduled(v); c.Status != v1beta2.ConditionTrue || c.Message != "" {
		t.Errorf("with a place, condition %+v", c)
	}
}

// TestScheduledIsTrue is the table of when condition Scheduled is True.
func TestScheduledIsTrue(t *testing.T) {
	detached := func(v *v1beta2.Volume, s *seen) { // and never attached before
		v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
		v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
		s.Attachment.Spec.AttachmentTickets = nil
		off(s)
		s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap, s.Engine.Status.Membership = "", nil, nil
		for i := range s.Replicas {
			r := &s.Replicas[i]
			r.Spec.DesireState, r.Status.CurrentState, r.Spec.HealthyAt, r.Spec.LastHealthyAt = stopped, stopped, "", ""
		}
	}
	const degraded = "allow-volume-creation-with-degraded-availability"
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		want v1beta2.ConditionStatus
	}{
		{"attached, one lacks a place", func(*v1beta2.Volume, *seen) {}, v1beta2.ConditionFalse},
		{"detached, one has a place, allowed", func(v *v1beta2.Volume, s *seen) {
			detached(v, s)
			s.Settings[degraded] = "true"
		}, v1beta2.ConditionTrue},
		{"detached, one lacks a place, not allowed", func(v *v1beta2.Volume, s *seen) {
			detached(v, s)
			s.Settings[degraded] = "false"
		}, v1beta2.ConditionFalse},
		{"fewer replicas than wanted, no failure to place", func(v *v1beta2.Volume, s *seen) {
			s.Replicas = s.Replicas[:2]
			s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0"
		}, v1beta2.ConditionTrue},
		{"failed without ever having been healthy: not placed", func(_ *v1beta2.Volume, s *seen) {
			s.Replicas[2].Spec.FailedAt = ago(time.Minute)
			free(s, 2, 90)
			s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0"
		}, v1beta2.ConditionFalse},
	} {
		v, s := lacking()
		tt.edit(v, s)
		if d := settle(v, s); d.Do != nil {
			t.Errorf("%s: does %v", tt.name, d.Do)
		}
		if c := scheduled(v); c.Status != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, c, tt.want)
		}
	}
}

// TestUnusedFailedReplicaIsTold: a replica that failed before it had a place gets none, which is
// told until there is more to say about places.
func TestUnusedFailedReplicaIsTold(t *testing.T) {
	v, s := lacking()
	s.Replicas[2].Spec.FailedAt = ago(time.Minute)
	s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0" // nothing takes its place
	if d := settle(v, s); d.After > 0 && d.After <= placeAgainAfter {
		t.Errorf("looks again after %v, and no node can change anything", d.After)
	}
	if c := scheduled(v); c.Status != v1beta2.ConditionFalse || categories(c.Message) != unusedFailed ||
		!strings.Contains(c.Message, " (c: failed before having a place; replaced while the volume is attached") ||
		c.Reason != v1beta2.VolumeReasonReplicaSchedulingFailure {
		t.Errorf("condition %+v", c)
	}
	s.Settings["concurrent-replica-rebuild-per-node-limit"] = "5"
	settle(v, s)
	if c := scheduled(v); categories(c.Message) != "precheck new replica failed: insufficient storage" {
		t.Errorf("with no room for another one, condition %+v", c)
	}
}

// TestMissingDisksAndNodesAreTold: a disk that only the spec or only the status of its node has,
// and a node without an object.
func TestMissingDisksAndNodesAreTold(t *testing.T) {
	v, s := lacking()
	s.Nodes[2].Spec.Disks["new"] = v1beta2.DiskSpec{Path: "/new", AllowScheduling: true}
	s.Nodes[2].Status.DiskStatus["old"] = v1beta2.DiskStatus{DiskUUID: "disk-old", DiskPath: "/old"}
	s.Nodes[2].Spec.Disks["unread"] = v1beta2.DiskSpec{Path: "/unread", AllowScheduling: true}
	s.Nodes[2].Status.DiskStatus["unread"] = v1beta2.DiskStatus{DiskPath: "/unread"}
	settle(v, s)
	c := scheduled(v)
	if got := categories(c.Message); got != "disk not found; disks are unavailable; insufficient storage" {
		t.Errorf("categories %q", got)
	}
	for _, want := range []string{"n3 /new: the node does not report this disk yet",
		"n3 /old: the disk is not in the node's spec any more", "n3 /unread: the disk is not ready"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("%q does not say %q", c.Message, want)
		}
	}
	v, s = fixture()
	v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n9", "n9"
	s.Engine.Spec.NodeID = "n9"
	settle(v, s)
	if c := scheduled(v); c.Message != "hard affinity cannot be satisfied; node not found (n9: there is no such node)" {
		t.Errorf("condition %+v", c)
	}
}

// TestPrecheckMessage: a replacement that finds no place is not made, and the reason is told.
func TestPrecheckMessage(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(s *seen)
		want string
	}{
		{"no room", func(s *seen) { free(s, 2, 24) }, "precheck new replica failed: insufficient storage"},
		{"no node left", func(s *seen) { s.Nodes = s.Nodes[:2] }, "precheck new replica failed: disks are unavailable"},
	} {
		v, s := lacking()
		s.Replicas = s.Replicas[:2]
		tt.edit(s)
		d := settle(v, s)
		if _, made := d.Do.(loop.Create); made {
			t.Errorf("%s: a replica is made", tt.name)
		}
		if c := scheduled(v); categories(c.Message) != tt.want || c.Message == tt.want {
			t.Errorf("%s: says %q, want %q and what the nodes say", tt.name, c.Message, tt.want)
		}
	}
}

// TestLocalPlaceMessage: what is told of a local replica stays while only figures change.
func TestLocalPlaceMessage(t *testing.T) {
	v, s := fixture()
	v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n3", "n3"
	s.Engine.Spec.NodeID = "n3"
	s.Settings["storage-minimal-available-percentage"] = "25"
	s.Settings["storage-over-provisioning-percentage"] = "100"
	const want = "insufficient storage (n3 /data: DiskPressure: 24.0 % free, more than 25 % wanted)"
	for _, gib := range []int64{24, 23, 22} {
		free(s, 2, gib)
		settle(v, s)
		if c := scheduled(v); c.Message != want || c.Reason != v1beta2.VolumeReasonLocalReplicaSchedulingFailure {
			t.Errorf("with %d GiB: %+v", gib, c)
		}
	}
	s.Nodes[2].Spec.AllowScheduling = false
	settle(v, s)
	if c := scheduled(v); categories(c.Message) != "hard affinity cannot be satisfied" {
		t.Errorf("another category is not told: %+v", c)
	}
}

func TestPlacement(t *testing.T) {
	v, s := fixture()
	v.Spec.NumberOfReplicas = 3
	third(s)
	c := &s.Replicas[2]
	c.Spec.NodeID, c.Spec.DiskID, c.Spec.DataDirectoryName, c.Spec.HealthyAt, c.Spec.LastHealthyAt, c.Spec.DesireState =
		"", "", "", "", "", stopped
	c.Status.CurrentState = stopped
	degrade(v, 0)
	u, _ := update(settle(v, s))
	r := u.Object.(*v1beta2.Replica)
	if r.Spec.NodeID != "n3" || r.Spec.DiskID != "disk-n3" || r.Spec.DiskPath != "/data" ||
		r.Spec.DataDirectoryName != "v-22222222" ||
		r.Labels[naming.LabelNode] != "n3" || r.Labels[naming.LabelDiskUUID] != "disk-n3" {
		t.Errorf("placed as %+v, labels %v", r.Spec, r.Labels)
	}
	s.Nodes[2].Spec.AllowScheduling = false
	d := settle(v, s)
	cond := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	if d.Do != nil || d.After == 0 || cond.Status != v1beta2.ConditionFalse ||
		cond.Reason != v1beta2.VolumeReasonReplicaSchedulingFailure {
		t.Errorf("without a place: %+v, condition %+v", d, cond)
	}
}

// TestWaitsForItsImage: what a replica waits for is told by the volume, and taken back.
func TestWaitsForItsImage(t *testing.T) {
	v, s := fixture()
	v.Spec.BackingImage = "cirros"
	r := &s.Replicas[1]
	for _, waits := range []v1beta2.ConditionStatus{v1beta2.ConditionTrue, v1beta2.ConditionFalse} {
		r.Status.Conditions, _ = v1beta2.SetCondition(r.Status.Conditions, v1beta2.Condition{
			Type: v1beta2.ReplicaConditionWaitForBackingImage, Status: waits, Reason: v1beta2.ReplicaReasonWaiting,
			Message: "cirros is not there"}, now)
		judge(now, v, *s)
		c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionWaitForBackingImage)
		if told := strings.Contains(c.Message, r.Name) && c.Reason == v1beta2.ReplicaReasonWaiting; c.Status != waits ||
			told != (waits == v1beta2.ConditionTrue) {
			t.Errorf("%s: %+v", waits, c)
		}
	}
}
