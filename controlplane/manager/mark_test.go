package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestServingPodIsMarked: the Service of the webhooks finds the Pods that serve by this label.
func TestServingPodIsMarked(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-manager-x",
		Labels: map[string]string{"app": "longhorn-manager"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build()
	if err := markPod(t.Context(), c, Config{Namespace: "ns", PodName: "longhorn-manager-x"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"longhorn.io/admission-webhook": "longhorn-admission-webhook", "app": "longhorn-manager",
	} {
		if pod.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, pod.Labels[key], want)
		}
	}
}
