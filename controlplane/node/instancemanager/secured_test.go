package instancemanager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/mtls"
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

// TestCertificates: a secret that cannot be used is told, and so is that it can be again; nothing
// is said without a secret.
func TestCertificates(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	find := func() v1beta2.Condition {
		decide(now, im, s)
		return v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionCertificateUsable)
	}
	if c := find(); c.Status != v1beta2.ConditionUnknown {
		t.Errorf("without a secret: %+v", c)
	}
	s.CertificateProblem = errors.New("ca.crt holds no certificate")
	if c := find(); c.Status != v1beta2.ConditionFalse || c.Reason != "BadSecret" ||
		!strings.Contains(c.Message, "longhorn-grpc-tls") || !strings.Contains(c.Message, "ca.crt") {
		t.Errorf("bad: %+v", c)
	}
	s.CertificateProblem = nil
	if c := find(); c.Status != v1beta2.ConditionTrue || c.Message != "" {
		t.Errorf("good again: %+v", c)
	}
}

// TestPodsWaitForACertificate: an instance manager is made when there is a certificate, or when
// managers run that look for none; only then it may speak plaintext.
func TestPodsWaitForACertificate(t *testing.T) {
	next := func(p Plaintext) (*corev1.Pod, loop.Decision, v1beta2.Condition) {
		im, s := manager(v1beta2.InstanceManagerStateStopped), world()
		s.Pod, s.Processes, s.Plaintext = nil, nil, p
		d := decide(now, im, s)
		c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionCertificateUsable)
		create, ok := d.Do.(loop.Create)
		if !ok {
			return nil, d, c
		}
		return create.Object.(*corev1.Pod), d, c
	}
	const flag = "--allow-plaintext"
	if pod, d, c := next(Plaintext{Wait: true}); pod != nil || d.After != certificateRetry || c.Reason != "NoCertificate" {
		t.Errorf("there is none yet: %+v, condition %+v", d, c)
	}
	pod, _, _ := next(Plaintext{})
	if pod == nil || slices.Contains(pod.Spec.Containers[0].Args, flag) ||
		pod.Annotations[naming.AnnotationTLSSeen] != "true" {
		t.Errorf("with a certificate: %+v", pod)
	}
	pod, _, _ = next(Plaintext{For: "ankole/manager:1"})
	if pod == nil || !strings.Contains(strings.Join(pod.Spec.Containers[0].Args, " "), flag+" ankole/manager:1") ||
		pod.Annotations[naming.AnnotationTLSSeen] != "" {
		t.Errorf("beside older managers: %+v", pod)
	}
}
