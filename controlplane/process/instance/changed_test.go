package instance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestChanged: what the status says of processes is for clients; the state of an instance manager
// concerns all of them. Work that each start causes for all grows with the number of volumes.
func TestChanged(t *testing.T) {
	p := func(state v1beta2.InstanceState) v1beta2.InstanceProcess {
		return v1beta2.InstanceProcess{Status: v1beta2.InstanceProcessStatus{State: state}}
	}
	for name, c := range map[string]struct {
		edit func(*v1beta2.InstanceManager)
		all  bool
	}{
		"nothing": {func(*v1beta2.InstanceManager) {}, false},
		"an engine runs": {func(im *v1beta2.InstanceManager) {
			im.Status.InstanceEngines["e1"] = p(v1beta2.InstanceStateRunning)
		}, false},
		"a replica is gone, another one new": {func(im *v1beta2.InstanceManager) {
			delete(im.Status.InstanceReplicas, "r1")
			im.Status.InstanceReplicas["r3"] = p(v1beta2.InstanceStateStarting)
		}, false},
		"a condition": {func(im *v1beta2.InstanceManager) {
			im.Status.Conditions = []v1beta2.Condition{{Type: "x"}}
		}, false},
		"unknown": {func(im *v1beta2.InstanceManager) {
			im.Status.CurrentState = v1beta2.InstanceManagerStateUnknown
		}, true},
		"address":  {func(im *v1beta2.InstanceManager) { im.Status.IP = "10.0.0.2" }, true},
		"versions": {func(im *v1beta2.InstanceManager) { im.Status.APIVersion++ }, true},
		"deleted": {func(im *v1beta2.InstanceManager) {
			im.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, true},
		"lost": {func(im *v1beta2.InstanceManager) {
			im.Status.CurrentState, im.Status.InstanceEngines = v1beta2.InstanceManagerStateError, nil
		}, true},
	} {
		before := &v1beta2.InstanceManager{}
		before.Status.CurrentState, before.Status.IP = v1beta2.InstanceManagerStateRunning, "10.0.0.1"
		before.Status.InstanceEngines = map[string]v1beta2.InstanceProcess{
			"e1": p(v1beta2.InstanceStateStarting), "e2": p(v1beta2.InstanceStateRunning)}
		before.Status.InstanceReplicas = map[string]v1beta2.InstanceProcess{
			"r1": p(v1beta2.InstanceStateRunning), "r2": p(v1beta2.InstanceStateRunning)}
		after := before.DeepCopy()
		c.edit(after)
		if all := Changed(before, after); all != c.all {
			t.Errorf("%s: %v, want %v", name, all, c.all)
		}
	}
}
