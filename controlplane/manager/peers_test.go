package manager

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestManagerOn: the ready manager Pod of the node, and no other Pod.
func TestManagerOn(t *testing.T) {
	pod := func(name, app, node, ip string, ready corev1.ConditionStatus, edit ...func(*corev1.Pod)) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}},
			Spec:   corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
		for _, e := range edit {
			e(p)
		}
		return p
	}
	going := func(p *corev1.Pod) {
		now := metav1.NewTime(time.Now())
		p.DeletionTimestamp, p.Finalizers = &now, []string{"x"}
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	find := managerOn(fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("m1", "longhorn-manager", "n1", "10.0.0.1", corev1.ConditionTrue),
		pod("m2", "longhorn-manager", "n2", "10.0.0.2", corev1.ConditionFalse),
		pod("m3", "longhorn-manager", "n3", "10.0.0.3", corev1.ConditionTrue, going),
		pod("m4", "longhorn-manager", "n3", "10.0.0.4", corev1.ConditionTrue),
		pod("x", "other", "n4", "10.0.0.5", corev1.ConditionTrue)).Build(), "ns")
	for node, want := range map[string]string{"n1": "10.0.0.1:9502", "n2": "", "n3": "10.0.0.4:9502", "n4": "", "": ""} {
		got, err := find(t.Context(), node)
		if got != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), "node "+node) {
			t.Errorf("manager of %s: %q %v, want %q", node, got, err, want)
		}
	}
}
