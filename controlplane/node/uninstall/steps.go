package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/longhorn/v1beta2/crd"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// permitted says why the uninstallation must not begin. A setting that is not there any more was
// removed by an uninstallation before this one, as no volume is there then.
func (c Config) permitted(ctx context.Context) error {
	volumes, err := c.names(ctx, v1beta2.GroupVersion.WithKind("Volume"))
	if err != nil {
		return err
	}
	s := &v1beta2.Setting{}
	err = c.Client.Get(ctx, c.key(setting.DeletingConfirmationFlag), s)
	switch {
	case gone(err) && len(volumes) == 0:
		return nil
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read setting %s: %w", setting.DeletingConfirmationFlag, err)
	case s.Value != "true":
		return refuse("setting %s is not true; it confirms that all %d volumes are deleted with their data",
			setting.DeletingConfirmationFlag, len(volumes))
	}
	return c.unused(ctx)
}

// unused refuses while somebody uses a volume: when the driver has gone, its Pods can neither go on
// nor end.
func (c Config) unused(ctx context.Context) error {
	var list v1beta2.VolumeAttachmentList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	var used []string
	for _, a := range list.Items {
		for _, t := range a.Spec.AttachmentTickets {
			if t.Type == v1beta2.AttacherTypeCSI || t.Type == v1beta2.AttacherTypeLonghornAPI {
				used = append(used, fmt.Sprintf("%s (on %s)", a.Name, t.NodeID))
			}
		}
	}
	if len(used) > 0 {
		return refuse("volumes are in use: %s; end the Pods that use them, or detach them", some(used))
	}
	return nil
}

// volumes has the managers remove all volumes, with what belongs to them.
func (c Config) volumes(ctx context.Context) ([]string, error) {
	var left, volumes []string
	for _, kind := range []string{"Volume", "Snapshot", "Engine", "Replica"} {
		names, err := c.names(ctx, v1beta2.GroupVersion.WithKind(kind))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			left = append(left, kind+" "+name)
		}
		if kind == "Volume" { // the rest follows them
			volumes = names
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	err := c.Client.Get(ctx, c.key(naming.DeploymentController), &appsv1.Deployment{})
	if apierrors.IsNotFound(err) {
		return nil, refuse("there are no managers any more to remove %s; install them again first", some(left))
	}
	if err != nil {
		return nil, err
	}
	for _, name := range volumes {
		if err := c.remove(ctx, object(v1beta2.GroupVersion.WithKind("Volume"), c.Namespace, name)); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// persistentVolumes removes those of the driver, whose volumes are gone, and the finalizers of the
// driver's sidecars, which nobody would remove later. Claims that are bound to them are lost.
func (c Config) persistentVolumes(ctx context.Context) ([]string, error) {
	var list corev1.PersistentVolumeList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for _, pv := range list.Items {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != naming.CSIDriver {
			continue
		}
		if err := c.remove(ctx, &pv); err != nil { // first: what is being deleted gets no new finalizers
			return nil, err
		}
		before := pv.DeepCopy()
		pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return strings.HasPrefix(f, "external-") })
		if len(pv.Finalizers) == len(before.Finalizers) {
			continue
		}
		if err := c.Client.Patch(ctx, &pv, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return nil, nil // those that are bound go with their claims
}

// contentKind is that of what the snapshotter makes for a snapshot; a cluster may not have it.
var contentKind = schema.GroupVersionKind{
	Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshotContent"}

// snapshotContents removes those of the driver, whose snapshots are gone, with the finalizers of
// the snapshot controllers: the sidecar that acts on them goes with the driver. VolumeSnapshots
// that are bound to them are lost.
func (c Config) snapshotContents(ctx context.Context) ([]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(contentKind.GroupVersion().WithKind(contentKind.Kind + "List"))
	if err := c.Client.List(ctx, list); gone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list contents of volume snapshots: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if driver, _, _ := unstructured.NestedString(o.Object, "spec", "driver"); driver != naming.CSIDriver {
			continue
		}
		if err := c.remove(ctx, o); err != nil { // first: what is being deleted gets no new finalizers
			return nil, err
		}
		before := o.DeepCopy()
		o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool {
			return strings.HasPrefix(f, "snapshot.storage.kubernetes.io/")
		}))
		if len(o.GetFinalizers()) == len(before.GetFinalizers()) {
			continue
		}
		if err := c.Client.Patch(ctx, o, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return nil, nil
}

// managers ends controllers and agents.
func (c Config) managers(ctx context.Context) ([]string, error) {
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: naming.DeploymentController}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: naming.DaemonSetManager}},
	} {
		if err := c.remove(ctx, o); err != nil {
			return nil, err
		}
	}
	of, err := labels.NewRequirement(naming.LabelApp, selection.In, []string{naming.AppController, naming.AppManager})
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	err = c.Client.List(ctx, &pods, client.InNamespace(c.Namespace),
		client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)})
	var left []string
	for _, p := range pods.Items {
		left = append(left, p.Name)
	}
	return left, err
}

// webhooks removes their configurations, which nobody would answer.
func (c Config) webhooks(ctx context.Context) ([]string, error) {
	if err := c.remove(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookValidatorConfiguration}}); err != nil {
		return nil, err
	}
	return nil, c.remove(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: naming.WebhookMutatorConfiguration}})
}

// objects removes those of all kinds, with the finalizers that nobody acts on any more.
func (c Config) objects(ctx context.Context) (left []string, err error) {
	all, err := crd.All()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		kind := v1beta2.GroupVersion.WithKind(d.Spec.Names.Kind)
		list, err := c.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			left = append(left, kind.Kind+" "+o.Name)
			if err := c.remove(ctx, object(kind, c.Namespace, o.Name)); err != nil {
				return nil, err
			}
			if len(o.Finalizers) == 0 {
				continue
			}
			err := c.Client.Patch(ctx, object(kind, c.Namespace, o.Name),
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// dependents are the kinds of which our objects own some.
var dependents = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Secret"),
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"), batchv1.SchemeGroupVersion.WithKind("CronJob"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
}

// owned waits for Kubernetes' garbage collector, which removes what the objects owned. It has to
// know the owners' kinds for that, so the definitions go later.
func (c Config) owned(ctx context.Context) (left []string, err error) {
	for _, kind := range dependents {
		list, err := c.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
				return strings.HasPrefix(r.APIVersion, v1beta2.Group+"/")
			}) {
				left = append(left, kind.Kind+" "+o.Name)
			}
		}
	}
	return left, nil
}

// unowned removes what managers made and no object owned.
func (c Config) unowned(ctx context.Context) ([]string, error) {
	list, err := c.list(ctx, corev1.SchemeGroupVersion.WithKind("Secret"))
	if err != nil {
		return nil, err
	}
	names := []string{naming.SecretWebhookCA, naming.SecretWebhookTLS, naming.SecretRESTSession, naming.SecretGRPCCA,
		naming.SecretGRPCControl, naming.SecretVolumeKeys}
	for _, s := range list {
		if s.Name == naming.SecretGRPCTLS && s.Labels[naming.LabelManagedBy] == naming.ManagedByManager {
			names = append(names, s.Name) // that of a user stays
		}
	}
	for _, name := range names {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
		if err := c.remove(ctx, s); err != nil {
			return nil, err
		}
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: naming.ConfigMapAuthority}}
	if err := c.remove(ctx, m); err != nil {
		return nil, err
	}
	return nil, c.remove(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: naming.LeaderElectionLease}})
}

// definitions removes the kinds themselves.
func (c Config) definitions(ctx context.Context) (left []string, err error) {
	all, err := crd.All()
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for _, d := range list.Items {
		present[d.Name] = true
	}
	for _, d := range all {
		if !present[d.Name] {
			continue
		}
		left = append(left, d.Name)
		if err := c.remove(ctx, d); err != nil {
			return nil, err
		}
	}
	return left, nil
}

func (c Config) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: name}
}

// list returns the objects of a kind; none where the kind is not defined.
func (c Config) list(ctx context.Context, kind schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := c.Client.List(ctx, list, client.InNamespace(c.Namespace))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

func (c Config) names(ctx context.Context, kind schema.GroupVersionKind) ([]string, error) {
	list, err := c.list(ctx, kind)
	names := map[string]bool{}
	for _, o := range list {
		names[o.Name] = true
	}
	return slices.Sorted(maps.Keys(names)), err
}

// remove deletes an object; that it is not there is no error.
func (c Config) remove(ctx context.Context, o client.Object) error {
	if err := c.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); !gone(err) {
		return err
	}
	return nil
}

// gone says that an object, or its kind, is not there.
func gone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// object is one of a kind, by its name.
func object(kind schema.GroupVersionKind, namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(kind)
	return o
}
