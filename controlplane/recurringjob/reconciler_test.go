package recurringjob

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
)

func testClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
}

// heldBy is the attachment of a volume with tickets of runs, each of a job and named by its Pod,
// and one of a user.
func heldBy(volume string, jobOf map[string]string) *v1beta2.VolumeAttachment {
	a := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: volume}}
	a.Spec.Volume = volume
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"user": {ID: "user"}}
	for pod, job := range jobOf {
		a.Spec.AttachmentTickets[pod] = v1beta2.AttachmentTicket{ID: pod, Parameters: map[string]string{
			v1beta2.AttachmentParameterRecurringJob: job, v1beta2.AttachmentParameterPod: pod}}
	}
	return a
}

func testPod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

// TestTicketsOfEndedRuns: a ticket is left over when the API server itself says that the Pod of its
// run has ended or is gone, whatever the cache says.
func TestTicketsOfEndedRuns(t *testing.T) {
	for _, tt := range []struct {
		name         string
		cached, live []client.Object
		want         bool
	}{
		{name: "gone", want: true},
		{name: "failed", cached: []client.Object{testPod("p", corev1.PodFailed)},
			live: []client.Object{testPod("p", corev1.PodFailed)}, want: true},
		{name: "running", cached: []client.Object{testPod("p", corev1.PodRunning)}},
		{name: "the cache does not have it yet", live: []client.Object{testPod("p", corev1.PodPending)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held := []client.Object{heldBy("v", map[string]string{"p": "j"}),
				heldBy("w", map[string]string{"q": "another"})}
			r := New(Config{Namespace: "ns"}).WithClient(
				testClient(t, append(tt.cached, held...)...), testClient(t, tt.live...))
			left, err := r.leftover(context.Background(), "j")
			if err != nil || (left != nil) != tt.want || left != nil && (left.Ticket != "p" || left.Attachment.Name != "v") {
				t.Errorf("left over: %+v, %v", left, err)
			}
		})
	}
}

// TestTicketsOfADeletedJob: those of its ended runs are taken back, and no others.
func TestTicketsOfADeletedJob(t *testing.T) {
	c := testClient(t, heldBy("v", map[string]string{"p": "j", "q": "j"}),
		heldBy("w", map[string]string{"r": "j", "s": "k"}),
		testPod("q", corev1.PodRunning))
	r := New(Config{Namespace: "ns"}).WithClient(c, c)
	r.gone(context.Background(), client.ObjectKey{Namespace: "ns", Name: "j"})
	for volume, want := range map[string][]string{"v": {"user", "q"}, "w": {"user", "s"}} {
		var a v1beta2.VolumeAttachment
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: volume}, &a); err != nil {
			t.Fatal(err)
		}
		for _, id := range want {
			if _, ok := a.Spec.AttachmentTickets[id]; !ok {
				t.Errorf("%s has lost ticket %s", volume, id)
			}
		}
		if len(a.Spec.AttachmentTickets) != len(want) {
			t.Errorf("%s has tickets %v, want %v", volume, a.Spec.AttachmentTickets, want)
		}
	}
	if got := holders(heldBy("v", map[string]string{"p": "j"})); len(got) != 1 || got[0] != "j" {
		t.Errorf("a change of the attachment wakes %v", got)
	}
}

// TestGather: the CronJob of the name and the settings.
func TestGather(t *testing.T) {
	j := testJob()
	c := testClient(t, cronJobFor(j, testSettings()),
		&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "priority-class"}, Value: "first"})
	r := New(Config{Namespace: "ns", NodeName: "n1", Image: "manager:1", ServiceAccount: "account"}).WithClient(c, c)
	s, err := r.gather(context.Background(), j)
	if err != nil || s.CronJob == nil || s.Owner != "n1" || s.Left != nil || s.Settings.priorityClass != "first" ||
		s.Settings.image != "manager:1" || s.Settings.serviceAccount != "account" || s.Settings.succeeded != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.Create(context.Background(), j); err != nil {
		t.Fatal(err)
	}
	for name, wakes := range map[string]int{
		"recurring-failed-jobs-history-limit": 1, "taint-toleration": 1, "log-level": 0,
	} {
		if got := r.onSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}}); len(got) != wakes {
			t.Errorf("setting %s wakes %v", name, got)
		}
	}
}
