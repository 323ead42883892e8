// Package manager is the controller of BackingImageManager objects. A backing image manager is the
// Pod that serves the files of backing images on one disk, for controllers and for the managers of
// other disks, which copy from it.
//
// The controller keeps the Pod, mirrors what its process says of the files (follow.go), and gives
// the orders: to take over what a data source has made, to copy from another manager, to delete
// what is not wanted any more (orders.go). Only files that stand in the object are ever deleted;
// status.backingImageFileMap has an entry from before a file is ordered until after it is deleted.
//
// Package image makes the objects and says which images a disk is to have. decide is pure;
// docs/design/backing-images.md has the decision table.
package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	Namespace string
	// NodeName is the leader's node, the owner of managers.
	NodeName string
	// ServiceAccount runs the Pods.
	ServiceAccount string
	// Dial opens connections to their processes.
	Dial Dial
	// Plaintext says what a new process does without certificates; nil: nothing.
	Plaintext func(context.Context) (instancemanager.Plaintext, error)
}

// Reconciler looks after backing image managers. Use New.
type Reconciler struct {
	cfg      Config
	client   client.Client
	followed *followed
	orders   *orders
	starts   instancemanager.Starts
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, followed: newFollowed(cfg.Dial), orders: newOrders(cfg.Dial, time.Now),
		starts: instancemanager.NewStarts(time.Now)}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.followed); err != nil {
		return fmt.Errorf("register the watches of backing image managers: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client = c
	return r
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackingImageManager, seen] {
	return loop.Controller[*v1beta2.BackingImageManager, seen]{
		Name:   naming.EventSource("backing-image-manager"),
		New:    func() *v1beta2.BackingImageManager { return &v1beta2.BackingImageManager{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.followed.drop(key)
			r.orders.forget(key)
			r.starts.Forget(key)
		},
		Wakeups: loop.By(r.followed.wakeups),
		Watches: []loop.Watch{
			loop.Watching(&corev1.Pod{}, r.onPod),
			loop.WatchingChanges(&v1beta2.Node{}, backingimage.DisksChanged, func(*v1beta2.Node) []string { return r.with("") }),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			loop.WatchingChanges(&v1beta2.BackupTarget{}, loop.Changed(store.Mounted),
				func(*v1beta2.BackupTarget) []string { return r.with("") }),
			loop.Watching(&v1beta2.BackingImage{}, func(b *v1beta2.BackingImage) []string { return r.with(b.Name) }),
			loop.Watching(&v1beta2.BackingImageDataSource{},
				func(d *v1beta2.BackingImageDataSource) []string { return r.with(d.Name) }),
			// A file that is ready may be copied by others.
			loop.WatchingChanges(&v1beta2.BackingImageManager{}, sendsOther, r.besides),
		},
	}
}

// onPod names the managers of the disk of a Pod: one of another image may have waited for it.
func (r *Reconciler) onPod(pod *corev1.Pod) []string {
	if pod.Namespace != r.cfg.Namespace || pod.Labels[naming.LabelComponent] != naming.ComponentBackingImageManager {
		return nil
	}
	names := []string{pod.Name}
	for _, m := range r.all() {
		if m.Spec.DiskUUID == pod.Labels[naming.LabelOnDisk] && m.Name != pod.Name {
			names = append(names, m.Name)
		}
	}
	return names
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	if s.Name == setting.DefaultBackingImageManagerImage || instancemanager.InPod(s.Name) {
		return r.with("")
	}
	return nil
}

// sendsOther says whether a manager has become able to send a file, or unable.
func sendsOther(before, after *v1beta2.BackingImageManager) bool {
	if before.Status.IP != after.Status.IP || before.Status.CurrentState != after.Status.CurrentState {
		return true
	}
	for name, f := range after.Status.BackingImageFileMap {
		if before.Status.BackingImageFileMap[name].State != f.State {
			return true
		}
	}
	return false
}

// besides names the other managers that have an image of the given one.
func (r *Reconciler) besides(m *v1beta2.BackingImageManager) (names []string) {
	for _, other := range r.all() {
		for name := range m.Spec.BackingImages {
			if _, shared := other.Spec.BackingImages[name]; shared && other.Name != m.Name {
				names = append(names, other.Name)
				break
			}
		}
	}
	return names
}

// with names the managers that have an image; all for "".
func (r *Reconciler) with(image string) (names []string) {
	for _, m := range r.all() {
		_, wanted := m.Spec.BackingImages[image]
		_, known := m.Status.BackingImageFileMap[image]
		if image == "" || wanted || known {
			names = append(names, m.Name)
		}
	}
	return names
}

// all are the managers in the cache, which are the cache's.
func (r *Reconciler) all() []v1beta2.BackingImageManager {
	var list v1beta2.BackingImageManagerList
	err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is stopping
	}
	return list.Items
}

func (r *Reconciler) gather(ctx context.Context, m *v1beta2.BackingImageManager) (seen, error) {
	s := seen{Owner: r.cfg.NodeName}
	in := []client.ListOption{client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy}
	var nodes v1beta2.NodeList
	if err := r.client.List(ctx, &nodes, in...); err != nil {
		return s, fmt.Errorf("list nodes: %w", err)
	}
	if d, ok := backingimage.Disks(nodes.Items)[m.Spec.DiskUUID]; ok {
		s.Disk = &d
	}
	values, err := stored.Read(ctx, r.client, m.Namespace)
	if err != nil {
		return s, err
	}
	s.DefaultImage = values.String(setting.DefaultBackingImageManagerImage)
	s.Settings = instancemanager.SettingsFrom(values, r.cfg.ServiceAccount)
	var targets v1beta2.BackupTargetList
	if err := r.client.List(ctx, &targets, in...); err != nil {
		return s, fmt.Errorf("list backup targets: %w", err)
	}
	s.Mounts = slices.ContainsFunc(targets.Items, func(t v1beta2.BackupTarget) bool { return store.Mounted(&t) })
	if err := r.gatherPod(ctx, m, &s); err != nil {
		return s, err
	}
	return s, r.gatherImages(ctx, m, &s)
}

func (r *Reconciler) gatherPod(ctx context.Context, m *v1beta2.BackingImageManager, s *seen) error {
	key := client.ObjectKeyFromObject(m)
	pod := &corev1.Pod{}
	switch err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Pod = pod
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Pod %s: %w", key, err)
	}
	s.StartNotBefore = r.starts.Observe(key, s.Pod)
	if s.Pod != nil && instancemanager.PodReady(s.Pod) && s.Pod.DeletionTimestamp == nil {
		s.Files = r.followed.of(key, s.Pod.UID, s.Pod.Status.PodIP)
	} else {
		r.followed.drop(key)
	}
	if s.Pod != nil {
		return nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{naming.LabelComponent: naming.ComponentBackingImageManager,
			naming.LabelOnDisk: m.Spec.DiskUUID}); err != nil {
		return fmt.Errorf("list Pods of disk %s: %w", m.Spec.DiskUUID, err)
	}
	s.Others = slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !instancemanager.PodEnded(&p) })
	if r.cfg.Plaintext == nil {
		return nil
	}
	var err error
	s.Plaintext, err = r.cfg.Plaintext(ctx)
	return err
}

// gatherImages reads what is known of the images of spec and status elsewhere.
func (r *Reconciler) gatherImages(ctx context.Context, m *v1beta2.BackingImageManager, s *seen) error {
	s.Images = map[string]image{}
	key := client.ObjectKeyFromObject(m)
	for name, f := range m.Status.BackingImageFileMap {
		s.Images[name] = image{Dropped: r.orders.of(key, fileID{name, f.UUID})}
	}
	in := []client.ListOption{client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy}
	var replicas v1beta2.ReplicaList
	if len(m.Spec.BackingImages) > 0 {
		if err := r.client.List(ctx, &replicas, append(in, index.OnDisk(m.Spec.DiskUUID))...); err != nil {
			return fmt.Errorf("list replicas: %w", err)
		}
	}
	for name, uuid := range m.Spec.BackingImages {
		i := s.Images[name]
		id := fileID{name, uuid}
		if s.Files != nil && s.Files.files[id].State == v1beta2.BackingImageStateReady {
			r.orders.succeeded(key, id)
		}
		i.Tried = r.orders.of(key, id)
		at := client.ObjectKey{Namespace: m.Namespace, Name: name}
		b := &v1beta2.BackingImage{}
		if err := r.client.Get(ctx, at, b, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read backing image %s: %w", name, err)
		}
		i.Checksum, i.Size = cmp.Or(b.Status.Checksum, b.Spec.Checksum), b.Status.Size
		source := &v1beta2.BackingImageDataSource{}
		switch err := r.client.Get(ctx, at, source, client.UnsafeDisableDeepCopy); {
		case err == nil && source.Spec.UUID == uuid && source.DeletionTimestamp == nil:
			i.Source = source
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read backing image data source %s: %w", name, err)
		}
		i.Senders = senders(r.all(), m, s.DefaultImage, id)
		i.Used = slices.ContainsFunc(replicas.Items, func(x v1beta2.Replica) bool { return x.Spec.BackingImage == name })
		s.Images[name] = i
	}
	return nil
}

// senders are the addresses of the other managers that have a file, the least busy one first.
func senders(all []v1beta2.BackingImageManager, m *v1beta2.BackingImageManager, managerImage string,
	id fileID) (addresses []string) {
	type sender struct {
		address string
		sends   int
	}
	var found []sender
	for i := range all {
		other := &all[i]
		f := other.Status.BackingImageFileMap[id.name]
		if other.Spec.DiskUUID != m.Spec.DiskUUID && other.Spec.Image == managerImage && other.DeletionTimestamp == nil &&
			other.Status.CurrentState == v1beta2.BackingImageManagerStateRunning && f.UUID == id.uuid &&
			f.State == v1beta2.BackingImageStateReady {
			found = append(found, sender{backingimage.Address(other.Status.IP), f.SendingReference})
		}
	}
	slices.SortFunc(found, func(a, b sender) int {
		return cmp.Or(cmp.Compare(a.sends, b.sends), cmp.Compare(a.address, b.address))
	})
	for _, f := range found {
		addresses = append(addresses, f.address)
	}
	return addresses
}

// Follow follows processes until ctx ends, where there is no manager that does (tests).
func (r *Reconciler) Follow(ctx context.Context) error { return r.followed.Start(ctx) }
