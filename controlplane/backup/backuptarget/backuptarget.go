// Package backuptarget is the controller of BackupTarget objects. A backup target is a place
// outside of the cluster that keeps backups of volumes; other clusters may write there too.
//
// Now and then, or when it is asked to, it lists the volumes that the store has. For each there is
// a BackupVolume object, which goes when the volume is gone there; where the record of a volume has
// changed its object is asked to look (package backupvolume). A poll of a store in which nothing
// has changed costs a request for each volume, and no write here but the time of the poll. Backups
// of backing images are followed likewise, by their names: what they hold does not change.
//
// decide is pure; docs/design/backups.md has the decision table.
package backuptarget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	// NodeName is the leader's node, the owner of targets.
	NodeName string
	// Access reaches stores.
	Access *store.Access
}

// listing is what a look at a store has found.
type listing struct {
	// Volumes are those that the store has, and when the record of each was written.
	Volumes map[string]time.Time
	// Images are the backing images that the store has; nil: the engine binary cannot tell.
	Images []string
	// Role is the role of AWS that the Secret names, "" for none; nil: the Secret could not be read.
	Role *string
}

// Reconciler looks after backup targets. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	looks  *store.Errands[listing]
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, looks: store.NewErrands[listing]()}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.looks); err != nil {
		return fmt.Errorf("add the looks at backup targets: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Access.Namespace, r.Controller())
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackupTarget, seen] {
	return loop.Controller[*v1beta2.BackupTarget, seen]{
		Name:   naming.EventSource("backup-target"),
		New:    func() *v1beta2.BackupTarget { return &v1beta2.BackupTarget{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.looks.Forget(key.Name) },
		// A target that is deleted waits for the end of its backup volumes.
		Watches: []loop.Watch{loop.WatchingChanges(&v1beta2.BackupVolume{},
			func(_, _ *v1beta2.BackupVolume) bool { return false },
			loop.ByLabel[*v1beta2.BackupVolume](naming.LabelBackupTarget)),
			loop.WatchingChanges(&v1beta2.BackupBackingImage{},
				func(_, _ *v1beta2.BackupBackingImage) bool { return false },
				loop.ByLabel[*v1beta2.BackupBackingImage](naming.LabelBackupTarget)),
			loop.Watching(&corev1.ConfigMap{}, onConfigMap)},
		Wakeups: loop.By(r.looks.Wakeups()),
	}
}

// seen is what decide looks at besides the target.
type seen struct {
	// Volumes are the target's backup volumes, by name.
	Volumes []v1beta2.BackupVolume
	// Images are the target's backups of backing images, by name.
	Images []v1beta2.BackupBackingImage
	// Look is the latest look at the store; one ends after Limit.
	Look  store.Errand[listing]
	Limit time.Duration
	Owner string
	// Default is what the installation says of the target named default; nil: nothing.
	Default *defaults
}

func (r *Reconciler) gather(ctx context.Context, t *v1beta2.BackupTarget) (seen, error) {
	if t.Spec.BackupTargetURL == "" {
		r.looks.Forget(t.Name) // who turns the target on again wants to know what is there then
	}
	s := seen{Look: r.looks.Of(t.Name), Owner: r.cfg.NodeName}
	if t.Name == naming.BackupTarget {
		var err error
		if s.Default, err = readDefaults(ctx, r.client, t.Namespace); err != nil {
			return s, err
		}
		if err := s.Default.try(ctx, r.client, t); err != nil {
			return s, err
		}
	}
	var all v1beta2.BackupVolumeList
	if err := r.client.List(ctx, &all, client.InNamespace(t.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list backup volumes: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].Spec.BackupTargetName == t.Name {
			s.Volumes = append(s.Volumes, all.Items[i])
		}
	}
	slices.SortFunc(s.Volumes, func(a, b v1beta2.BackupVolume) int { return strings.Compare(a.Name, b.Name) })
	var images v1beta2.BackupBackingImageList
	if err := r.client.List(ctx, &images, client.InNamespace(t.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list backups of backing images: %w", err)
	}
	for i := range images.Items {
		if images.Items[i].Spec.BackupTargetName == t.Name {
			s.Images = append(s.Images, images.Items[i])
		}
	}
	slices.SortFunc(s.Images, func(a, b v1beta2.BackupBackingImage) int { return strings.Compare(a.Name, b.Name) })
	settings, err := stored.Read(ctx, r.client, t.Namespace)
	if err != nil {
		return s, err
	}
	s.Limit = time.Duration(settings.Int(setting.BackupExecutionTimeout)) * time.Minute
	return s, nil
}

// lookOrder begins a look at the store.
type lookOrder struct{ As string }

func (r *Reconciler) carry(_ context.Context, t *v1beta2.BackupTarget, s seen, what any) error {
	t = t.DeepCopy() // the look outlives the step
	r.looks.Begin(t.Name, what.(lookOrder).As, func(ctx context.Context) (listing, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Limit)
		defer cancel()
		return r.look(ctx, t)
	})
	return nil
}

func (r *Reconciler) look(ctx context.Context, t *v1beta2.BackupTarget) (found listing, err error) {
	role, err := r.cfg.Access.Role(ctx, t)
	if err != nil {
		return found, err
	}
	found.Role = &role
	st, err := r.cfg.Access.Open(ctx, t)
	if err != nil {
		return found, err
	}
	if found.Volumes, err = st.BackupVolumeTimes(ctx, st.URL, st.Credentials); err != nil {
		return found, err
	}
	found.Images, err = st.BackupImageNameList(ctx, st.URL, st.Credentials)
	if errors.Is(err, engineclient.ErrInvalid) {
		found.Images, err = nil, nil // a binary from before there was this verb
	} else if found.Images == nil {
		found.Images = []string{}
	}
	return found, err
}
