package uninstall

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const namespace = naming.Namespace

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1beta2.Finalizer}}
}

func confirmed(value string) *v1beta2.Setting {
	return &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setting.DeletingConfirmationFlag},
		Value: value}
}

func managers() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.DeploymentController}}
}

// ticket is an attachment of volume "one" by somebody.
func ticket(by v1beta2.AttacherType) *v1beta2.VolumeAttachment {
	a := &v1beta2.VolumeAttachment{ObjectMeta: named("one")}
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"x": {ID: "x", Type: by, NodeID: "node-1"}}
	return a
}

// world is a cluster: an API server, and of what acts in it just what an uninstallation waits for.
type world struct {
	client.Client
	t *testing.T
	// log has what was removed, in order, by kind.
	log []string
	// stopAt ends the context when the first object of this kind is to be removed.
	stopAt string
	stop   context.CancelFunc
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	scheme.AddKnownTypeWithName(contentKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(contentKind.GroupVersion().WithKind(contentKind.Kind+"List"),
		&unstructured.UnstructuredList{})
	w := &world{t: t}
	inner := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	w.Client = interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			w.act(c)
			return c.List(ctx, list, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			gvk, err := c.GroupVersionKindFor(o)
			if err != nil {
				t.Fatal(err)
			}
			if w.stopAt == gvk.Kind {
				w.stopAt = ""
				w.stop()
				return ctx.Err()
			}
			err = c.Delete(ctx, o, opts...)
			if err == nil && (len(w.log) == 0 || w.log[len(w.log)-1] != gvk.Kind) {
				w.log = append(w.log, gvk.Kind)
			}
			return err
		},
	})
	return w
}

// act does what managers, the controllers of Kubernetes and the garbage collector do.
func (w *world) act(c client.Client) {
	w.t.Helper()
	ctx := context.Background()
	must := func(err error) {
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
	alive := c.Get(ctx, client.ObjectKeyFromObject(managers()), &appsv1.Deployment{}) == nil
	var volumes v1beta2.VolumeList
	must(c.List(ctx, &volumes))
	for _, v := range volumes.Items {
		if alive && v.DeletionTimestamp != nil {
			v.Finalizers = nil
			must(c.Update(ctx, &v))
			for _, o := range []client.Object{&v1beta2.Replica{}, &v1beta2.VolumeAttachment{}} {
				o.SetNamespace(namespace)
				o.SetName(v.Name)
				must(c.Delete(ctx, o))
				if c.Get(ctx, client.ObjectKeyFromObject(o), o) == nil {
					o.SetFinalizers(nil)
					must(c.Update(ctx, o))
				}
			}
		}
	}
	var pods corev1.PodList
	must(c.List(ctx, &pods))
	for _, p := range pods.Items {
		lost := len(p.OwnerReferences) > 0 &&
			c.Get(ctx, client.ObjectKeyFromObject(&p), &v1beta2.InstanceManager{}) != nil
		if lost || !alive && p.Labels["app"] != "" {
			must(c.Delete(ctx, &p))
		}
	}
}

// installed is everything of an installation with one volume, and objects of others.
func installed(t *testing.T) (ours, others []client.Object) {
	owned := metav1.ObjectMeta{Namespace: namespace, Name: "im", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "longhorn.io/v1beta2", Kind: "InstanceManager", Name: "im", UID: "1"}}}
	pv := func(name, driver string) *corev1.PersistentVolume {
		p := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name,
			Finalizers: []string{"external-attacher/driver-longhorn-io", "external-provisioner.volume.kubernetes.io/finalizer"}}}
		p.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
		return p
	}
	content := func(name, driver string) client.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"driver": driver}}}
		o.SetGroupVersionKind(contentKind)
		o.SetName(name)
		o.SetFinalizers([]string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"})
		return o
	}
	ours = []client.Object{
		content("snapcontent-1", naming.CSIDriver),
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.DaemonSetManager}},
		confirmed("true"), managers(), &v1beta2.Volume{ObjectMeta: named("one")}, &v1beta2.Replica{ObjectMeta: named("one")},
		ticket(v1beta2.AttacherTypeSnapshot), &v1beta2.Node{ObjectMeta: named("node-1")},
		&v1beta2.EngineImage{ObjectMeta: named("ei")}, &v1beta2.InstanceManager{ObjectMeta: named("im")},
		&v1beta2.Orphan{ObjectMeta: named("orphan")}, &v1beta2.BackupTarget{ObjectMeta: named("default")},
		&v1beta2.RecurringJob{ObjectMeta: named("job")},
		&corev1.Pod{ObjectMeta: owned},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m",
			Labels: map[string]string{"app": naming.AppManager}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c",
			Labels: map[string]string{"app": naming.AppController}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookValidatorConfiguration}},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookMutatorConfiguration}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.SecretWebhookCA}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.SecretWebhookTLS}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.SecretGRPCCA}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.SecretGRPCTLS,
			Labels: map[string]string{naming.LabelManagedBy: naming.ManagedByManager}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.LeaderElectionLease}},
		pv("one", naming.CSIDriver),
	}
	all, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		ours = append(ours, d)
	}
	others = []client.Object{
		pv("other", "other.example.com"), content("snapcontent-2", "other.example.com"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "user"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "others.example.com"}},
	}
	return ours, others
}

// run runs an uninstallation, for a minute at most.
func (w *world) run() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.stop = cancel
	return Run(ctx, Config{Client: w, Namespace: namespace, retryEvery: time.Millisecond})
}

// check looks which objects are there.
func (w *world) check(objects []client.Object, there bool) {
	w.t.Helper()
	for _, o := range objects {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil || (err == nil) != there {
			w.t.Errorf("%T %s: %v; finalizers %v", o, o.GetName(), err, o.GetFinalizers())
		}
	}
}

// TestRefused: without confirmation, and while volumes are used, nothing is removed.
func TestRefused(t *testing.T) {
	volume := &v1beta2.Volume{ObjectMeta: named("one")}
	for _, tc := range []struct {
		name    string
		objects []client.Object
		want    string // in the refusal
	}{
		{"not confirmed", []client.Object{confirmed("false"), managers(), volume}, "confirms that all 1 volumes are deleted"},
		{"not confirmed, without volumes", []client.Object{confirmed("false"), managers()}, "is not true"},
		{"no setting, but a volume", []client.Object{managers(), volume}, "is not true"},
		{"used by a Pod", []client.Object{confirmed("true"), managers(), volume, ticket(v1beta2.AttacherTypeCSI)},
			"in use: one (on node-1)"},
		{"attached by hand", []client.Object{confirmed("true"), managers(), volume, ticket(v1beta2.AttacherTypeLonghornAPI)},
			"in use: one (on node-1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			if err := w.run(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			w.check(tc.objects, true)
			if len(w.log) > 0 {
				t.Errorf("removed: %v", w.log)
			}
		})
	}
}

// TestNoManagers: without managers volumes cannot be removed, and their objects must not go without
// their data.
func TestNoManagers(t *testing.T) {
	volume := &v1beta2.Volume{ObjectMeta: named("one")}
	w := newWorld(t, confirmed("true"), volume)
	err := w.run()
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no managers any more to remove Volume one") {
		t.Error(err)
	}
	w.check([]client.Object{volume}, true)
	if len(w.log) > 0 {
		t.Errorf("removed: %v", w.log)
	}
}

// TestEverythingIsRemoved: volumes by managers, then these, and only then what managers would make
// anew or need; definitions when nothing is left that refers to them. What others have made stays.
func TestEverythingIsRemoved(t *testing.T) {
	ours, others := installed(t)
	w := newWorld(t, slices.Concat(ours, others)...)
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.check(ours, false)
	w.check(others, true)
	want := []string{"Volume", "PersistentVolume", "VolumeSnapshotContent", "Deployment", "DaemonSet",
		"ValidatingWebhookConfiguration",
		"MutatingWebhookConfiguration"}
	if len(w.log) < len(want) || !slices.Equal(w.log[:len(want)], want) ||
		!slices.Equal(w.log[len(w.log)-3:], []string{"Secret", "Lease", "CustomResourceDefinition"}) {
		t.Errorf("removed in order %v", w.log)
	}
	if err := w.run(); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestInterrupted: an uninstallation that ends at any step is completed by the next one.
func TestInterrupted(t *testing.T) {
	for _, kind := range []string{"Volume", "PersistentVolume", "VolumeSnapshotContent", "Deployment", "DaemonSet",
		"ValidatingWebhookConfiguration",
		"MutatingWebhookConfiguration", "Setting", "EngineImage", "Node", "Secret", "Lease", "CustomResourceDefinition"} {
		t.Run(kind, func(t *testing.T) {
			ours, others := installed(t)
			w := newWorld(t, slices.Concat(ours, others)...)
			w.stopAt = kind
			if err := w.run(); err == nil || errors.Is(err, ErrRefused) || w.stopAt != "" {
				t.Fatalf("not interrupted: %v", err)
			}
			if err := w.run(); err != nil {
				t.Fatal(err)
			}
			w.check(ours, false)
			w.check(others, true)
		})
	}
}

// TestUsersCertificateStays: the Secret that a user has made for managers and instance managers is
// not ours to remove.
func TestUsersCertificateStays(t *testing.T) {
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.SecretGRPCTLS}}
	w := newWorld(t, confirmed("true"), managers(), theirs)
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.check([]client.Object{theirs}, true)
}
