package instancemanager

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
)

// TestOrphansDoNotHoldADrain: engines that belong to nobody are no reason to keep a node.
func TestOrphansDoNotHoldADrain(t *testing.T) {
	s := world()
	s.Processes.Engines = running("v-e-0")
	if s.engineIn() == "" {
		t.Error("an engine does not hold a drain")
	}
	s.Orphaned = map[string]bool{"v-e-0": true}
	if s.engineIn() != "" {
		t.Error("an engine without an object holds a drain")
	}
	s.Orphaned = map[string]bool{"w-e-0": true}
	if s.engineIn() == "" {
		t.Error("another engine's orphan lets a drain pass")
	}
}

// TestClosings: a Pod is empty by its own answer after the close, at once if it refuses what comes
// later, else when nothing that was on its way can arrive any more.
func TestClosings(t *testing.T) {
	clock := time.Unix(0, 0)
	c := newClosings(func() time.Time { return clock })
	key := client.ObjectKey{Name: "im"}
	none := map[string]*imrpc.ProcessResponse{}
	busy := map[string]*imrpc.ProcessResponse{"v-e-0": process("v-e-0", "starting")}
	ended := map[string]*imrpc.ProcessResponse{"v-e-0": process("v-e-0", "error")}
	for i, step := range []struct {
		pod     types.UID
		list    map[string]*imrpc.ProcessResponse
		refuses bool
		after   time.Duration
		want    bool
	}{
		{"a", busy, false, 0, false},
		{"a", ended, true, 0, true},
		{"b", none, false, 0, false},
		{"b", none, false, closeWait - time.Second, false},
		{"b", busy, false, time.Second, false},
		{"b", none, false, 0, true},
		{"c", none, false, 0, false},
		{"d", none, true, 0, true},
	} {
		clock = clock.Add(step.after)
		c.answered(key, step.pod, step.list, step.refuses)
		if got := c.isEmpty(key, step.pod); got != step.want {
			t.Errorf("step %d: empty %v", i, got)
		}
		if c.isEmpty(key, "another") {
			t.Errorf("step %d: the answer counts for another Pod", i)
		}
	}
	c.forget(key)
	if c.isEmpty(key, "d") {
		t.Error("a forgotten answer counts")
	}
}

// TestDrainAllowed: while the Kubernetes node is cordoned a condition says whether the drain may go
// on, or what it waits for; it is gone when the node is not cordoned any more.
func TestDrainAllowed(t *testing.T) {
	held := hold{"v", v1beta2.InstanceManagerReasonLastReplica, "replica r of volume v has no copy elsewhere"}
	im := manager(v1beta2.InstanceManagerStateRunning)
	for _, step := range []struct {
		cordoned, drained bool
		held              hold
		status            v1beta2.ConditionStatus // Unknown: there is none
		reason            string
	}{
		{false, false, hold{}, v1beta2.ConditionUnknown, ""},
		{true, false, held, v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonLastReplica},
		{true, true, hold{}, v1beta2.ConditionTrue, ""},
		{true, false, heldByEngine("v"), v1beta2.ConditionFalse, v1beta2.InstanceManagerReasonEngineOnNode},
		{false, false, hold{}, v1beta2.ConditionUnknown, ""},
	} {
		s := world()
		s.KubeNode.Spec.Unschedulable, s.Drained, s.Held = step.cordoned, step.drained, step.held
		observe(now, im, s)
		c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionDrainAllowed)
		if c.Status != step.status || c.Reason != step.reason || c.Message != step.held.message {
			t.Errorf("%+v: condition %+v", step, c)
		}
	}
}
