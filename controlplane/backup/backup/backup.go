// Package backup is the controller of Backup objects. A backup is the content of one snapshot of a
// volume, kept by a backup target outside of the cluster.
//
// An object that names a snapshot orders a backup: the engine of the volume makes it, and a volume
// that nobody uses is attached meanwhile by a ticket of the object. An object without a snapshot
// stands for a backup that the store has (package backupvolume makes it): it is read, once.
// Deleting an object deletes the backup in the store, unless label
// longhorn.io/delete-custom-resource-only says otherwise.
//
// decide is pure; docs/design/backups.md has the states, the decision table and what ends each
// wait.
package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/setting/stored"
	"ankole.storage/controlplane/volume/claim"
	"ankole.storage/controlplane/volume/copies"
	"ankole.storage/controlplane/volume/snapshot"
)

// Engines is what is asked of engines about backups.
type Engines interface {
	SnapshotBackup(ctx context.Context, t engineclient.Target, r engineclient.BackupRequest) error
	SnapshotBackupStatus(ctx context.Context, t engineclient.Target, backup string) (engineclient.BackupProgress, error)
}

// Config of the reconciler.
type Config struct {
	// NodeName is the leader's node, the owner of backups.
	NodeName string
	// Access reaches stores, Engines the engines.
	Access  *store.Access
	Engines Engines
}

// outcome is what an errand has found: a backup in the store, or how far an engine is.
type outcome struct {
	Info     *engineclient.Backup
	Progress *engineclient.BackupProgress
}

// Reconciler looks after backups. Use New.
type Reconciler struct {
	cfg     Config
	client  client.Client
	errands *store.Errands[outcome]
}

// New returns the reconciler.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, errands: store.NewErrands[outcome]()}
}

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	if err := mgr.Add(r.errands); err != nil {
		return fmt.Errorf("add the errands of backups: %w", err)
	}
	return loop.Setup(mgr, r.cfg.Access.Namespace, r.Controller())
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.Backup, seen] {
	return loop.Controller[*v1beta2.Backup, seen]{
		Name:   naming.EventSource("backup"),
		New:    func() *v1beta2.Backup { return &v1beta2.Backup{} },
		Gather: r.gather,
		Carry:  r.carry,
		Decide: decide,
		Gone:   func(_ context.Context, key client.ObjectKey) { r.errands.Forget(key.Name) },
		Watches: []loop.Watch{
			loop.WatchingChanges(&v1beta2.Volume{}, loop.Changed(volumeView), func(v *v1beta2.Volume) []string {
				return r.underWay(v.Name)
			}),
			loop.Watching(&v1beta2.Engine{}, func(e *v1beta2.Engine) []string { return r.underWay(e.Spec.VolumeName) }),
			loop.WatchingChanges(&v1beta2.VolumeAttachment{}, func(_, _ *v1beta2.VolumeAttachment) bool { return true },
				func(a *v1beta2.VolumeAttachment) []string { return r.underWay(a.Spec.Volume) }),
			loop.Watching(&v1beta2.Snapshot{}, func(s *v1beta2.Snapshot) []string { return r.underWay(s.Spec.Volume) }),
			loop.WatchingChanges(&v1beta2.BackupTarget{}, loop.Changed(func(t *v1beta2.BackupTarget) bool {
				return t.Status.Available
			}), func(t *v1beta2.BackupTarget) []string {
				return r.names(func(b *v1beta2.Backup) bool { return b.Labels[naming.LabelBackupTarget] == t.Name && !settled(b) })
			}),
			// A backup tells what a verification of its volume has found.
			loop.WatchingChanges(&v1beta2.BackupVolume{}, loop.Changed(verifiedAt), func(v *v1beta2.BackupVolume) []string {
				return r.names(func(b *v1beta2.Backup) bool {
					return b.Labels[naming.LabelBackupVolume] == v.Spec.VolumeName &&
						b.Labels[naming.LabelBackupTarget] == v.Spec.BackupTargetName
				})
			}),
		},
		Wakeups: loop.By(r.errands.Wakeups()),
	}
}

// verifiedAt is when the latest verification that is over was over, in seconds; 0: there is none.
func verifiedAt(v *v1beta2.BackupVolume) int64 {
	if ver := v.Status.Verification; ver != nil && ver.Ended() {
		return ver.EndedAt.Unix()
	}
	return 0
}

// volumeShape is what of a volume a backup looks at.
type volumeShape struct {
	node, migration string
	state           v1beta2.VolumeState
	robustness      v1beta2.VolumeRobustness
	deleted         bool
}

func volumeView(v *v1beta2.Volume) volumeShape {
	return volumeShape{v.Spec.NodeID, v.Spec.MigrationNodeID, v.Status.State, v.Status.Robustness,
		v.DeletionTimestamp != nil}
}

// settled says whether nothing is to be done for a backup until somebody asks.
func settled(b *v1beta2.Backup) bool {
	return b.DeletionTimestamp == nil &&
		(b.Status.State == v1beta2.BackupStateCompleted || b.Status.State == v1beta2.BackupStateError)
}

// underWay names the backups of a volume that are not settled.
func (r *Reconciler) underWay(volume string) []string {
	return r.names(func(b *v1beta2.Backup) bool { return b.Labels[naming.LabelBackupVolume] == volume && !settled(b) })
}

func (r *Reconciler) names(ok func(*v1beta2.Backup) bool) (out []string) {
	var list v1beta2.BackupList
	err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Access.Namespace),
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	for i := range list.Items {
		if ok(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// seen is what decide looks at besides the backup.
type seen struct {
	// Target, Of (the backup volume) and Snapshot are nil if there is none; so are Volume, Attachment
	// and Engine (the active one), which are read for a backup of this cluster only.
	Target     *v1beta2.BackupTarget
	Of         *v1beta2.BackupVolume
	Snapshot   *v1beta2.Snapshot
	Volume     *v1beta2.Volume
	Attachment *v1beta2.VolumeAttachment
	// Class is the StorageClass of the volume's PersistentVolume; empty if it has none.
	Class string
	// Jobs are all recurring jobs.
	Jobs   []v1beta2.RecurringJob
	Engine *v1beta2.Engine
	// Reachable says whether orders reach the engine. Lacks says why no engine could serve the volume
	// now; empty if one could.
	Reachable bool
	Lacks     string
	// At is where a volume that nobody uses would be attached.
	At snapshot.Place
	// TTL is how long a failed backup stays; 0: for ever. The others are settings of the same names.
	TTL                                     time.Duration
	CleanupWithBackup, CleanupWhenCompleted bool
	Owner                                   string
	Settings                                setting.Values
	// Errand is the latest one.
	Errand store.Errand[outcome]
}

// Orders of errands: create orders the backup, follow asks the engine, inspect and remove ask the
// store.
const (
	orderCreate  = "create"
	orderFollow  = "follow"
	orderInspect = "inspect"
	orderRemove  = "remove"
)

func (r *Reconciler) gather(ctx context.Context, b *v1beta2.Backup) (seen, error) {
	s := seen{Owner: r.cfg.NodeName, Errand: r.errands.Of(b.Name)}
	volume, at := b.Labels[naming.LabelBackupVolume], b.Labels[naming.LabelBackupTarget]
	var err error
	if s.Target, err = r.cfg.Access.Target(ctx, at); err != nil {
		return s, err
	}
	of := naming.BackupVolumeName(volume, at)
	if s.Of, err = get(ctx, r.client, b.Namespace, of, &v1beta2.BackupVolume{}); err != nil {
		return s, err
	}
	settings, err := stored.Read(ctx, r.client, b.Namespace)
	if err != nil {
		return s, err
	}
	s.Settings = settings
	s.TTL = time.Duration(settings.Int(setting.FailedBackupTTL)) * time.Minute
	s.CleanupWithBackup = settings.Bool(setting.AutoCleanupWhenDeleteBackup)
	// Recurring jobs look after their snapshots themselves.
	s.CleanupWhenCompleted = settings.Bool(setting.AutoCleanupSnapshotAfterOnDemandBackupCompleted) &&
		b.Spec.Labels[naming.LabelRecurringJob] == ""
	if b.Spec.SnapshotName != "" {
		err = r.gatherVolume(ctx, b, volume, &s)
	}
	return s, err
}

// get reads an object; nil if there is none.
func get[T client.Object](ctx context.Context, c client.Client, namespace, name string, into T) (found T, err error) {
	var none T
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("get %T %s: %w", into, name, err)
	}
	return into, nil
}

// gatherVolume reads the volume that is backed up.
func (r *Reconciler) gatherVolume(ctx context.Context, b *v1beta2.Backup, volume string, s *seen) (err error) {
	if s.Snapshot, err = get(ctx, r.client, b.Namespace, b.Spec.SnapshotName, &v1beta2.Snapshot{}); err != nil {
		return err
	}
	if s.Volume, err = get(ctx, r.client, b.Namespace, volume, &v1beta2.Volume{}); err != nil || s.Volume == nil {
		return err
	}
	if s.Attachment, err = get(ctx, r.client, b.Namespace, volume, &v1beta2.VolumeAttachment{}); err != nil {
		return err
	}
	if name := s.Volume.Status.KubernetesStatus.PVName; name != "" {
		pv, err := get(ctx, r.client, "", name, &corev1.PersistentVolume{})
		if err != nil {
			return err
		}
		if pv != nil {
			s.Class = pv.Spec.StorageClassName
		}
	}
	mine := []client.ListOption{client.InNamespace(b.Namespace), index.OfVolume(volume), client.UnsafeDisableDeepCopy}
	var engines v1beta2.EngineList
	var replicas v1beta2.ReplicaList
	var nodes v1beta2.NodeList
	var jobs v1beta2.RecurringJobList
	if err := r.client.List(ctx, &jobs, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list recurring jobs: %w", err)
	}
	s.Jobs = jobs.Items
	for _, list := range []client.ObjectList{&engines, &replicas} {
		if err := r.client.List(ctx, list, mine...); err != nil {
			return fmt.Errorf("list %T of volume %s: %w", list, volume, err)
		}
	}
	if err := r.client.List(ctx, &nodes, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range engines.Items {
		if e := &engines.Items[i]; s.Engine == nil || e.Spec.Active {
			s.Engine = e
		}
	}
	s.At = snapshot.PlaceOf(s.Volume, nodes.Items, replicas.Items)
	s.Lacks = copies.Of(s.Volume, engines.Items, replicas.Items, nodes.Items).Lacks()
	if s.Engine != nil {
		_, s.Reachable = engine.Target(s.Engine)
	}
	return nil
}

// carry begins an errand.
func (r *Reconciler) carry(_ context.Context, b *v1beta2.Backup, s seen, what any) error {
	order := what.(string)
	r.errands.Begin(b.Name, named(b, order), func(ctx context.Context) (out outcome, err error) {
		switch order {
		case orderCreate:
			return out, r.create(ctx, b, s)
		case orderFollow:
			t, ok := engine.Target(s.Engine)
			if !ok {
				return out, engineclient.ErrNotFound
			}
			p, err := r.cfg.Engines.SnapshotBackupStatus(ctx, t, b.Name)
			return outcome{Progress: &p}, err
		}
		url, err := store.BackupURL(s.Target.Spec.BackupTargetURL, b.Labels[naming.LabelBackupVolume], b.Name)
		if err != nil {
			return out, err
		}
		st, err := r.cfg.Access.Open(ctx, s.Target)
		if err != nil {
			return out, err
		}
		if order == orderInspect {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Settings.Int(setting.BackupExecutionTimeout))*time.Minute)
			defer cancel()
			out.Info, err = st.BackupGet(ctx, url, st.Credentials)
			return out, err
		}
		if err = st.BackupDelete(ctx, url, st.Credentials); errors.Is(err, engineclient.ErrNotFound) {
			err = nil
		}
		return out, err
	})
	return nil
}

// requestOf is the order of a backup, as its volume and settings say.
func requestOf(b *v1beta2.Backup, v *v1beta2.Volume, credentials map[string]string,
	settings setting.Values) engineclient.BackupRequest {
	return engineclient.BackupRequest{Backup: b.Name, Snapshot: b.Spec.SnapshotName, Credentials: credentials,
		Full: b.Spec.BackupMode == v1beta2.BackupModeFull, BlockBytes: max(b.Spec.BackupBlockSize, 0),
		Compression: store.Compression(v, credentials), Concurrency: settings.Int(setting.BackupConcurrentLimit),
		BandwidthMiB: settings.Int(setting.BackupBandwidthLimit)}
}

// create orders a backup.
func (r *Reconciler) create(ctx context.Context, b *v1beta2.Backup, s seen) error {
	credentials, err := r.cfg.Access.Credentials(ctx, s.Target)
	if err != nil {
		return err
	}
	q := requestOf(b, s.Volume, credentials, s.Settings)
	q.Target, q.Labels, q.StorageClass = s.Target.Spec.BackupTargetURL, labelsOf(b, s.Volume, s.Jobs), s.Class
	return r.ask(ctx, s.Engine, q)
}

// ask asks an engine for a backup. One that is at it already, for an order whose answer was lost,
// has accepted it.
func (r *Reconciler) ask(ctx context.Context, e *v1beta2.Engine, q engineclient.BackupRequest) error {
	t, ok := engine.Target(e)
	if !ok {
		return fmt.Errorf("%w: the engine is not running", engineclient.ErrUnavailable)
	}
	err := r.cfg.Engines.SnapshotBackup(ctx, t, q)
	if errors.Is(err, engineclient.ErrPrecondition) {
		p, unknown := r.cfg.Engines.SnapshotBackupStatus(ctx, t, q.Backup)
		if unknown == nil && p.Snapshot == q.Snapshot && p.State == v1beta2.ProcessStateInProgress {
			return nil
		}
	}
	return err
}

// labelsOf are the labels that are stored with a backup.
func labelsOf(b *v1beta2.Backup, v *v1beta2.Volume, jobs []v1beta2.RecurringJob) map[string]string {
	out := map[string]string{}
	maps.Copy(out, b.Spec.Labels)
	for key, value := range map[string]string{naming.LabelVolumeRecurringJobInfo: recurringjob.Record(v, jobs),
		naming.LabelKubernetesStatus: claim.Record(v)} {
		if value != "" {
			out[key] = value
		}
	}
	if out[naming.LabelVolumeAccessMode] == "" {
		out[naming.LabelVolumeAccessMode] = cmp.Or(string(v.Spec.AccessMode), string(v1beta2.AccessModeReadWriteOnce))
	}
	if v.Spec.Encrypted {
		out[naming.LabelVolumeEncrypted] = "true"
	}
	return out
}
