package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
)

// TestWhatConcernsANode: of what happens to a replica, and of a kubelet's reports, a node is woken
// by what it decides upon, and by nothing else, or each heartbeat costs as much as there are
// volumes.
func TestWhatConcernsANode(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1beta2.Replica)
		want bool
	}{
		"nothing":       {func(*v1beta2.Replica) {}, false},
		"started":       {func(r *v1beta2.Replica) { r.Status.CurrentState = v1beta2.InstanceStateRunning }, false},
		"to be started": {func(r *v1beta2.Replica) { r.Spec.DesireState = v1beta2.InstanceStateRunning }, false},
		"in sync again": {func(r *v1beta2.Replica) { r.Spec.LastHealthyAt = "2030-01-01T00:00:00Z" }, false},
		"in sync":       {func(r *v1beta2.Replica) { r.Spec.HealthyAt = "2030-01-01T00:00:00Z" }, true},
		"failed":        {func(r *v1beta2.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }, true},
		"placed":        {func(r *v1beta2.Replica) { r.Spec.NodeID = "n2" }, true},
		"disk":          {func(r *v1beta2.Replica) { r.Spec.DiskID = "d2" }, true},
		"path":          {func(r *v1beta2.Replica) { r.Spec.DiskPath = "/d2" }, true},
		"grown":         {func(r *v1beta2.Replica) { r.Spec.VolumeSize++ }, true},
		"to leave":      {func(r *v1beta2.Replica) { r.Spec.EvictionRequested = true }, true},
		"deleted":       {func(r *v1beta2.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }, true},
	} {
		before := &v1beta2.Replica{}
		after := before.DeepCopy()
		c.edit(after)
		if got := countedOf(before) != countedOf(after); got != c.want {
			t.Errorf("replica %s: %v", name, got)
		}
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime.Time = now.Add(time.Minute) }, false},
		"images":    {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{}} }, false},
		"not ready": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"cordoned":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"label":     {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true},
	} {
		before := kube()
		after := before.DeepCopy()
		c.edit(after)
		if got := condition.KubeNodeChanged(before, after); got != c.want {
			t.Errorf("Kubernetes node %s: %v", name, got)
		}
	}
}
