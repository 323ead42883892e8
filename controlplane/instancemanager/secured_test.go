package instancemanager

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/naming"
	"ankole.storage/instancemanager/mtls"
)

// TestPodsAt: the Pod of an instance manager that serves at an address. That a note is bound to a
// UID takes a real API server: TestCluster/C9.
func TestPodsAt(t *testing.T) {
	pod := func(name, component, ip string, phase corev1.PodPhase, age time.Duration) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Labels:            map[string]string{naming.LabelComponent: component},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(-age)),
		}, Status: corev1.PodStatus{PodIP: ip, Phase: phase}}
	}
	const im = naming.ComponentInstanceManager
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithIndex(&corev1.Pod{}, podIPField, func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Status.PodIP}
		}).
		WithObjects(
			pod("a", im, "10.0.0.1", corev1.PodRunning, 0),
			pod("ended", im, "10.0.0.1", corev1.PodFailed, -time.Hour),
			pod("older", im, "10.0.0.2", corev1.PodRunning, time.Hour),
			pod("b", im, "10.0.0.2", corev1.PodRunning, 0),
			pod("manager", "longhorn-manager", "10.0.0.3", corev1.PodRunning, 0),
			pod("c", im, "10.0.0.4", corev1.PodSucceeded, 0)).Build()
	pods := &Pods{Client: c, Namespace: "ns"}
	for ip, want := range map[string]string{"10.0.0.1": "a", "10.0.0.2": "b", "10.0.0.3": "", "10.0.0.4": "",
		"10.0.0.5": ""} {
		got, err := pods.At(t.Context(), ip)
		if got.Name != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), ip) ||
			got.Secured {
			t.Errorf("at %s: %+v %v, want %q", ip, got, err, want)
		}
	}
	if err := pods.NoteSecured(t.Context(), mtls.Pod{Name: "b", UID: "uid-b"}); err != nil {
		t.Fatal(err)
	}
	if got, err := (&Pods{Client: c, Namespace: "ns"}).At(context.Background(), "10.0.0.2"); err != nil ||
		!got.Secured || got.UID != "uid-b" {
		t.Errorf("after the note: %+v %v", got, err)
	}
	if got, err := pods.At(t.Context(), "10.0.0.1"); err != nil || got.Secured {
		t.Errorf("the note is about others too: %+v %v", got, err)
	}
	if err := pods.NoteSecured(t.Context(), mtls.Pod{Name: "gone", UID: "uid-gone"}); err == nil {
		t.Error("a Pod that is gone has a note")
	}
}
