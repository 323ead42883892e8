// Package claim keeps status.kubernetesStatus of volumes: which PersistentVolume stands for a
// volume, which claim it is bound to, and which Pods use the claim. What was there and is gone
// stays as history, with the time since when: a restored or detached volume still tells whose it
// was.
//
// It also keeps the labels by which a volume follows recurring jobs equal to those of a claim that
// says that it is their source.
//
// It watches PersistentVolumes and Pods of all namespaces, and claims that are such a source; of
// Pods outside the system's namespace the cache keeps only what is needed here (Outline). decide is
// pure; docs/guide/claims-of-volumes.md has its table.
package claim

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Reconciler keeps the status. Use New.
type Reconciler struct {
	namespace string
	client    client.Client
}

// New returns the reconciler for the Volumes of a namespace.
func New(namespace string) *Reconciler { return &Reconciler{namespace: namespace} }

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.WithClient(mgr.GetClient())
	return loop.Setup(mgr, r.namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Volume, seen] {
	return loop.Controller[*v1beta2.Volume, seen]{
		Name:   naming.EventSource("kubernetes-pv"),
		New:    func() *v1beta2.Volume { return &v1beta2.Volume{} },
		Gather: r.gather,
		Decide: decide,
		Watches: []loop.Watch{
			loop.WatchingChanges(&corev1.PersistentVolume{}, pvChanged, index.VolumeOf),
			loop.WatchingChanges(&corev1.Pod{}, podChanged, r.volumesOf).Elsewhere(),
			loop.WatchingChanges(&corev1.PersistentVolumeClaim{}, labelsChanged, r.volumesOfClaim).Elsewhere(),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

func pvChanged(before, after *corev1.PersistentVolume) bool {
	return before.Status.Phase != after.Status.Phase ||
		!equality.Semantic.DeepEqual(before.Spec.ClaimRef, after.Spec.ClaimRef)
}

func podChanged(before, after *corev1.Pod) bool {
	return before.Status.Phase != after.Status.Phase ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

func labelsChanged(before, after *corev1.PersistentVolumeClaim) bool {
	return !maps.Equal(before.Labels, after.Labels)
}

// volumesOf names the volumes that a Pod uses.
func (r *Reconciler) volumesOf(p *corev1.Pod) (volumes []string) {
	for _, name := range index.ClaimsOf(p) {
		volumes = append(volumes, r.claimed(p.Namespace, name)...)
	}
	return volumes
}

func (r *Reconciler) volumesOfClaim(c *corev1.PersistentVolumeClaim) []string {
	return r.claimed(c.Namespace, c.Name)
}

// onSetting names the volumes of all sources when what they may do has changed.
func (r *Reconciler) onSetting(s *v1beta2.Setting) (volumes []string) {
	if s.Name != setting.ClaimsLeaveDefaultJobs {
		return nil
	}
	var list corev1.PersistentVolumeClaimList
	if err := r.client.List(context.Background(), &list, client.MatchingLabelsSelector{Selector: Sources()},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		volumes = append(volumes, r.volumesOfClaim(&list.Items[i])...)
	}
	return volumes
}

// claimed names the volumes that are bound to a claim.
func (r *Reconciler) claimed(namespace, name string) (volumes []string) {
	var list corev1.PersistentVolumeList
	if err := r.client.List(context.Background(), &list, index.ClaimedBy(namespace, name),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		volumes = append(volumes, index.VolumeOf(&list.Items[i])...)
	}
	return volumes
}

// seen is what decide looks at besides the volume.
type seen struct {
	// PV is the PersistentVolume of the volume, nil if there is none.
	PV *corev1.PersistentVolume
	// Pods are those that use the claim it is bound to.
	Pods []*corev1.Pod
	// Source is that claim if its labels say which recurring jobs the volume follows; nil otherwise.
	Source *corev1.PersistentVolumeClaim
	// MayLeave: it may take the volume out of group default.
	MayLeave bool
	// Backed is whose the volume was of whose backup this one is made; nil: that is not needed.
	Backed *v1beta2.KubernetesStatus
}

func (r *Reconciler) gather(ctx context.Context, v *v1beta2.Volume) (g seen, err error) {
	if g.Backed, err = r.gatherBackup(ctx, v); err != nil {
		return g, err
	}
	var pvs corev1.PersistentVolumeList
	if err := r.client.List(ctx, &pvs, index.StandsFor(v.Name), client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list PersistentVolumes of volume %s: %w", v.Name, err)
	}
	for i := range pvs.Items {
		if pv := &pvs.Items[i]; g.PV == nil || bound(pv) && !bound(g.PV) ||
			bound(pv) == bound(g.PV) && pv.Name < g.PV.Name {
			g.PV = pv
		}
	}
	if g.PV == nil || !bound(g.PV) {
		return g, nil
	}
	ref := g.PV.Spec.ClaimRef
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(ref.Namespace), index.UsesClaim(ref.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list Pods with claim %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	for i := range pods.Items {
		g.Pods = append(g.Pods, &pods.Items[i])
	}
	var c corev1.PersistentVolumeClaim
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &c); {
	case apierrors.IsNotFound(err): // or it has no label Source: the cache holds those that have
	case err != nil:
		return g, fmt.Errorf("get claim %s/%s: %w", ref.Namespace, ref.Name, err)
	case IsSource(&c, g.PV):
		g.Source = &c
		values, err := stored.Read(ctx, r.client, v.Namespace)
		if err != nil {
			return g, err
		}
		g.MayLeave = values.Bool(setting.ClaimsLeaveDefaultJobs)
	}
	return g, nil
}

// Sources selects the claims that the leader's cache holds.
func Sources() labels.Selector {
	return labels.SelectorFromSet(labels.Set{naming.LabelRecurringJobSource: naming.Enabled})
}

// IsSource says whether labels of a claim say which recurring jobs the volume of a PersistentVolume
// follows: it is the one that is bound to it.
func IsSource(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && c.UID == ref.UID && c.Spec.VolumeName == pv.Name && c.DeletionTimestamp == nil &&
		naming.IsJobSource(c.Labels)
}

func bound(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeBound && pv.Spec.ClaimRef != nil
}

// Outline keeps of a Pod what this package reads. Pods of the system's own namespace stay as they
// are.
func Outline(own string) func(any) (any, error) {
	return func(o any) (any, error) {
		p, ok := o.(*corev1.Pod)
		if !ok || p.Namespace == own {
			return o, nil
		}
		out := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
				DeletionTimestamp: p.DeletionTimestamp, OwnerReferences: p.OwnerReferences},
			Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
			Status: corev1.PodStatus{Phase: p.Status.Phase},
		}
		if hash := p.Labels[templateHash]; hash != "" {
			out.Labels = map[string]string{templateHash: hash}
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
				out.Spec.Volumes = append(out.Spec.Volumes, v)
			}
		}
		return out, nil
	}
}
