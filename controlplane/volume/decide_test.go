package volume

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

const running, stopped, failed = v1beta2.InstanceStateRunning, v1beta2.InstanceStateStopped, v1beta2.InstanceStateError

// fixture is a volume of two replicas a (on n1) and b (on n2), attached to n1 and healthy, on a
// cluster of three nodes.
func fixture() (*v1beta2.Volume, *seen) {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", UID: "uid-v",
		Finalizers: []string{v1beta2.Finalizer}}}
	v.Spec.Size, v.Spec.NumberOfReplicas, v.Spec.Image, v.Spec.NodeID, v.Spec.StaleReplicaTimeout = 1<<30, 2, "img:1",
		"n1", 30
	v.Spec.Frontend = v1beta2.VolumeFrontendBlockDev
	v.Status.State, v.Status.CurrentNodeID, v.Status.CurrentImage = v1beta2.VolumeStateAttached, "n1", "img:1"
	v.Status.Robustness, v.Status.OwnerID, v.Status.ProcessKey = v1beta2.VolumeRobustnessHealthy, "n1", "k1"
	v.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.VolumeConditionScheduled, Status: v1beta2.ConditionTrue}}
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Name: "v-e-0"}}
	e.Spec.Active, e.Spec.NodeID, e.Spec.DesireState, e.Spec.Image = true, "n1", running, "img:1"
	e.Spec.VolumeSize, e.Status.CurrentSize, e.Spec.SnapshotMaxCount = 1<<30, 1<<30, 250
	e.Spec.RebuildConcurrentSyncLimit = 1
	e.Spec.ReplicaAddressMap = map[string]string{"a": "10.0.0.1:10000", "b": "10.0.0.2:10000"}
	e.Status.CurrentState, e.Status.Endpoint = running, "/dev/longhorn/v"
	e.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{"a": v1beta2.ReplicaModeRW, "b": v1beta2.ReplicaModeRW}
	e.Status.ReplicaTransitionTimeMap = map[string]string{"a": ago(time.Hour), "b": ago(time.Hour)}
	e.Status.Membership = &v1beta2.Membership{VolumeUUID: "uid-v", Generation: 2,
		Members: []string{"v-aaaaaaaa", "v-bbbbbbbb"}}
	s := &seen{
		Settings: setting.Values{setting.DefaultInstanceManagerImage: "im:1"}, Engine: e, Engines: []v1beta2.Engine{*e},
		Attachment: &v1beta2.VolumeAttachment{Spec: v1beta2.VolumeAttachmentSpec{
			AttachmentTickets: map[string]v1beta2.AttachmentTicket{
				"ui": {ID: "ui", NodeID: "n1", Type: v1beta2.AttacherTypeLonghornAPI},
			}}}, HasKey: true, NewestKey: "k2", ImageOn: map[string]bool{"n1": true, "n2": true, "n3": true},
		Suffixes: [2]string{"11111111", "22222222"}, Slots: map[string]bool{"n1": true, "n2": true, "n3": true},
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		node := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}
		node.Spec.AllowScheduling = true
		node.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/data", AllowScheduling: true}}
		ok := []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionTrue},
			{Type: "Schedulable", Status: v1beta2.ConditionTrue}}
		node.Status.Conditions = ok
		node.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "disk-" + n, StorageMaximum: 100 << 30,
			StorageAvailable: 90 << 30, Conditions: ok}}
		s.Nodes = append(s.Nodes, node)
		im := v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: "im-" + n}}
		im.Spec.NodeID, im.Spec.Type, im.Spec.Image = n, v1beta2.InstanceManagerTypeAllInOne, "im:1"
		im.Status.CurrentState = v1beta2.InstanceManagerStateRunning
		s.Managers = append(s.Managers, im)
	}
	s.Replicas = []v1beta2.Replica{good("a", "n1", "v-aaaaaaaa"), good("b", "n2", "v-bbbbbbbb")}
	return v, s
}

func good(name, node, dir string) v1beta2.Replica {
	r := v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.Active, r.Spec.NodeID, r.Spec.DiskID, r.Spec.DiskPath = true, node, "disk-"+node, "/data"
	r.Spec.DataDirectoryName, r.Spec.Image, r.Spec.DesireState, r.Spec.EngineName = dir, "img:1", running, "v-e-0"
	r.Spec.HealthyAt, r.Spec.LastHealthyAt, r.Spec.VolumeSize = ago(time.Hour), ago(time.Hour), 1<<30
	r.Spec.SnapshotMaxCount = 250
	r.Status.CurrentState, r.Status.StorageIP, r.Status.Port = running, "10.0.0."+node[1:], 10000
	return r
}

// fail marks a replica as failed and stopped, as follow leaves it.
func fail(s *seen, i int, since time.Duration) {
	r := &s.Replicas[i]
	r.Spec.FailedAt, r.Spec.LastFailedAt, r.Spec.DesireState = ago(since), ago(since), stopped
	r.Status.CurrentState, r.Status.Port = stopped, 0
	delete(s.Engine.Spec.ReplicaAddressMap, r.Name)
	delete(s.Engine.Status.ReplicaModeMap, r.Name)
}

func degrade(v *v1beta2.Volume, since time.Duration) {
	v.Status.Robustness, v.Status.LastDegradedAt = v1beta2.VolumeRobustnessDegraded, ago(since)
}

// TestOneStep is the decision table: what is seen and the one change that is wanted.
func TestOneStep(t *testing.T) {
	type edit func(v *v1beta2.Volume, s *seen)
	tests := []struct {
		name string
		edit edit
		want string
	}{
		{"settled", func(*v1beta2.Volume, *seen) {}, ""},
		// ensureObjects
		{"no finalizer", func(v *v1beta2.Volume, _ *seen) { v.Finalizers = nil }, "update *v1beta2.Volume ns/v"},
		{"no attachment object", func(_ *v1beta2.Volume, s *seen) {
			s.Attachment = nil
		}, "create *v1beta2.VolumeAttachment ns/v"},
		{"no master key, processes run", func(_ *v1beta2.Volume, s *seen) { s.HasKey = false }, ""},
		{"no engine", func(_ *v1beta2.Volume, s *seen) { s.Engine = nil }, "create *v1beta2.Engine ns/v-e-0"},
		{"new volume", func(v *v1beta2.Volume, s *seen) {
			v.Status.State, s.Replicas = "", nil
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		// follow
		{"replica in error", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
		}, "replica b stopped failed"},
		{"failed replica found up to date", func(_ *v1beta2.Volume, s *seen) {
			s.Replicas[1].Spec.FailedAt = ago(time.Hour)
		}, "replica b running"},
		{"replica the engine was started without", func(_ *v1beta2.Volume, s *seen) {
			delete(s.Engine.Spec.ReplicaAddressMap, "b")
			delete(s.Engine.Status.ReplicaModeMap, "b")
		}, "replica b stopped failed"},
		{"replica not judged yet", func(v *v1beta2.Volume, s *seen) {
			delete(s.Engine.Status.ReplicaModeMap, "b")
			degrade(v, 0)
		}, ""},
		{"a process that dies with the engine is not marked", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = failed, nil
			s.Replicas[0].Status.CurrentState = failed
		}, "engine stopped on n1 with ab"},
		{"nor are all that the engine has lost at once", func(_ *v1beta2.Volume, s *seen) {
			for i := range s.Replicas {
				s.Engine.Status.ReplicaModeMap[s.Replicas[i].Name] = v1beta2.ReplicaModeERR
				s.Replicas[i].Status.CurrentState = failed
			}
		}, "replica a stopped"},
		{"unless that has lasted too long", func(v *v1beta2.Volume, s *seen) {
			for i := range s.Replicas {
				s.Engine.Status.ReplicaModeMap[s.Replicas[i].Name] = v1beta2.ReplicaModeERR
			}
			waitedFor(v, 5*time.Minute)
		}, "replica a stopped failed"},
		// open: the list of a running engine
		{"failed replica leaves the list", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, 0)
			s.Engine.Spec.ReplicaAddressMap["b"] = "10.0.0.2:10000"
			s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
			degrade(v, 0)
		}, "engine running on n1 with a"},
		{"the list is never emptied", func(v *v1beta2.Volume, s *seen) {
			for i := range s.Replicas {
				fail(s, i, 0)
			}
			s.Engine.Spec.ReplicaAddressMap = map[string]string{"a": "x:1", "b": "y:1"}
			s.Engine.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{"a": v1beta2.ReplicaModeERR,
				"b": v1beta2.ReplicaModeERR}
		}, ""},
		{"rebuild: process started", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, 0)
			s.Replicas[1].Spec.FailedAt, s.Replicas[1].Spec.HealthyAt = "", ""
			degrade(v, 0)
		}, "replica b running"},
		{"rebuild: node's limit reached", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, 0)
			s.Replicas[1].Spec.FailedAt, s.Replicas[1].Spec.HealthyAt = "", ""
			s.Slots["n2"] = false
			degrade(v, 0)
		}, ""},
		{"rebuild of a first replica that comes late: takes a slot", comesLate, "replica b running"},
		{"rebuild of a first replica that comes late: node's limit reached", func(v *v1beta2.Volume, s *seen) {
			comesLate(v, s)
			s.Slots["n2"] = false
		}, ""},
		{"rebuild of a first replica that comes late: has its slot", func(v *v1beta2.Volume, s *seen) {
			comesLate(v, s)
			s.Replicas[1].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
		}, "engine running on n1 with ab"},
		{"rebuild: given to the engine", func(v *v1beta2.Volume, s *seen) {
			delete(s.Engine.Spec.ReplicaAddressMap, "b")
			delete(s.Engine.Status.ReplicaModeMap, "b")
			s.Replicas[1].Spec.HealthyAt = ""
			degrade(v, 0)
		}, "engine running on n1 with ab"},
		{"rebuild: not at an address the engine still holds", func(v *v1beta2.Volume, s *seen) {
			delete(s.Engine.Spec.ReplicaAddressMap, "b")
			delete(s.Engine.Status.ReplicaModeMap, "b")
			s.Engine.Status.ReplicaModeMap["unknown-10.0.0.2:10000"] = v1beta2.ReplicaModeERR
			s.Replicas[1].Spec.HealthyAt = ""
			degrade(v, 0)
		}, ""},
		// open: starting
		{"engine stopped, replicas run: started again", func(_ *v1beta2.Volume, s *seen) {
			off(s)
		}, "engine running on n1 with ab"},
		{"a replica in error is stopped before it is started", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Status.CurrentState = failed
		}, "replica b stopped"},
		{"a replica that is stopped is started", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Spec.DesireState, s.Replicas[1].Status.CurrentState = stopped, stopped
		}, "replica b running"},
		{"a failed one that is a member is started too", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			fail(s, 1, time.Hour)
		}, "replica b running failed"},
		{"one on a lost node is not waited for", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Nodes[1].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
				Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
		}, "engine running on n1 with a"},
		{"one that is starting is waited for", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
		}, ""},
		{"but not for ever", func(v *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
			waitedFor(v, time.Hour)
		}, "engine running on n1 with a"},
		{"nor long while I/O waits", func(v *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
			waitedFor(v, followWait)
		}, "engine running on n1 with a"},
		{"with all of them while I/O waits: as long as that may", func(v *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[0].Status.CurrentState = v1beta2.InstanceStateStarting
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
			waitedFor(v, 5*time.Minute-time.Second)
		}, ""},
		{"and no longer", func(v *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[0].Status.CurrentState = v1beta2.InstanceStateStarting
			waitedFor(v, 5*time.Minute)
		}, "replica a stopped failed"},
		{"ordered, a replica dies before its process is seen: back to the start", func(v *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, nil
			s.Replicas[1].Status.CurrentState = failed
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
		}, "engine stopped on n1 with ab"},
		{"while I/O waits that would end the device of a process that is not seen yet", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, nil
			s.Replicas[1].Status.CurrentState = failed
		}, ""},
		{"a replica that came back elsewhere meanwhile", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, nil
			s.Engine.Spec.ReplicaAddressMap = map[string]string{"a": "10.0.0.1:10000"}
		}, "engine running on n1 with ab"},
		{"ordered, without a process yet: a member whose node is back is started", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, nil
			fail(s, 1, time.Hour)
		}, "replica b running failed"},
		{"but not while no instance manager is there for it", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, nil
			fail(s, 1, time.Hour)
			s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateStopped
		}, ""},
		{"a copy that never was in sync is not given at the start", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas = append(s.Replicas, good("c", "n3", "v-cccccccc"))
			s.Replicas[2].Spec.HealthyAt, s.Replicas[2].Spec.LastHealthyAt = "", ""
		}, "engine running on n1 with ab"},
		{"a copy whose rebuild was interrupted loses its standing", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.DesireState, s.Replicas[1].Status.CurrentState = "",
				stopped, stopped
		}, "replica b running failed"},
		{"the record of another volume is void", func(_ *v1beta2.Volume, s *seen) {
			off(s)
			s.Engine.Status.Membership.VolumeUUID = "other"
			s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.LastHealthyAt = "", ""
		}, "engine running on n1 with a"},
		// close
		{"no node wanted: engine first", func(v *v1beta2.Volume, _ *seen) { v.Spec.NodeID = "" }, "engine stopped on  with "},
		{"then the replicas", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NodeID = ""
			off(s)
			s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
		}, "replica a stopped"},
		{"another node wanted", func(v *v1beta2.Volume, _ *seen) { v.Spec.NodeID = "n2" }, "engine stopped on  with "},
		// replenish
		{"failed replica is rebuilt where it is", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			degrade(v, time.Minute)
		}, "replica b stopped"},
		{"not while its old process is there", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			s.Replicas[1].Status.CurrentState = running
			degrade(v, time.Minute)
		}, ""},
		{"its node is lost: wait", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateUnknown
			degrade(v, time.Minute)
		}, ""},
		{"waited long enough: a new one", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, 11*time.Minute)
			s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateUnknown
			degrade(v, 11*time.Minute)
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"nothing to wait for: a new one at once", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, 0)
			s.Replicas = s.Replicas[:1]
			degrade(v, 0)
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"rebuilding is switched off", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			s.Settings[setting.ConcurrentReplicaRebuildPerNodeLimit] = "0"
			degrade(v, time.Minute)
		}, ""},
		{"pause after a failed rebuild", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Second)
			s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.RebuildRetryCount = "", 1
			degrade(v, time.Minute)
		}, ""},
		// cleanup
		{"stale replica", func(v *v1beta2.Volume, s *seen) {
			third(s)
			s.Replicas[2].Spec.FailedAt, s.Replicas[2].Spec.DesireState = ago(31*time.Minute), stopped
			s.Replicas[2].Status.CurrentState = stopped
		}, "delete *v1beta2.Replica c"},
		{"stale, but a member", func(v *v1beta2.Volume, s *seen) {
			third(s)
			s.Replicas[2].Spec.FailedAt, s.Replicas[2].Spec.DesireState = ago(31*time.Minute), stopped
			s.Replicas[2].Status.CurrentState = stopped
			s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, "v-cccccccc")
		}, ""},
		{"not stale yet", func(v *v1beta2.Volume, s *seen) {
			third(s)
			s.Replicas[2].Spec.FailedAt, s.Replicas[2].Spec.DesireState = ago(29*time.Minute), stopped
			s.Replicas[2].Status.CurrentState = stopped
		}, ""},
		{"extra healthy replica stays without a reason", func(_ *v1beta2.Volume, s *seen) {
			third(s)
			s.Engine.Spec.ReplicaAddressMap["c"], s.Engine.Status.ReplicaModeMap["c"] = "10.0.0.3:10000", v1beta2.ReplicaModeRW
			s.Engine.Status.ReplicaTransitionTimeMap["c"] = ago(time.Hour)
		}, ""},
		{"extra healthy replica is evicted", func(_ *v1beta2.Volume, s *seen) {
			third(s)
			s.Engine.Spec.ReplicaAddressMap["c"], s.Engine.Status.ReplicaModeMap["c"] = "10.0.0.3:10000", v1beta2.ReplicaModeRW
			s.Engine.Status.ReplicaTransitionTimeMap["c"] = ago(time.Hour)
			s.Replicas[0].Spec.EvictionRequested = true
		}, "delete *v1beta2.Replica a"},
		// the last good copy serves on although it was deleted
		{"deleted, and the other has failed", func(v *v1beta2.Volume, s *seen) {
			remove(s, 0)
			fail(s, 1, time.Minute)
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
			degrade(v, time.Minute)
		}, "replica b stopped"},
		{"deleted beside one in sync", func(_ *v1beta2.Volume, s *seen) { remove(s, 0) }, "engine running on n1 with b"},
		{"both deleted: a third is made before any is dropped", func(v *v1beta2.Volume, s *seen) {
			remove(s, 0)
			remove(s, 1)
			degrade(v, time.Minute)
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"deleted last copy whose engine died: it is started with it", func(_ *v1beta2.Volume, s *seen) {
			remove(s, 0)
			s.Replicas = s.Replicas[:1]
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
			off(s)
		}, "engine running on n1 with a"},
		// delete
		{"deleted: engine first", func(v *v1beta2.Volume, _ *seen) {
			v.DeletionTimestamp = &metav1.Time{Time: now}
		}, "delete *v1beta2.Engine v-e-0"},
		{"deleted: then replicas", func(v *v1beta2.Volume, s *seen) {
			v.DeletionTimestamp, s.Engines = &metav1.Time{Time: now}, nil
		}, "delete *v1beta2.Replica a"},
		{"deleted: then the attachment", func(v *v1beta2.Volume, s *seen) {
			v.DeletionTimestamp, s.Engines, s.Replicas = &metav1.Time{Time: now}, nil, nil
		}, "delete *v1beta2.VolumeAttachment *"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(v, s)
			if got := describe(settle(v, s)); got != tt.want {
				t.Errorf("wants %q, want %q (state %s, robustness %s)", got, tt.want, v.Status.State, v.Status.Robustness)
			}
		})
	}
}

// waitedFor: replicas have been waited for so long.
func waitedFor(v *v1beta2.Volume, d time.Duration) {
	v.Status.Conditions = append(v.Status.Conditions, v1beta2.Condition{Type: ConditionWaitForReplicas,
		Status: v1beta2.ConditionTrue, Reason: ReasonIOWaits, LastTransitionTime: ago(d)})
}

func off(s *seen) {
	s.Engine.Spec.DesireState, s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = stopped, stopped, nil
}

// remove asks for the deletion of a replica.
func remove(s *seen, i int) { s.Replicas[i].DeletionTimestamp = &metav1.Time{Time: now} }

func third(s *seen) { s.Replicas = append(s.Replicas, good("c", "n3", "v-cccccccc")) }

func TestRobustnessAndItsTimes(t *testing.T) {
	v, s := fixture()
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeWO
	s.Replicas[1].Spec.HealthyAt = ""
	d := decides(v, *s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessDegraded || v.Status.LastDegradedAt != now.Format(time.RFC3339) ||
		len(d.Events) != 1 || d.Events[0].Reason != naming.EventDegraded || d.Events[0].Warning {
		t.Fatalf("%s since %q, events %v", v.Status.Robustness, v.Status.LastDegradedAt, d.Events)
	}
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeRW
	s.Replicas[1].Spec.HealthyAt = ago(0)
	decides(v, *s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessHealthy || v.Status.LastDegradedAt != "" {
		t.Fatalf("%s since %q", v.Status.Robustness, v.Status.LastDegradedAt)
	}
}

func TestFailedRebuildsAreCountedInterruptionsAreNot(t *testing.T) {
	v, s := fixture()
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
	s.Replicas[1].Spec.HealthyAt = ""
	degrade(v, 0)
	r := settle(v, s).Do.(loop.Update).Object.(*v1beta2.Replica)
	if r.Spec.RebuildRetryCount != 1 || r.Spec.FailedAt == "" || r.Spec.LastFailedAt == "" {
		t.Errorf("a failed rebuild: %+v", r.Spec)
	}
	v, s = fixture()
	s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
	if r := settle(v, s).Do.(loop.Update).Object.(*v1beta2.Replica); r.Spec.RebuildRetryCount != 0 {
		t.Errorf("a replica lost in service counts as a failed rebuild: %+v", r.Spec)
	}
}

func TestFaultedVolumeIsSalvagedWhenEnoughMembersAreBack(t *testing.T) {
	v, s := fixture()
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
	off(s)
	s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
	for i := range s.Replicas {
		fail(s, i, time.Minute)
	}
	s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa", "v-bbbbbbbb", "v-cccccccc"}
	s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateError
	if d := settle(v, s); d.Do != nil || v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
		t.Fatalf("salvaged with one of three members: %v", d.Do)
	}
	s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateRunning
	if got := describe(settle(v, s)); got != "replica a stopped" {
		t.Fatalf("wants %q", got)
	}
	s.Replicas[0].Spec.FailedAt, s.Replicas[1].Spec.FailedAt = "", ""
	d := decides(v, *s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessUnknown || v.Status.LastAutoSalvagedAt == "" ||
		v.Status.RemountRequestedAt == "" ||
		len(told(d, naming.EventAutoSalvaged)) != 1 || len(told(d, naming.EventRemount)) != 1 {
		t.Fatalf("status %+v, events %v", v.Status, d.Events)
	}
}

func TestWithoutAutoSalvageAPersonDecides(t *testing.T) {
	v, s := fixture()
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "", "", v1beta2.VolumeStateDetached
	v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
	off(s)
	s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
	for i := range s.Replicas {
		fail(s, i, time.Minute)
	}
	for _, standby := range []bool{true, false} { // the setting is not for standby volumes
		v.Spec.Standby, s.Settings[setting.AutoSalvage] = standby, strconv.FormatBool(standby)
		if d := settle(v, s); d.Do != nil || v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
			t.Fatalf("salvaged by itself: %v", d.Do)
		}
	}
	s.Replicas[0].Spec.FailedAt = "" // the REST action
	settle(v, s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessUnknown || v.Status.LastAutoSalvagedAt != "" ||
		v.Status.RemountRequestedAt != ago(0) {
		t.Fatalf("status %+v", v.Status)
	}
}

func TestDecideEditsNothingItWasGiven(t *testing.T) {
	v, s := fixture()
	fail(s, 1, time.Minute)
	degrade(v, time.Minute)
	before := s.Replicas[1].DeepCopy()
	if describe(settle(v, s)) == "" {
		t.Fatal("nothing was wanted")
	}
	if before.Spec != s.Replicas[1].Spec {
		t.Error("a gathered replica was edited")
	}
}
