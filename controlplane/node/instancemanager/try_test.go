package instancemanager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestRefusedPodIsTriedFirst: a Pod that the API server would refuse takes the place of none, is
// not ordered where there is none, and the object says why.
func TestRefusedPodIsTriedFirst(t *testing.T) {
	const words = "minimum cpu usage per Container is 2, but request is 500m"
	drifted := func(s *seen) { s.Node.Spec.InstanceManagerCPURequest = 500 }
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	drifted(&s)
	s.Refused = words
	d := decide(now, im, s)
	c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionSettingSynced)
	if d.Do != nil || d.After != refusedRetry || im.Status.ClosedPod != "" || c.Status != v1beta2.ConditionFalse ||
		!strings.Contains(c.Message, words) || !strings.Contains(c.Message, "will be 500m") {
		t.Errorf("refused: does %v, again after %v, closed %q, %+v", d.Do, d.After, im.Status.ClosedPod, c)
	}
	s.Refused = ""
	if d := decide(now, im, s); d.Do == nil || im.Status.ClosedPod == "" {
		t.Errorf("not refused any more: does %v", d.Do)
	}
	im, s = manager(v1beta2.InstanceManagerStateStopped), world()
	s.Pod, s.Processes, s.Refused = nil, nil, words
	d = decide(now, im, s)
	c = v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionPodReady)
	if d.Do != nil || d.After != refusedRetry || c.Message != words {
		t.Errorf("no Pod, refused: does %v, again after %v, %+v", d.Do, d.After, c)
	}
	s.Refused = ""
	if d := decide(now, im, s); d.Do == nil {
		t.Error("no Pod, not refused: nothing is made")
	} else if _, ok := d.Do.(loop.Create); !ok {
		t.Errorf("no Pod, not refused: does %v", d.Do)
	}
}

// TestWhichPodsAreTried: the next Pod is tried, never made, where decide would go for it.
func TestWhichPodsAreTried(t *testing.T) {
	pods := corev1.Resource("pods")
	quota := apierrors.NewForbidden(pods, "im", errors.New("exceeded quota: small"))
	for name, c := range map[string]struct {
		edit    func(*v1beta2.InstanceManager, *seen)
		answer  error
		tried   bool
		refused string
		fails   bool
	}{
		"as it should be": {func(_ *v1beta2.InstanceManager, s *seen) { s.Node.Spec.InstanceManagerCPURequest = 0 },
			quota, false, "", false},
		"another request":  {nil, nil, true, "", false},
		"the Pod is there": {nil, apierrors.NewAlreadyExists(pods, "im"), true, "", false},
		"over a quota":     {nil, quota, true, "exceeded quota: small", false},
		"busy": {func(_ *v1beta2.InstanceManager, s *seen) { s.Processes.Engines = running("v-e-0") }, quota, false, "",
			false},
		"closed": {func(im *v1beta2.InstanceManager, _ *seen) { im.Status.ClosedPod = "pod-uid" }, quota, false, "", false},
		"cordoned": {func(_ *v1beta2.InstanceManager, s *seen) { s.KubeNode.Spec.Unschedulable = true }, quota, false, "",
			false},
		"no Pod": {func(_ *v1beta2.InstanceManager, s *seen) { s.Pod = nil }, quota, true, "exceeded quota: small", false},
		"no Pod, and a pause": {func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod, s.StartNotBefore = nil, now.Add(time.Second)
		}, quota, false, "", false},
		"a webhook takes no trial": {nil, apierrors.NewBadRequest("does not support dry run"), true, "", false},
		"no answer":                {nil, errors.New("connection refused"), true, "", true},
	} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		s.Node.Spec.InstanceManagerCPURequest = 500
		if c.edit != nil {
			c.edit(im, &s)
		}
		scheme := runtime.NewScheme()
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		tried := false
		r := New(Config{})
		r.starts = newStarts(func() time.Time { return now })
		r.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.CreateOption) error {
				options := client.CreateOptions{}
				options.ApplyOptions(opts)
				if len(options.DryRun) == 0 {
					t.Errorf("%s: a Pod is made", name)
				}
				tried = true
				return c.answer
			}}).Build()
		refused, err := r.tryNext(t.Context(), im, s)
		if tried != c.tried || (err != nil) != c.fails || c.refused == "" != (refused == "") ||
			!strings.Contains(refused, c.refused) {
			t.Errorf("%s: tried %v, refused %q, %v", name, tried, refused, err)
		}
	}
}
