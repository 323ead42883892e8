package source

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/share"
	"ankole.storage/backup/target"
	"ankole.storage/controlplane/loop"
)

// restored is what decide looks at for a data source that restores a backup.
type restored struct {
	// Target is the backup target that is named; nil if there is none.
	Target *v1beta2.BackupTarget
	// BytesPerSecond is what backups and restores of the node send and read at most; 0 is no limit.
	BytesPerSecond int64
}

// restores says whether a data source makes its file of a backup.
func restores(d *v1beta2.BackingImageDataSource) bool {
	return d.Spec.SourceType == v1beta2.BackingImageSourceTypeRestore
}

// restoresShare says whether the backup lies on a share, which the Pod has to mount.
func restoresShare(d *v1beta2.BackingImageDataSource) bool {
	of, err := target.ParseImage(d.Spec.Parameters[v1beta2.BackingImageParameterBackupURL])
	return restores(d) && err == nil && share.Is(of.Target)
}

// ordered says whether the Pod waits for an order before it makes the file.
func ordered(d *v1beta2.BackingImageDataSource) bool { return received(d) || restores(d) }

// restoreTarget is the backup target that a data source restores from; empty if it restores
// nothing.
func restoreTarget(d *v1beta2.BackingImageDataSource) string {
	if !restores(d) {
		return ""
	}
	return d.Spec.Parameters[v1beta2.BackingImageParameterBackupTargetName]
}

// holdTarget waits for the backup target of a restore. Its credentials go to its own store only.
func (p *pass) holdTarget() (d loop.Decision, ready bool) {
	t, name := p.s.Restore.Target, restoreTarget(p.d)
	if t == nil || t.DeletionTimestamp != nil {
		p.failed("backup target " + name + " does not exist any more")
		return loop.Decision{}, false
	}
	if t.Spec.BackupTargetURL == "" || !t.Status.Available {
		return p.awaits("backup target " + name + " is not available")
	}
	at, err := target.Parse(t.Spec.BackupTargetURL)
	of, wrong := target.ParseImage(p.d.Spec.Parameters[v1beta2.BackingImageParameterBackupURL])
	switch {
	case err != nil:
		return p.awaits("backup target " + name + ": " + err.Error())
	case wrong != nil:
		p.failed("parameter " + v1beta2.BackingImageParameterBackupURL + ": " + wrong.Error())
		return loop.Decision{}, false
	case of.Target.String() != at.String():
		p.failed("the backup lies in " + of.Target.String() + ", and backup target " + name + " is " + at.String() +
			": name the target that has it")
		return loop.Decision{}, false
	}
	return loop.Decision{}, true
}

// gatherTarget reads the backup target that a data source restores from, if it does.
func (r *Reconciler) gatherTarget(ctx context.Context, d *v1beta2.BackingImageDataSource, s *seen) (err error) {
	if name := restoreTarget(d); name != "" {
		s.Restore.Target, err = r.cfg.Access.Target(ctx, name)
	}
	return err
}

// restore gives the process at ip what it takes to read the backup.
func (r *Reconciler) restore(ctx context.Context, ip string, d *v1beta2.BackingImageDataSource,
	with restored) error {
	var order struct {
		Credentials     map[string]string `json:"credentials"`
		ConcurrentLimit int               `json:"concurrentLimit"`
		NodeBandwidth   int64             `json:"nodeBandwidth"`
	}
	var err error
	if order.Credentials, err = r.cfg.Access.Credentials(ctx, with.Target); err != nil {
		return err
	}
	// Without a limit, or with one that is none, the worker has its own.
	order.ConcurrentLimit, _ = strconv.Atoi(d.Spec.Parameters[v1beta2.BackingImageParameterConcurrentLimit])
	order.NodeBandwidth = with.BytesPerSecond
	body, err := json.Marshal(order)
	if err != nil {
		return err
	}
	return r.ask(ctx, http.MethodPost, ip, "/v1/file?action=restore", body, nil)
}
