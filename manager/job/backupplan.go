package job

import (
	"cmp"
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// spent are the job's own snapshots that a job of backups gives up, oldest first. With cleanup
// (setting auto-cleanup-recurring-job-backup-snapshot) that is all but the run's own and the one
// that the next backup builds on; else as many are left as the job retains.
func spent(now time.Time, j *v1beta2.RecurringJob, cleanup bool, mine, base string,
	snapshots []v1beta2.Snapshot) (remove []string) {
	sorted := slices.Clone(snapshots)
	slices.SortFunc(sorted, byAge)
	candidates := outdated(now, j, mine, sorted)
	for i := range sorted {
		s := &sorted[i]
		if madeBy(s, j.Name) && s.Name != mine && s.Name != base && (cleanup || slices.Contains(candidates, s.Name)) {
			remove = append(remove, s.Name)
		}
	}
	return remove
}

// outlived are the backups of a job that it does not retain, oldest first: of those that are
// complete all but the newest, or those that are too old. The newest one always stays.
func outlived(now time.Time, j *v1beta2.RecurringJob, backups []v1beta2.Backup) (remove []string) {
	var mine []*v1beta2.Backup
	for i := range backups {
		b := &backups[i]
		by := cmp.Or(b.Spec.Labels[naming.LabelRecurringJob], b.Status.Labels[naming.LabelRecurringJob])
		if by == j.Name && b.Status.State == v1beta2.BackupStateCompleted && b.DeletionTimestamp == nil {
			mine = append(mine, b)
		}
	}
	slices.SortFunc(mine, func(a, b *v1beta2.Backup) int { return held(a).Compare(held(b)) })
	n := min(expired(now, &j.Spec, j.Spec.Retain, mine, held), max(len(mine)-1, 0))
	for _, b := range mine[:n] {
		remove = append(remove, b.Name)
	}
	return remove
}

// newestBackup is the complete backup of the newest snapshot; nil if there is none.
func newestBackup(backups []v1beta2.Backup) (newest *v1beta2.Backup) {
	for i := range backups {
		b := &backups[i]
		if b.Status.State == v1beta2.BackupStateCompleted && b.DeletionTimestamp == nil &&
			(newest == nil || held(b).After(held(newest))) {
			newest = b
		}
	}
	return newest
}

// baseOf is the snapshot that the next backup sends the changes since; empty for none.
func baseOf(backups []v1beta2.Backup) string {
	if b := newestBackup(backups); b != nil {
		return b.Status.SnapshotName
	}
	return ""
}

// held is the time of the content of a backup.
func held(b *v1beta2.Backup) time.Time {
	if at, err := time.Parse(time.RFC3339, b.Status.SnapshotCreatedAt); err == nil {
		return at
	}
	return b.CreationTimestamp.Time
}

// unchanged says whether nothing was written between the snapshot of a backup and a later one: the
// first lies below the second, and no layer between has data. What was discarded only is no data.
func unchanged(snapshot string, b *v1beta2.Backup, snapshots []v1beta2.Snapshot) bool {
	if b == nil || b.Status.SnapshotName == "" {
		return false
	}
	layers := map[string]*v1beta2.Snapshot{}
	for i := range snapshots {
		layers[snapshots[i].Name] = &snapshots[i]
	}
	for range snapshots {
		layer := layers[snapshot]
		switch {
		case layer == nil || layer.Status.CreationTime == "":
			return false
		case snapshot == b.Status.SnapshotName: // another one may have the name
			return taken(layer).Truncate(time.Second).Equal(held(b).Truncate(time.Second))
		case layer.Status.Size > 0:
			return false
		}
		snapshot = layer.Status.Parent
	}
	return false
}
