package orphan

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

const strayName = "v-22222222"

var diskPlace = place{Disk: "d", Path: "/data/", UUID: "disk-1"}

func readyCondition(kind string, ready bool, reason string) []v1beta2.Condition {
	c := v1beta2.Condition{Type: kind, Status: v1beta2.ConditionTrue, LastTransitionTime: now.Format(time.RFC3339)}
	if !ready {
		c.Status, c.Reason = v1beta2.ConditionFalse, reason
	}
	return []v1beta2.Condition{c}
}

func dataNode() *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "n1"}}
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/data"}}
	n.Status.Conditions = readyCondition(v1beta2.NodeConditionReady, true, "")
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk-1",
		Conditions: readyCondition(v1beta2.DiskConditionReady, true, "")}}
	return n
}

func notReadyNode(reason string) *v1beta2.Node {
	n := dataNode()
	n.Status.Conditions = readyCondition(v1beta2.NodeConditionReady, false, reason)
	return n
}

func dataOrphan(deleted bool) *v1beta2.Orphan {
	o := OfData(naming.Namespace, "n1", diskPlace, strayName)
	o.CreationTimestamp = metav1.NewTime(now)
	if deleted {
		o.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return o
}

func TestOfData(t *testing.T) {
	o := dataOrphan(false)
	want := map[string]string{"DataName": strayName, "DiskName": "d", "DiskUUID": "disk-1", "DiskPath": "/data/",
		"DiskType": "filesystem"}
	for key, value := range want {
		if o.Spec.Parameters[key] != value {
			t.Errorf("%s is %q, want %q", key, o.Spec.Parameters[key], value)
		}
	}
	if len(o.Spec.Parameters) != len(want) || o.Spec.OrphanType != "replica" || o.Spec.NodeID != "n1" ||
		o.Spec.DataEngine != "" || o.Labels["longhornnode"] != "n1" || o.Labels["longhorn.io/orphan-type"] != "replica" ||
		o.Labels["longhorn.io/component"] != "orphan" || o.Finalizers[0] != "longhorn.io" ||
		o.Name != naming.OrphanDataName("n1", "d", "/data/", "disk-1", strayName) {
		t.Errorf("%+v", o)
	}
}

func TestJudge(t *testing.T) {
	disk := func(edit func(*v1beta2.DiskSpec, *v1beta2.DiskStatus)) *v1beta2.Node {
		n := dataNode()
		spec, status := n.Spec.Disks["d"], n.Status.DiskStatus["d"]
		edit(&spec, &status)
		n.Spec.Disks["d"], n.Status.DiskStatus["d"] = spec, status
		return n
	}
	evicted := dataNode()
	evicted.Spec.EvictionRequested = true
	without := dataNode()
	without.Spec.Disks = nil
	for _, row := range []struct {
		name string
		node *v1beta2.Node
		at   place
		want standing
	}{
		{"all is well", dataNode(), diskPlace, standing{}},
		{"no node", nil, diskPlace, standing{Reason: "NodeUnavailable", Gone: true}},
		{"node not ready", notReadyNode(v1beta2.NodeReasonManagerPodDown), diskPlace,
			standing{Reason: "NodeUnavailable", Passes: true}},
		{"no disk", without, diskPlace, standing{Reason: "DiskInvalid", Gone: true}},
		{"disk not ready", disk(func(_ *v1beta2.DiskSpec, s *v1beta2.DiskStatus) { s.Conditions = nil }), diskPlace,
			standing{Reason: "DiskInvalid", Passes: true}},
		{"at another path", disk(func(s *v1beta2.DiskSpec, _ *v1beta2.DiskStatus) { s.Path = "/other" }), diskPlace,
			standing{Reason: "DiskChanged", Gone: true}},
		{"another disk", disk(func(_ *v1beta2.DiskSpec, s *v1beta2.DiskStatus) { s.DiskUUID = "disk-2" }), diskPlace,
			standing{Reason: "DiskChanged", Gone: true}},
		{"no UUID", disk(func(_ *v1beta2.DiskSpec, s *v1beta2.DiskStatus) { s.DiskUUID = "" }),
			place{Disk: "d", Path: "/data"}, standing{Reason: "DiskChanged", Gone: true}},
		{"node is emptied", evicted, diskPlace, standing{Reason: "NodeEvicted"}},
		{"disk is emptied", disk(func(s *v1beta2.DiskSpec, _ *v1beta2.DiskStatus) { s.EvictionRequested = true }),
			diskPlace, standing{Reason: "DiskEvicted"}},
	} {
		if got := judge(row.node, row.at); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
}

// outcome is what a decision does, in short: delete, remove (the data), finish, or nothing.
func outcome(t *testing.T, d loop.Decision) string {
	t.Helper()
	switch c := d.Do.(type) {
	case nil:
		return ""
	case loop.Delete:
		if c.Object == nil {
			t.Error("deletes no object")
		}
		return "delete"
	case loop.Call:
		if d.FailureReason != naming.EventFailedDeleting {
			t.Errorf("a failure is told as %q", d.FailureReason)
		}
		return c.String()
	case loop.Update:
		if len(c.Object.GetFinalizers()) > 0 {
			t.Errorf("an update with finalizers %v", c.Object.GetFinalizers())
		}
		return "finish " + d.Events[0].Reason
	}
	t.Errorf("does %v", d.Do)
	return ""
}

func TestDecideData(t *testing.T) {
	const removes, done, left = "remove /data/replicas/v-22222222", "finish OrphanCleanupCompleted",
		"finish FailedDeleting"
	there := dataSeen{Mine: true, Exists: true}
	with := func(edit func(*dataSeen)) dataSeen {
		s := there
		edit(&s)
		return s
	}
	auto := with(func(s *dataSeen) { s.Auto, s.Grace = true, 5*time.Minute })
	passes := with(func(s *dataSeen) { s.Standing = standing{Reason: "DiskInvalid", Passes: true} })
	emptied := with(func(s *dataSeen) { s.Standing, s.Auto = standing{Reason: "DiskEvicted"}, true })
	gone := with(func(s *dataSeen) { s.Standing = standing{Reason: "DiskChanged", Gone: true} })
	claimed := with(func(s *dataSeen) { s.Claim = "replica v-r-0" })
	unseen := dataSeen{Mine: true, Unseen: true, Auto: true, Problem: "input/output error"}
	for _, row := range []struct {
		name    string
		seen    dataSeen
		deleted bool
		after   time.Duration // since it was made, or deleted
		do      string
		again   time.Duration
	}{
		{"a person decides", there, false, time.Hour, "", 0},
		{"in the grace period", auto, false, time.Minute, "", 4 * time.Minute},
		{"after it", auto, false, 5 * time.Minute, "delete", 0},
		{"the directory is gone", dataSeen{Mine: true}, false, 0, "delete", 0},
		{"nobody can say", unseen, false, time.Hour, "", lookRetry},
		{"a replica takes it", claimed, false, 0, "delete", 0},
		{"the disk is emptied", emptied, false, time.Hour, "", 0},
		{"the disk is not ready", passes, false, time.Hour, "", 0},
		{"the disk is gone", gone, false, 0, "delete", 0},
		{"deleted", there, true, 0, removes, time.Millisecond},
		{"deleted, and removed", dataSeen{Mine: true}, true, 0, done, 0},
		{"deleted, nobody can say", unseen, true, time.Hour, "", lookRetry},
		{"deleted, claimed", claimed, true, 0, left, 0},
		{"deleted, the disk is not ready", passes, true, time.Minute, "", diskRetry},
		{"deleted, the disk stays away", passes, true, diskWait, left, 0},
		{"deleted, the disk is emptied", emptied, true, 0, left, 0},
		{"deleted, the disk is gone", gone, true, 0, left, 0},
		{"of another node", dataSeen{}, true, time.Hour, "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := dataOrphan(row.deleted)
			row.seen.Since = now
			d := decideData(now.Add(row.after), o, row.seen)
			if do := outcome(t, d); do != row.do || d.After != row.again {
				t.Errorf("does %q after %v, want %q after %v", do, d.After, row.do, row.again)
			}
			cond := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionDataCleanable)
			failed := v1beta2.IsConditionTrue(o.Status.Conditions, v1beta2.OrphanConditionError)
			if cond.Reason != row.seen.Standing.Reason || failed != (row.seen.Problem != "") ||
				row.seen.Mine != (o.Status.OwnerID == "n1") {
				t.Errorf("status %+v", o.Status)
			}
			if row.seen.Mine && (cond.Status == v1beta2.ConditionTrue) != (cond.Reason == "") {
				t.Errorf("condition %+v", cond)
			}
		})
	}
}

// TestDecideAway: the leader never removes data.
func TestDecideAway(t *testing.T) {
	lost := notReadyNode(v1beta2.NodeReasonKubernetesNodeGone)
	restarts := notReadyNode(v1beta2.NodeReasonManagerPodDown)
	pressed := notReadyNode(v1beta2.NodeReasonKubernetesNodePressure)
	for _, row := range []struct {
		name    string
		node    *v1beta2.Node
		deleted bool
		after   time.Duration
		do      string
		again   time.Duration
		owner   string
	}{
		{"its manager does it", dataNode(), true, 0, "", 0, ""},
		{"the node is gone", nil, false, 0, "delete", 0, "leader"},
		{"the node is gone, deleted", nil, true, 0, "finish FailedDeleting", 0, "leader"},
		{"the node is down", lost, false, time.Hour, "", 0, "leader"},
		{"the node is down, deleted", lost, true, 0, "finish FailedDeleting", 0, "leader"},
		{"its manager restarts", restarts, true, time.Minute, "", time.Minute, "leader"},
		{"the node is under pressure", pressed, false, time.Hour, "", 0, "leader"},
		{"the node is under pressure, deleted", pressed, true, diskWait, "finish FailedDeleting", 0, "leader"},
		{"its manager stays away", restarts, true, time.Hour, "finish FailedDeleting", 0, "leader"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := dataOrphan(row.deleted)
			d := decide(now.Add(row.after), o, seen{Node: row.node, NodeDown: condition.NodeDown(row.node), Owner: "leader",
				Auto: true, Since: now})
			if do := outcome(t, d); do != row.do || d.After != row.again || o.Status.OwnerID != row.owner {
				t.Errorf("does %q after %v, owner %q", do, d.After, o.Status.OwnerID)
			}
			c := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionDataCleanable)
			if row.owner != "" && (c.Status != v1beta2.ConditionFalse || c.Reason != "NodeUnavailable") {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

// TestFailureIsTold: a removal that fails is told by condition Error until one succeeds.
func TestFailureIsTold(t *testing.T) {
	a := NewAgent(AgentConfig{})
	if err := a.failed("o", context.Canceled); err == nil || !strings.Contains(a.failure("o"), "canceled") {
		t.Errorf("%v, %q", err, a.failure("o"))
	}
	if err := a.failed("o", nil); err != nil || a.failure("o") != "" {
		t.Errorf("%v, %q", err, a.failure("o"))
	}
}

// TestWaitsByOneClock: the clock of the API server, which stamps, is an hour away in either
// direction. Nothing is deleted or left before this process has seen the whole wait, or later.
func TestWaitsByOneClock(t *testing.T) {
	const grace = 5 * time.Minute
	passes := dataSeen{Mine: true, Exists: true, Standing: standing{Reason: "DiskInvalid", Passes: true}, Since: now}
	auto := dataSeen{Mine: true, Exists: true, Auto: true, Grace: grace, Since: now}
	away := seen{Node: notReadyNode(v1beta2.NodeReasonManagerPodDown), Owner: "leader", Since: now}
	process := seen{Manager: manager(v1beta2.InstanceManagerStateRunning),
		Process: process(v1beta2.InstanceStateRunning), Auto: true, Grace: grace, Since: now}
	for name, row := range map[string]struct {
		deleted bool
		wait    time.Duration
		decide  func(now time.Time, o *v1beta2.Orphan) loop.Decision
	}{
		"grace of data": {false, grace, func(now time.Time, o *v1beta2.Orphan) loop.Decision {
			return decideData(now, o, auto)
		}},
		"grace of a process": {false, grace, func(now time.Time, o *v1beta2.Orphan) loop.Decision {
			o.Spec.OrphanType = v1beta2.OrphanTypeEngineInstance
			return decide(now, o, process)
		}},
		"a disk that is not ready": {true, diskWait, func(now time.Time, o *v1beta2.Orphan) loop.Decision {
			return decideData(now, o, passes)
		}},
		"a node that is not ready": {true, diskWait, func(now time.Time, o *v1beta2.Orphan) loop.Decision {
			return decide(now, o, away)
		}},
	} {
		for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
			o := dataOrphan(row.deleted)
			o.CreationTimestamp = metav1.NewTime(now.Add(ahead))
			if row.deleted {
				o.DeletionTimestamp = &metav1.Time{Time: now.Add(ahead)}
			}
			if d := row.decide(now.Add(row.wait-time.Second), o); d.Do != nil || d.After <= 0 {
				t.Errorf("%s, stamped by a clock %s ahead: too early: %v, again after %s", name, ahead, d.Do, d.After)
			}
			if d := row.decide(now.Add(row.wait), o); d.Do == nil {
				t.Errorf("%s, stamped by a clock %s ahead: nothing is done, again after %s", name, ahead, d.After)
			}
		}
	}
}
