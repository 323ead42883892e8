package manager

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// managerPod is one of another system.
func managerPod(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-manager-abc", UID: "u",
		Labels: map[string]string{"app": "longhorn-manager"}},
		Spec: corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "longhorn-manager",
			Command: []string{"longhorn-manager", "-d", "daemon"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	edit(p)
	return p
}

// TestWhichManagersAreForeign is the table of Pods beside which this system does nothing.
func TestWhichManagersAreForeign(t *testing.T) {
	now := time.Now()
	ending := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)} }
	}
	f := newForeigners()
	for _, tt := range []struct {
		name    string
		edit    func(*corev1.Pod)
		foreign bool
	}{
		{"running", func(*corev1.Pod) {}, true},
		{"starting", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		{"without a command", func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil }, true},
		{"ours", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"manager", "daemon"} }, false},
		{"ours by a path, beside another container", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Command: []string{"/bin/manager", "daemon"}})
		}, false},
		{"not on a node yet", func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		{"ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		{"failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"ending", ending(-20 * time.Second), true},
		{"another Pod", func(p *corev1.Pod) { p.Labels["app"] = "longhorn-ui" }, false},
	} {
		if got := f.is(managerPod(tt.edit), now); got != tt.foreign {
			t.Errorf("%s: foreign %v, want %v", tt.name, got, tt.foreign)
		}
	}
}

// TestLostManagerByOneClock: a Pod that is to end counts as lost when this process has seen it end
// for its grace period and lostAfter, whatever the API server's clock says.
func TestLostManagerByOneClock(t *testing.T) {
	const grace = 30 * time.Second
	seconds := int64(grace / time.Second)
	for _, away := range []time.Duration{0, time.Hour, -time.Hour} {
		now, f := time.Now(), newForeigners()
		pod := managerPod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(grace - away)}, &seconds
		})
		for _, after := range []time.Duration{0, grace, grace + lostAfter} {
			if !f.is(pod, now.Add(after)) {
				t.Errorf("a clock that is %s away: lost after %s", away, after)
			}
		}
		if f.is(pod, now.Add(grace+lostAfter+time.Second)) {
			t.Errorf("a clock that is %s away: never lost", away)
		}
		another := pod.DeepCopy()
		another.UID = "another"
		if !f.is(another, now.Add(grace+lostAfter+time.Second)) {
			t.Errorf("a clock that is %s away: another Pod of the name is lost at once", away)
		}
	}
}

// TestWaitsForTheEndOfAnotherManager: it says once why, and goes on when the Pod is gone.
func TestWaitsForTheEndOfAnotherManager(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		elsewhere := managerPod(func(p *corev1.Pod) { p.Namespace = "other" })
		pod := managerPod(func(*corev1.Pod) {})
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, elsewhere).Build()
		cfg := Common{Namespace: "ns", NodeName: "n1"}
		over := make(chan error, 1)
		var waits atomic.Bool
		go func() { over <- newForeigners().awaitAlone(t.Context(), c, cfg, func() { waits.Store(true) }) }()
		<-time.After(3*aloneRetry + time.Second)
		synctest.Wait()
		select {
		case err := <-over:
			t.Fatalf("goes on beside the Pod: %v", err)
		default:
		}
		if !waits.Load() {
			t.Error("nobody is told of the wait")
		}
		var events corev1.EventList
		if err := c.List(t.Context(), &events, client.InNamespace("ns")); err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != pod.Name || events.Items[0].Count != 1 ||
			!strings.Contains(events.Items[0].Message, "node n1 waits: a manager of another system runs in Pod "+pod.Name) {
			t.Errorf("events %+v", events.Items)
		}
		if err := c.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// TestEndOfTheWaitForAnotherManager: the end of the process ends the wait.
func TestEndOfTheWaitForAnotherManager(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(managerPod(func(*corev1.Pod) {})).Build()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := newForeigners().awaitAlone(ctx, c, Common{Namespace: "ns"}, nil); err == nil || ctx.Err() == nil {
			t.Errorf("%v, %v", err, ctx.Err())
		}
	})
}

// TestGivesUpBesideAnotherManager: who leads ends with an error when a manager of another system
// comes up, and not for one of our own.
func TestGivesUpBesideAnotherManager(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	informers := &informertest.FakeInformers{Scheme: scheme}
	pods, err := informers.FakeInformerFor(t.Context(), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		over := make(chan error, 1)
		go func() { over <- newForeigners().whileAlone(t.Context(), informers, "ns") }()
		synctest.Wait()
		own := managerPod(func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"manager", "daemon"} })
		pending := managerPod(func(p *corev1.Pod) { p.Spec.NodeName = "" })
		pods.Add(own)
		pods.Add(pending)
		pods.Add(managerPod(func(p *corev1.Pod) { p.Namespace = "other" }))
		synctest.Wait()
		select {
		case err := <-over:
			t.Fatalf("gave up: %v", err)
		default:
		}
		pods.Update(pending, managerPod(func(*corev1.Pod) {}))
		pods.Add(managerPod(func(p *corev1.Pod) { p.Name = "second" }))
		if err := <-over; err == nil || !strings.Contains(err.Error(), "runs in Pod longhorn-manager-abc on node n2") {
			t.Errorf("ended with %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := newForeigners().whileAlone(ctx, &informertest.FakeInformers{Scheme: scheme}, "ns"); err != nil {
			t.Errorf("the end of the process is told as %v", err)
		}
	})
}
