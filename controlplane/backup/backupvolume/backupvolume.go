// Package backupvolume is the controller of BackupVolume objects. A backup volume is what a backup
// target has of one volume: its backups, and a record of the volume.
//
// When it is asked to, it reads that record and the names of the backups. For each there is a
// Backup object, which goes when the backup is gone there; what a backup holds reads package
// backup. Deleting the object deletes all backups of the volume in the store, unless label
// longhorn.io/delete-custom-resource-only says otherwise.
//
// When it is asked to, or when setting backup-verify-interval says so, it has all verified that the
// store has of the volume (package verification).
//
// decide is pure; docs/design/backups.md has the decision table.
package backupvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/backup/verification"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
)

// Config of the reconciler.
type Config struct {
	// NodeName is the leader's node, the owner of backup volumes.
	NodeName string
	// Access reaches stores, Parts verifies what they hold. SetupWithManager registers Parts.
	Access *store.Access
	Parts  *verification.Parts
}

// content is what a store has of a volume.
type content struct {
	Volume  *engineclient.BackupVolume
	Backups []string
	// Modified is when the record was written.
	Modified time.Time
}

// Reconciler looks after backup volumes. Use New.
type Reconciler struct {
	cfg     Config
	client  client.Client
	errands *store.Errands[content]
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	r := &Reconciler{cfg: cfg, errands: store.NewErrands[content]()}
	cfg.Parts.OnEnd(kind, r.errands.Wake)
	return r
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.errands); err != nil {
		return fmt.Errorf("add the looks at backup volumes: %w", err)
	}
	if err := mgr.Add(r.cfg.Parts); err != nil {
		return fmt.Errorf("add the verifications of backups: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Access.Namespace, r.Controller())
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.BackupVolume, seen] {
	return loop.Controller[*v1beta2.BackupVolume, seen]{
		Name:   naming.EventSource("backup-volume"),
		New:    func() *v1beta2.BackupVolume { return &v1beta2.BackupVolume{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.errands.Forget(key.Name) },
		// A backup volume that is deleted waits for the end of its backups.
		Watches: []loop.Watch{loop.WatchingChanges(&v1beta2.Backup{}, func(_, _ *v1beta2.Backup) bool { return false },
			func(b *v1beta2.Backup) []string {
				return []string{naming.BackupVolumeName(b.Labels[naming.LabelBackupVolume], b.Labels[naming.LabelBackupTarget])}
			}),
			loop.Watching(&v1beta2.Setting{}, r.onSetting)},
		Wakeups: loop.By(r.errands.Wakeups()),
	}
}

// onSetting wakes all for the setting by which one at rest gets work.
func (r *Reconciler) onSetting(s *v1beta2.Setting) (names []string) {
	if s.Name != setting.BackupVerifyInterval {
		return nil
	}
	var all v1beta2.BackupVolumeList
	err := r.client.List(context.Background(), &all, client.InNamespace(r.cfg.Access.Namespace),
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache does not fail
	}
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names
}

// seen is what decide looks at besides the backup volume.
type seen struct {
	// Target is nil if there is none.
	Target *v1beta2.BackupTarget
	// Backups are those of the volume on the target, by name; Taken are the names that backups of
	// other volumes or targets have.
	Backups []v1beta2.Backup
	Taken   map[string]bool
	// Errand is the latest one.
	Errand store.Errand[content]
	Owner  string
	// Verification is what its verification looks at.
	Verification verification.Seen
	Settings     setting.Values
}

// Orders: verify begins the next part of a verification, the others an errand.
const (
	orderLook   = "look"
	orderRemove = "remove"
	orderVerify = "verify"
)

func (r *Reconciler) gather(ctx context.Context, v *v1beta2.BackupVolume) (seen, error) {
	s := seen{Errand: r.errands.Of(v.Name), Owner: r.cfg.NodeName, Taken: map[string]bool{}}
	var err error
	if s.Target, err = r.cfg.Access.Target(ctx, v.Spec.BackupTargetName); err != nil {
		return s, err
	}
	var all v1beta2.BackupList
	if err := r.client.List(ctx, &all, client.InNamespace(v.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list backups: %w", err)
	}
	for i := range all.Items {
		b := &all.Items[i]
		if b.Labels[naming.LabelBackupVolume] == v.Spec.VolumeName &&
			b.Labels[naming.LabelBackupTarget] == v.Spec.BackupTargetName {
			s.Backups = append(s.Backups, *b)
		} else {
			s.Taken[b.Name] = true
		}
	}
	slices.SortFunc(s.Backups, func(a, b v1beta2.Backup) int { return strings.Compare(a.Name, b.Name) })
	s.Settings, err = stored.Read(ctx, r.client, v.Namespace)
	s.Verification = r.cfg.Parts.Seen(v.Spec.BackupTargetName, s.Settings)
	return s, err
}

func (r *Reconciler) carry(_ context.Context, v *v1beta2.BackupVolume, s seen, what any) error {
	order := what.(string)
	if order == orderVerify {
		r.cfg.Parts.Begin(subject(v), r.cfg.Access, s.Target, s.Settings)
		return nil
	}
	r.errands.Begin(v.Name, named(v, order), func(ctx context.Context) (content, error) {
		st, err := r.cfg.Access.Open(ctx, s.Target)
		if err != nil {
			return content{}, err
		}
		if order == orderLook {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Settings.Int(setting.BackupExecutionTimeout))*time.Minute)
			defer cancel()
			return look(ctx, st, v.Spec.VolumeName)
		}
		// Removing looks through the blocks of all backups: it has no limit but the client's.
		err = st.BackupVolumeDelete(ctx, st.URL, v.Spec.VolumeName, st.Credentials)
		if errors.Is(err, engineclient.ErrNotFound) {
			err = nil
		}
		return content{}, err
	})
	return nil
}

// look reads what a store has of a volume. When the record was written is read first: what changes
// after that is found by the next look.
func look(ctx context.Context, st *store.Store, volume string) (c content, err error) {
	url, err := store.BackupURL(st.URL, volume, "")
	if err != nil {
		return c, err
	}
	head, err := st.BackupConfigMetaGet(ctx, url, st.Credentials)
	if err != nil {
		return c, err
	}
	c.Modified = head.ModificationTime
	if c.Volume, err = st.BackupVolumeGet(ctx, url, st.Credentials); err != nil {
		return c, err
	}
	c.Backups, err = st.BackupNameList(ctx, st.URL, volume, st.Credentials)
	return c, err
}
