package instancemanager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestPodTellsTheAutoscaler: the cluster autoscaler keeps nodes with Pods like these unless they
// say otherwise. The setting counts for Pods that run too, which nothing else changes for it.
func TestPodTellsTheAutoscaler(t *testing.T) {
	const key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	pod := func(autoscaler bool, have *corev1.Pod) *corev1.Pod {
		t.Helper()
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		s.Pod, s.Autoscaler = have, autoscaler
		switch do := decide(now, im, s).Do.(type) {
		case loop.Create:
			return do.Object.(*corev1.Pod)
		case loop.Update:
			return do.Object.(*corev1.Pod)
		case nil:
			return nil
		default:
			t.Fatalf("does %v", do)
		}
		return nil
	}
	on := pod(true, nil)
	if on.Annotations[key] != "true" {
		t.Fatalf("a new Pod, enabled: %v", on.Annotations)
	}
	if off := pod(false, nil); off.Annotations[key] != "" {
		t.Errorf("a new Pod, disabled: %v", off.Annotations)
	}
	running := world().Pod
	if u := pod(true, running); u == nil || u.Annotations[key] != "true" {
		t.Errorf("a Pod that runs, enabled: %+v", u)
	} else if _, there := pod(false, u).Annotations[key]; there {
		t.Error("a Pod that runs, disabled again, keeps the annotation")
	}
	if u := pod(false, running); u != nil {
		t.Errorf("a Pod that tells already is written: %v", u.Annotations)
	}
}
