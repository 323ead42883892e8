package attachment

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// left are the ids of the tickets that a decision leaves, or no if it does not change tickets.
func left(d loop.Decision) string {
	u, ok := d.Do.(loop.Update)
	if !ok {
		return "no"
	}
	a, ok := u.Object.(*v1beta2.VolumeAttachment)
	if !ok {
		return "no"
	}
	return strings.Join(slices.Sorted(maps.Keys(a.Spec.AttachmentTickets)), " ")
}

func TestWithdraw(t *testing.T) {
	const api, csi, snap = v1beta2.AttacherTypeLonghornAPI, v1beta2.AttacherTypeCSI, v1beta2.AttacherTypeSnapshot
	n1 := map[string]bool{"n1": true}
	for _, tt := range []struct {
		name     string
		kind     v1beta2.AttacherType
		node     string
		cordoned map[string]bool
		want     string
	}{
		{"the setting leaves it", api, "n1", nil, "no"},
		{"a manual ticket there", api, "n1", n1, "other"},
		{"a manual ticket elsewhere", api, "n2", n1, "no"},
		{"a Pod's ticket there", csi, "n1", n1, "no"},
		{"a snapshot's ticket there", snap, "n1", n1, "no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, s := fixture()
			attachedTo(s.Volume, tt.node)
			s.Cordoned = tt.cordoned
			ticket(a, "it", tt.node, tt.kind)
			ticket(a, "other", "n2", api)
			d := decide(now, a, s)
			if got := left(d); got != tt.want {
				t.Fatalf("%v leaves %q, want %q", d.Do, got, tt.want)
			}
			if len(a.Spec.AttachmentTickets) != 2 {
				t.Error("the gathered attachment was edited")
			}
			if tt.want == "no" {
				return
			}
			if len(d.Events) != 1 || !strings.Contains(d.Events[0].Message, "n1 is cordoned") {
				t.Errorf("events %+v", d.Events)
			}
			a.Spec = d.Do.(loop.Update).Object.(*v1beta2.VolumeAttachment).Spec
			if got := outcome(decide(now, a, s)); got != "detach" {
				t.Errorf("without the ticket: %q, want detach", got)
			}
		})
	}
	a, s := fixture()
	s.Cordoned, s.Volume.DeletionTimestamp = n1, &metav1.Time{Time: now}
	attachedTo(s.Volume, "n1")
	ticket(a, "it", "n1", api)
	a.DeletionTimestamp = &metav1.Time{Time: now}
	if got := left(decide(now, a, s)); got != "it" {
		t.Errorf("a deleted attachment leaves %q; its finalizer comes off, and the ticket goes with it", got)
	}
}

// TestCordonedNodes: what is read for the decision, and who is woken when it changes.
func TestCordonedNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	attachment := func(name string, kind v1beta2.AttacherType) *v1beta2.VolumeAttachment {
		a, _ := fixture()
		a.Namespace, a.Name, a.Spec.Volume = naming.Namespace, name, name
		ticket(a, "on n1", "n1", kind)
		ticket(a, "on n2", "n2", kind)
		ticket(a, "on n9", "n9", kind)
		return a
	}
	manually, byPod := attachment("m", v1beta2.AttacherTypeLonghornAPI), attachment("p", v1beta2.AttacherTypeCSI)
	kube := func(name string, cordoned bool) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	}
	asks := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace,
		Name: setting.DetachManuallyAttachedVolumesWhenCordoned}}
	for _, tt := range []struct {
		value  string
		object *v1beta2.VolumeAttachment
		want   []string
	}{{"true", manually, []string{"n1"}}, {"false", manually, nil}, {"true", byPod, nil}} {
		asks.Value = tt.value
		b := fake.NewClientBuilder().WithScheme(scheme).
			WithObjects(manually.DeepCopy(), byPod.DeepCopy(), kube("n1", true), kube("n2", false), asks.DeepCopy())
		for _, i := range index.All() {
			b = b.WithIndex(i.Object, i.Field, i.Of)
		}
		r := New(Config{Namespace: naming.Namespace}).WithClient(b.Build())
		s, err := r.gather(t.Context(), tt.object)
		if got := slices.Sorted(maps.Keys(s.Cordoned)); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("setting %s, attachment %s: %q, %v; want %q", tt.value, tt.object.Name, got, err, tt.want)
		}
		if got := r.onSetting(asks); !slices.Equal(got, []string{"m"}) {
			t.Errorf("the setting wakes %q, want m", got)
		}
		if got := r.onSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: setting.AutoSalvage}}); got != nil {
			t.Errorf("another setting wakes %q", got)
		}
		if got := r.withTicketFor("n1"); !slices.Equal(got, []string{"m", "p"}) {
			t.Errorf("the node wakes %q, want m p", got)
		}
	}
	if !loop.Changed(unschedulable)(kube("n1", false), kube("n1", true)) ||
		loop.Changed(unschedulable)(kube("n1", true), kube("n1", true)) {
		t.Error("a change of the cordon has to wake, and nothing else")
	}
}
