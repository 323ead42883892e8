package job

import (
	"cmp"
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/clone"
)

// plan is what a run does to the snapshots of one volume.
type plan struct {
	// remove are the snapshots to be given up, oldest first.
	remove []string
	// create is the name of the snapshot to be taken, empty for none; it may be ordered already.
	create string
}

func (p plan) empty() bool { return len(p.remove) == 0 && p.create == "" }

// planFor judges the snapshots of a volume. mine is the name of this run's snapshot of it: a run
// that is repeated finds its own again, and takes no second one.
func planFor(now time.Time, j *v1beta2.RecurringJob, mine string, snapshots []v1beta2.Snapshot) plan {
	sorted := slices.Clone(snapshots)
	slices.SortFunc(sorted, byAge)
	switch j.Spec.Task {
	case v1beta2.RecurringJobTaskSnapshot, v1beta2.RecurringJobTaskSnapshotForceCreate:
		return plan{create: mine, remove: outdated(now, j, mine, sorted)}
	case v1beta2.RecurringJobTaskSnapshotCleanup:
		return plan{remove: surplus(sorted, len(sorted))}
	case v1beta2.RecurringJobTaskSnapshotDelete:
		return plan{remove: surplus(sorted, max(j.Spec.Retain, 0))}
	}
	return plan{}
}

// byAge orders snapshots, the oldest first.
func byAge(a, b v1beta2.Snapshot) int {
	return cmp.Or(taken(&a).Compare(taken(&b)), cmp.Compare(a.Name, b.Name))
}

// outdated are the job's own snapshots that go before another one is taken: with that one as many
// are left as the job retains.
func outdated(now time.Time, j *v1beta2.RecurringJob, mine string, sorted []v1beta2.Snapshot) (remove []string) {
	var keep []*v1beta2.Snapshot
	for i := range sorted {
		s := &sorted[i]
		switch {
		case s.Name == mine || !madeBy(s, j.Name):
		case given(s):
			remove = append(remove, s.Name)
		default:
			keep = append(keep, s)
		}
	}
	n := expired(now, &j.Spec, j.Spec.Retain-1, keep, taken)
	for _, s := range keep[:n] {
		remove = append(remove, s.Name)
	}
	return remove
}

// expired is how many of a job's results, oldest first, the job does not retain: all but the newest
// retain, or those that are too old.
func expired[T any](now time.Time, j *v1beta2.RecurringJobSpec, retain int, results []T, at func(T) time.Time) int {
	if j.RetentionPolicy != v1beta2.RetentionPolicyAgeBased {
		return max(len(results)-max(retain, 0), 0)
	}
	age, err := time.ParseDuration(j.RetainAge)
	n := 0
	for err == nil && n < len(results) && now.Sub(at(results[n])) > age { // without an age nothing is too old
		n++
	}
	return n
}

// surplus are the snapshots that a purge takes away anyway, and all but the newest retain of the
// others. Those that serve a copy under way stay.
func surplus(sorted []v1beta2.Snapshot, retain int) (remove []string) {
	var users []string
	for i := range sorted {
		s := &sorted[i]
		switch {
		case passing(s):
		case given(s) || s.Status.CreationTime != "" && !s.Status.UserCreated:
			remove = append(remove, s.Name)
		default:
			users = append(users, s.Name)
		}
	}
	return append(remove, users[:max(0, len(users)-retain)]...)
}

// given says whether a snapshot is given up already: its deletion is only to be seen through.
func given(s *v1beta2.Snapshot) bool { return s.DeletionTimestamp != nil || s.Status.MarkRemoved }

// passing says whether a snapshot is there for a copy, whose end removes it.
func passing(s *v1beta2.Snapshot) bool {
	return label(s, naming.LabelForCloningVolume) != "" || label(s, naming.LabelForExportingBackingImage) != ""
}

func madeBy(s *v1beta2.Snapshot, job string) bool { return label(s, naming.LabelRecurringJob) == job }

// label is a label that the snapshot was ordered with, or has in the engine.
func label(s *v1beta2.Snapshot, key string) string {
	return cmp.Or(s.Spec.Labels[key], s.Status.Labels[key])
}

// taken is when a snapshot was taken, or else ordered.
func taken(s *v1beta2.Snapshot) time.Time {
	if at, err := time.Parse(time.RFC3339, s.Status.CreationTime); err == nil {
		return at
	}
	return s.CreationTimestamp.Time
}

// unfit says why a job leaves a volume alone; empty if it works on it. detached is setting
// allow-recurring-job-while-volume-detached.
func unfit(v *v1beta2.Volume, task v1beta2.RecurringJobTask, detached bool) string {
	switch {
	case v.DeletionTimestamp != nil:
		return "it is being deleted"
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return "it is faulted"
	case v.Status.IsStandby:
		return "it is a standby volume"
	case v.Status.RestoreRequired:
		return "it is being restored"
	case clone.Copying(v):
		return "it is being filled from another volume"
	case v.Status.State == v1beta2.VolumeStateAttached || v.Status.State == v1beta2.VolumeStateAttaching:
		return ""
	case task == v1beta2.RecurringJobTaskFilesystemTrim:
		return "it is not attached, so no file system is mounted from it"
	case !detached:
		return "it is not attached (setting allow-recurring-job-while-volume-detached)"
	}
	return ""
}
