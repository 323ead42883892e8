package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/dataloss"
)

const (
	// restoreAgainAfter is the pause after an order to restore that has failed, or while others
	// restore; mostRestoreOrders is how often it is given to one process.
	restoreAgainAfter = 5 * time.Second
	mostRestoreOrders = 5
	// alreadyRestored is what engines of every age say of an order to restore what they hold.
	alreadyRestored = "already restored backup"
	// damageUnknown is told where the process that has restored with damage accepted is gone.
	damageUnknown = "ranges that are not known, since the engine that has restored them has ended; verify the backup"
)

// restores are the orders to restore that are under way.
type restores struct {
	// mu is held from the count of those on a node to the next one.
	mu     sync.Mutex
	orders *store.Errands[restored]
}

// restored is what an engine has answered. Whole: it holds the backup already.
type restored struct{ Whole bool }

func newRestores(wake func(ctx context.Context, engine string)) *restores {
	e := store.NewErrands[restored]()
	e.Wake = wake
	return &restores{orders: e}
}

// restoreSeen is what decide looks at for the filling of a volume from a backup.
type restoreSeen struct {
	// Order is the latest order for this process of the engine; zero if there was none.
	Order store.Errand[restored]
	// Wait is how long one that has failed is not repeated yet.
	Wait time.Duration
	// Known: the volume is there, and Request is what an order says beside the engine. Most is how
	// many volumes may be restored on the node at once.
	Known   bool
	Request restoreRequest
	Most    int
}

// restoreOrder is an order to one process of an engine.
func restoreOrder(e *v1beta2.Engine) string {
	return e.Status.UUID + " " + e.Spec.RequestedBackupRestore
}

// gatherRestore prepares the order to restore.
func (r *Reconciler) gatherRestore(ctx context.Context, e *v1beta2.Engine, settings setting.Values) (s restoreSeen,
	err error) {
	if e.Spec.RequestedBackupRestore == "" || r.cfg.Credentials == nil {
		return s, nil
	}
	if o := r.restores.orders.Of(e.Name); o.Order == restoreOrder(e) {
		s.Order, s.Wait = o, time.Until(o.Ended.Add(restoreAgainAfter))
	}
	var v v1beta2.Volume
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Spec.VolumeName}, &v,
		client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return s, nil
		}
		return s, fmt.Errorf("get volume %s: %w", e.Spec.VolumeName, err)
	}
	s.Known, s.Request = true, requestOf(&v, settings)
	s.Most = settings.Int(setting.ConcurrentVolumeBackupRestorePerNodeLimit)
	return s, nil
}

// beginRestore orders a restore, unless as many volumes are being restored on the node as may.
func (r *Reconciler) beginRestore(ctx context.Context, e *v1beta2.Engine, s restoreSeen) error {
	e = e.DeepCopy() // the order outlives the step
	r.restores.mu.Lock()
	defer r.restores.mu.Unlock()
	if n, err := r.restoring(ctx, e); err != nil || n >= s.Most {
		return err
	}
	r.restores.orders.Begin(e.Name, restoreOrder(e), func(ctx context.Context) (restored, error) {
		return r.restore(ctx, e, s.Request)
	})
	return nil
}

// restoring counts the other volumes that are being restored on an engine's node.
func (r *Reconciler) restoring(ctx context.Context, e *v1beta2.Engine) (n int, err error) {
	var list v1beta2.EngineList
	if err := r.client.List(ctx, &list, client.InNamespace(e.Namespace), index.OnNode(e.Spec.NodeID),
		client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list engines of node %s: %w", e.Spec.NodeID, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		busy := r.restores.orders.Of(o.Name).Runs()
		for _, s := range o.Status.RestoreStatus {
			busy = busy || s.IsRestoring
		}
		if o.Name != e.Name && busy {
			n++
		}
	}
	return n, nil
}

// restoreRequest is what an order to restore needs to know beside the engine.
type restoreRequest struct {
	// from is the backup target.
	from         string
	concurrency  int
	bandwidthMiB int
	// accepts: a person accepts that what the store does not have becomes zero.
	accepts bool
}

func requestOf(v *v1beta2.Volume, settings setting.Values) restoreRequest {
	return restoreRequest{from: v.Spec.BackupTargetName, concurrency: settings.Int(setting.RestoreConcurrentLimit),
		bandwidthMiB: settings.Int(setting.BackupBandwidthLimit), accepts: dataloss.AcceptsDamage(v)}
}

// restore orders a restore. Credentials are read for the order, and are kept nowhere.
//
// Crash window: the answer may be lost; the state of the engine tells.
func (r *Reconciler) restore(ctx context.Context, e *v1beta2.Engine, q restoreRequest) (out restored, err error) {
	var t v1beta2.BackupTarget
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: q.from}, &t); err != nil {
		return out, fmt.Errorf("get backup target %s: %w", q.from, err)
	}
	credentials, err := r.cfg.Credentials(ctx, &t)
	if err != nil {
		return out, err
	}
	url, err := store.BackupURL(t.Spec.BackupTargetURL, e.Spec.BackupVolume, e.Spec.RequestedBackupRestore)
	if err != nil {
		return out, fmt.Errorf("backup target %s: %w", q.from, err)
	}
	err = r.engines.BackupRestore(ctx, target(e), engineclient.RestoreRequest{URL: url, Credentials: credentials,
		Concurrency: q.concurrency, BandwidthMiB: q.bandwidthMiB, AcceptDamage: q.accepts})
	if errors.Is(err, engineclient.ErrPrecondition) && strings.Contains(err.Error(), alreadyRestored) {
		return restored{Whole: true}, nil
	}
	return out, err
}

// restore has the engine fill its volume from a backup, once in a run that accepts it. What was
// restored last counts only where the engine knows of none: a later restore may have been cut off.
func restore(e *v1beta2.Engine, s seen) loop.Decision {
	want, have, order := e.Spec.RequestedBackupRestore, &s.State.Restore, s.Restore.Order
	begun := have.Backup == want && have.State != "" && !have.Interrupted
	last := have.State == "" && e.Status.LastRestoredBackup == want
	switch {
	case want == "" || !s.Restore.Known || begun || last || order.Runs() ||
		order.Over && order.Err == nil || order.Failures >= mostRestoreOrders || changesFiles(s.State):
		return loop.Decision{}
	case order.Over && s.Restore.Wait > 0:
		return loop.Decision{After: s.Restore.Wait}
	}
	return loop.Decision{After: restoreAgainAfter, Do: loop.Call{
		What: "restore backup " + want + " into engine " + e.Name, Order: orderRestore}}
}

// changesFiles says whether the engine is at something that it would refuse a restore for: a
// replica that is judged or rebuilt, a purge, of what earlier restores have left, or an expansion.
// Its next state wakes us.
func changesFiles(s *engineclient.State) bool {
	return s.Expanding || slices.ContainsFunc(s.Replicas, func(r engineclient.Replica) bool {
		return r.Mode == engineclient.ModeWO || r.Mode == engineclient.ModePending || r.Purge != nil && r.Purge.Running
	})
}

// restoreStatus is the progress of the restore that is wanted, by replica, each of which says the
// same; nil if none is wanted, or none was begun in this run of the engine.
func restoreStatus(e *v1beta2.Engine, s seen) map[string]v1beta2.RestoreStatus {
	want, have, order := e.Spec.RequestedBackupRestore, &s.State.Restore, s.Restore.Order
	status := v1beta2.RestoreStatus{BackupURL: have.URL}
	switch {
	case want == "":
		return nil
	case order.Over && order.Result.Whole:
		status.State, status.Progress, status.LastRestored = v1beta2.ProcessStateComplete, 100, want
		status.Damage = earlierDamage(e, s)
	case have.Backup == want && have.State != "" && !have.Interrupted:
		status.Error, status.IsRestoring, status.Progress, status.State = have.Error, have.Running, have.Percent, have.State
		status.CurrentRestoringBackup = want
		switch {
		case have.State == v1beta2.ProcessStateComplete:
			status.CurrentRestoringBackup, status.LastRestored, status.Damage = "", want, have.Damage
			if have.URL == "" { // the process has found it when it started
				status.Damage = earlierDamage(e, s)
			}
		case have.Running:
			status.LastRestored = e.Status.LastRestoredBackup
		}
	case order.Over && order.Failures >= mostRestoreOrders:
		status.State, status.Error = v1beta2.ProcessStateError, store.Refusal(order.Err)
	default:
		return nil
	}
	out := map[string]v1beta2.RestoreStatus{}
	for _, r := range s.State.Replicas {
		if r.Mode != engineclient.ModeERR {
			out[scheme+r.Address] = status
		}
	}
	return out
}

// earlierDamage is what a process of before has left out of the backup that the volume holds, if a
// person has accepted that: a process knows only what it has left out itself.
func earlierDamage(e *v1beta2.Engine, s seen) string {
	if !s.Restore.Request.accepts {
		return ""
	}
	for _, r := range e.Status.RestoreStatus {
		if r.LastRestored == e.Spec.RequestedBackupRestore && r.Damage != "" {
			return r.Damage
		}
	}
	return damageUnknown
}

// backupStatus is what the engine tells of its backups.
func backupStatus(s *engineclient.State) map[string]v1beta2.EngineBackupStatus {
	if len(s.Backups) == 0 {
		return nil
	}
	out := make(map[string]v1beta2.EngineBackupStatus, len(s.Backups))
	for name, b := range s.Backups {
		status := v1beta2.EngineBackupStatus{BackupURL: b.URL, Error: b.Error, Progress: b.Percent,
			SnapshotName: b.Snapshot, State: b.State}
		if b.From != "" {
			status.ReplicaAddress = scheme + b.From
		}
		out[name] = status
	}
	return out
}
