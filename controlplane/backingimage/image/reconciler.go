// Package image is the controller of BackingImage objects. It decides which disks have a copy of an
// image: first the one where its data source makes the file, then as many as the image asks for,
// and those where replicas stand on it. It makes the data source (package source) and the managers
// of the disks (package manager), and tells the user what becomes of the copies.
//
// spec.diskFileSpecMap is the record of where copies are wanted, written before anybody acts on it.
// decide is pure; docs/design/backing-images.md has the decision table.
package image

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	Namespace string
	// NodeName is the leader's node, the owner of images.
	NodeName string
}

// Reconciler looks after backing images. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
}

// New returns the reconciler.
func New(cfg Config) *Reconciler { return &Reconciler{cfg: cfg} }

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackingImage, seen] {
	return loop.Controller[*v1beta2.BackingImage, seen]{
		Name:   naming.EventSource("backing-image"),
		New:    func() *v1beta2.BackingImage { return &v1beta2.BackingImage{} },
		Gather: r.gather,
		Carry:  carry,
		Decide: decide,
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.BackingImageDataSource{}, loop.BySameName[*v1beta2.BackingImageDataSource]()),
			loop.Watching(&v1beta2.BackingImageManager{}, onManager),
			loop.WatchingChanges(&v1beta2.Node{}, backingimage.DisksChanged,
				func(*v1beta2.Node) []string { return r.all() }),
			loop.WatchingChanges(&v1beta2.Replica{}, func(before, after *v1beta2.Replica) bool {
				return before.Spec.BackingImage != after.Spec.BackingImage || before.Spec.DiskID != after.Spec.DiskID
			}, onReplica),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
		},
	}
}

// onManager names the images of a manager.
func onManager(m *v1beta2.BackingImageManager) (names []string) {
	for name := range m.Spec.BackingImages {
		names = append(names, name)
	}
	for name := range m.Status.BackingImageFileMap {
		if _, told := m.Spec.BackingImages[name]; !told {
			names = append(names, name)
		}
	}
	return names
}

func onReplica(x *v1beta2.Replica) []string {
	if x.Spec.BackingImage == "" {
		return nil
	}
	return []string{x.Spec.BackingImage}
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	switch s.Name {
	case setting.BackingImageCleanupWaitInterval, setting.BackingImageRecoveryWaitInterval,
		setting.ConcurrentBackingImageReplenishPerNodeLimit, setting.DefaultBackingImageManagerImage:
		return r.all()
	}
	return nil
}

// all names every image, from the cache.
func (r *Reconciler) all() (names []string) {
	var list v1beta2.BackingImageList
	err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is stopping
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (r *Reconciler) gather(ctx context.Context, b *v1beta2.BackingImage) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, UUID: naming.RandomSuffix(), Random: rand.Int(), Used: map[string]bool{}}
	in := []client.ListOption{client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy}
	src := &v1beta2.BackingImageDataSource{}
	switch err := r.client.Get(ctx, client.ObjectKeyFromObject(b), src, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Source = src
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("read backing image data source %s: %w", b.Name, err)
	}
	var managers v1beta2.BackingImageManagerList
	if err := r.client.List(ctx, &managers, in...); err != nil {
		return s, fmt.Errorf("list backing image managers: %w", err)
	}
	s.Managers = managers.Items
	var nodes v1beta2.NodeList
	if err := r.client.List(ctx, &nodes, in...); err != nil {
		return s, fmt.Errorf("list nodes: %w", err)
	}
	s.Disks = backingimage.Disks(nodes.Items)
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, append(in, index.OnImage(b.Name))...); err != nil {
		return s, fmt.Errorf("list replicas on backing image %s: %w", b.Name, err)
	}
	for i := range replicas.Items {
		s.Used[replicas.Items[i].Spec.DiskID] = true
	}
	values, err := stored.Read(ctx, r.client, b.Namespace)
	if err != nil {
		return s, err
	}
	s.CleanupWait = time.Duration(values.Int(setting.BackingImageCleanupWaitInterval)) * time.Minute
	s.RecoveryWait = time.Duration(values.Int(setting.BackingImageRecoveryWaitInterval)) * time.Second
	s.Replenish = values.Int(setting.ConcurrentBackingImageReplenishPerNodeLimit)
	s.ManagerImage = values.String(setting.DefaultBackingImageManagerImage)
	s.Policy = schedule.Policy{
		OverProvisioningPercent: int64(values.Int(setting.StorageOverProvisioningPercentage)),
		MinimalAvailablePercent: int64(values.Int(setting.StorageMinimalAvailablePercentage)),
		AllowEmptyNodeSelector:  values.Bool(setting.AllowEmptyNodeSelectorVolume),
		AllowEmptyDiskSelector:  values.Bool(setting.AllowEmptyDiskSelectorVolume),
	}
	return s, nil
}
