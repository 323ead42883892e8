package attachment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
)

// kubernetes is what an API server, or a cache of it, has.
func kubernetes(t *testing.T, fails error, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...)
	for _, i := range index.All() {
		b.WithIndex(i.Object, i.Field, i.Of)
	}
	return b.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if fails != nil {
				return fails
			}
			return c.Get(ctx, key, o, opts...)
		}}).Build()
}

// TestAbandonedTickets: the ticket of a VolumeAttachment that Kubernetes has lost is withdrawn when
// the API server has lacked it for a minute, and no other ticket is.
func TestAbandonedTickets(t *testing.T) {
	id := naming.CSIAttachment("v", "n1")
	theirs := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver.longhorn.io"}}
	csi := func(a *v1beta2.VolumeAttachment) { ticket(a, id, "n1", v1beta2.AttacherTypeCSI) }
	for _, c := range []struct {
		name         string
		ticket       func(*v1beta2.VolumeAttachment)
		cached, live []client.Object
		fails        error
		first, later []string
	}{
		{"lost", csi, nil, []client.Object{driver}, nil, nil, []string{id}},
		{"there", csi, []client.Object{theirs}, []client.Object{driver, theirs}, nil, nil, nil},
		{"the cache has not seen it yet", csi, nil, []client.Object{driver, theirs}, nil, nil, nil},
		{"no driver is registered here", csi, nil, nil, nil, nil, nil},
		{"a person's ticket", func(a *v1beta2.VolumeAttachment) { ticket(a, id, "n1", v1beta2.AttacherTypeLonghornAPI) }, nil,
			[]client.Object{driver}, nil, nil, nil},
		{"a ticket with another id", func(a *v1beta2.VolumeAttachment) { ticket(a, "mine", "n1", v1beta2.AttacherTypeCSI) },
			nil, []client.Object{driver}, nil, nil, nil},
		{"the API server does not answer", csi, nil, []client.Object{driver}, errors.New("no answer"), nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Reconciler{client: kubernetes(t, nil, c.cached...), live: kubernetes(t, c.fails, c.live...),
				lacking: firstseen.New()}
			a, base := fixture()
			attachedTo(base.Volume, "n1")
			c.ticket(a)
			for _, look := range []struct {
				after time.Duration
				want  []string
			}{{0, c.first}, {publishedAfter - time.Second, c.first}, {publishedAfter, c.later}} {
				s := base
				err := r.gatherAbandoned(t.Context(), now.Add(look.after), a, &s)
				failed := c.fails != nil && look.after == publishedAfter
				if !slices.Equal(s.Abandoned, look.want) || (err != nil) != failed {
					t.Fatalf("after %v: %v, %v; want %v", look.after, s.Abandoned, err, look.want)
				}
				waits := look.after < publishedAfter && len(c.later) > 0
				if waits && (s.LookAgain <= 0 || s.LookAgain > publishedAfter-look.after) {
					t.Errorf("after %v: the next look is in %v", look.after, s.LookAgain)
				}
				d := decide(now, a.DeepCopy(), s)
				withdrawn := d.Do != nil && len(d.Events) == 1 && d.Events[0].Reason == naming.EventStop
				if withdrawn != (len(look.want) > 0) || waits && d.After != s.LookAgain {
					t.Errorf("after %v: does %v after %v with %v", look.after, d.Do, d.After, d.Events)
				}
			}
		})
	}
}

// TestAbsenceIsOfOneTicket: the wait begins anew with a ticket that was filed anew, and with an
// object that was there meanwhile.
func TestAbsenceIsOfOneTicket(t *testing.T) {
	id := naming.CSIAttachment("v", "n1")
	theirs := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver.longhorn.io"}}
	for name, meanwhile := range map[string]func(a *v1beta2.VolumeAttachment, r *Reconciler){
		"filed anew": func(a *v1beta2.VolumeAttachment, _ *Reconciler) {
			again := a.Spec.AttachmentTickets[id]
			again.Generation++
			a.Spec.AttachmentTickets[id] = again
		},
		"there meanwhile": func(a *v1beta2.VolumeAttachment, r *Reconciler) {
			absent := r.client
			r.client = kubernetes(t, nil, theirs)
			s := seen{Volume: &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}}
			if err := r.gatherAbandoned(t.Context(), now, a, &s); err != nil {
				t.Fatal(err)
			}
			r.client = absent
		},
	} {
		r := &Reconciler{client: kubernetes(t, nil), live: kubernetes(t, nil, driver), lacking: firstseen.New()}
		a, s := fixture()
		ticket(a, id, "n1", v1beta2.AttacherTypeCSI)
		for i, at := range []time.Duration{0, publishedAfter, 2 * publishedAfter} {
			if i == 1 {
				meanwhile(a, r)
			}
			s.Abandoned = nil
			if err := r.gatherAbandoned(t.Context(), now.Add(at), a, &s); err != nil {
				t.Fatal(err)
			}
			if got := len(s.Abandoned) > 0; got != (i == 2) {
				t.Errorf("%s: after %v abandoned: %v", name, at, got)
			}
		}
	}
}

// TestDecideWithdrawsTheAbandoned: the other tickets stay.
func TestDecideWithdrawsTheAbandoned(t *testing.T) {
	a, s := fixture()
	attachedTo(s.Volume, "n1")
	ticket(a, "lost", "n1", v1beta2.AttacherTypeCSI)
	ticket(a, "", "n1", v1beta2.AttacherTypeLonghornAPI)
	s.Abandoned = []string{"lost"}
	u, ok := decide(now, a, s).Do.(loop.Update)
	if !ok {
		t.Fatal("nothing is withdrawn")
	}
	left := u.Object.(*v1beta2.VolumeAttachment).Spec.AttachmentTickets
	if _, mine := left[""]; !mine || len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}
