package orphan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func manager(state v1beta2.InstanceManagerState) *v1beta2.InstanceManager {
	im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "im-1"}}
	im.Spec.NodeID, im.Status.CurrentState = "n1", state
	return im
}

func process(state v1beta2.InstanceState) *v1beta2.InstanceProcess {
	p := &v1beta2.InstanceProcess{}
	p.Spec.Name, p.Status.UUID, p.Status.State, p.Status.Type = "v-e-0", "run", state, v1beta2.InstanceTypeEngine
	return p
}

func TestOf(t *testing.T) {
	engine := Of(manager(""), process(v1beta2.InstanceStateRunning))
	p := process(v1beta2.InstanceStateRunning)
	p.Spec.Name, p.Status.Type = "v-r-1", v1beta2.InstanceTypeReplica
	rep := Of(manager(""), p)
	if engine.Spec.OrphanType != "engine-instance" || rep.Spec.OrphanType != "replica-instance" ||
		engine.Name == rep.Name || !strings.HasPrefix(engine.Name, "orphan-") || engine.Spec.DataEngine != "v1" ||
		engine.Spec.NodeID != "n1" || engine.Spec.Parameters["InstanceName"] != "v-e-0" ||
		engine.Spec.Parameters["InstanceUUID"] != "run" || engine.Spec.Parameters["InstanceManager"] != "im-1" ||
		engine.Labels["longhornengine"] != "v-e-0" || rep.Labels["longhornreplica"] != "v-r-1" ||
		engine.Labels["longhorninstancemanager"] != "im-1" || engine.Finalizers[0] != "longhorn.io" {
		t.Errorf("%+v\n%+v", engine, rep)
	}
}

func TestDecide(t *testing.T) {
	const running, unknown = v1beta2.InstanceManagerStateRunning, v1beta2.InstanceManagerStateUnknown
	up := process(v1beta2.InstanceStateRunning)
	for _, tt := range []struct {
		name     string
		seen     seen
		deleting bool
		age      time.Duration
		do       string
		after    time.Duration
		exists   v1beta2.ConditionStatus
	}{
		{"a person decides", seen{Manager: manager(running), Process: up}, false, time.Hour, "", 0, "True"},
		{"in the grace period", seen{Manager: manager(running), Process: up, Auto: true, Grace: 5 * time.Minute}, false,
			time.Minute, "", 4 * time.Minute, "True"},
		{"after it", seen{Manager: manager(running), Process: up, Auto: true, Grace: 5 * time.Minute}, false,
			5 * time.Minute, "delete", 0, "True"},
		{"not while the node is down", seen{Manager: manager(unknown), Process: up, Auto: true, NodeDown: true}, false,
			time.Hour, "", 0, "Unknown"},
		{"not while the instance manager is unknown", seen{Manager: manager(unknown), Process: up, Auto: true}, false,
			time.Hour, "", 0, "Unknown"},
		{"its process has ended", seen{Manager: manager(running)}, false, 0, "delete", 0, "False"},
		{"its Pod is gone", seen{Manager: manager(v1beta2.InstanceManagerStateError)}, false, 0, "delete", 0, "False"},
		{"its instance manager is gone", seen{}, false, 0, "delete", 0, "False"},
		{"it has an object again", seen{Manager: manager(running), Process: up, Owned: true}, false, 0, "delete", 0, "True"},
		{"deleted", seen{Manager: manager(running), Process: up}, true, 0, "stop orphaned process v-e-0", 0, "True"},
		{"deleted, and it stops", seen{Manager: manager(running), Process: process(v1beta2.InstanceStateStopping)}, true, 0,
			"", 0, "True"},
		{"deleted, and it has ended", seen{Manager: manager(running)}, true, 0, "update", 0, "False"},
		{"deleted, and it has an object again", seen{Manager: manager(running), Process: up, Owned: true}, true, 0,
			"update", 0, "True"},
		{"deleted while the node is down", seen{Manager: manager(unknown), Process: up, NodeDown: true}, true, 0, "", 0,
			"Unknown"},
		{"deleted, and its instance manager is gone with its node", seen{NodeDown: true}, true, 0, "update", 0, "False"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Of(manager(running), up)
			o.CreationTimestamp = metav1.NewTime(now.Add(-tt.age))
			if tt.deleting {
				o.DeletionTimestamp = &metav1.Time{Time: now}
			}
			tt.seen.Owner, tt.seen.Since = "leader", now.Add(-tt.age)
			d := decide(now, o, tt.seen)
			do := ""
			if d.Do != nil {
				do = d.Do.String()
			}
			c := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionInstanceExist)
			if (do == "") != (tt.do == "") || !strings.HasPrefix(do, tt.do) || d.After != tt.after || c.Status != tt.exists {
				t.Errorf("does %q after %v, condition %+v; want %q after %v", do, d.After, c, tt.do, tt.after)
			}
			if owner := o.Status.OwnerID; (owner == "leader") != tt.seen.NodeDown {
				t.Errorf("owner %q", owner)
			}
		})
	}
}

// TestAnObjectThatIsBackKeepsItsProcess: what the cache has not shown yet counts when the process
// is to be ended.
func TestAnObjectThatIsBackKeepsItsProcess(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	im := manager(v1beta2.InstanceManagerStateRunning)
	lists := heard.New(naming.Namespace)
	lists.Begin(im.Name, "pod")
	lists.Tell(t.Context(), im.Name, "pod", &heard.Processes{Engines: map[string]v1beta2.InstanceProcess{
		"v-e-0": *process(v1beta2.InstanceStateRunning)}})
	engine := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "v-e-0"}}
	for _, back := range []bool{false, true} {
		cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(im).Build()
		live := cached
		if back {
			live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(im, engine).Build()
		}
		processes := &instance.Fake{}
		r := New(Config{Namespace: naming.Namespace, Heard: lists}, processes).WithClient(cached)
		r.live = live
		o := Of(im, process(v1beta2.InstanceStateRunning))
		s, err := r.gather(t.Context(), o)
		if err != nil || s.Owned || s.Process == nil || s.Auto || s.Grace != 5*time.Minute {
			t.Fatalf("%+v, %v", s, err)
		}
		if err := r.carry(t.Context(), o, s, endProcess{}); err != nil {
			t.Fatal(err)
		}
		if ended := len(processes.Orders()) > 0; ended == back {
			t.Errorf("object is back %v: orders %q", back, processes.Orders())
		}
	}
}
