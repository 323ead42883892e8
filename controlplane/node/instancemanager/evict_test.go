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

// TestPodHasTheRoleOfBackups: the role of AWS that the Secret of the default backup target names is
// the one of new Pods, and of Pods that run, which are not made anew for it.
func TestPodHasTheRoleOfBackups(t *testing.T) {
	const key = "iam.amazonaws.com/role"
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	running := s.Pod
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		role string
	}{{"a new Pod", nil, "arn:1"}, {"a Pod that runs", running, "arn:1"}} {
		s.Pod, s.Role = tt.pod, tt.role
		var got *corev1.Pod
		switch do := decide(now, im, s).Do.(type) {
		case loop.Create:
			got = do.Object.(*corev1.Pod)
		case loop.Update:
			got = do.Object.(*corev1.Pod)
		default:
			t.Fatalf("%s: does %v", tt.name, do)
		}
		if got.Annotations[key] != tt.role {
			t.Errorf("%s: %v", tt.name, got.Annotations)
		}
		s.Pod = got
		if do := decide(now, im, s).Do; do != nil {
			t.Errorf("%s that has it: does %v", tt.name, do)
		}
		s.Role = ""
		u, ok := decide(now, im, s).Do.(loop.Update)
		if _, there := u.Object.GetAnnotations()[key]; !ok || there {
			t.Errorf("%s keeps a role that nobody names", tt.name)
		}
	}
}
