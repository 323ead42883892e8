package admission

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var snapshots = kind[*v1beta2.Snapshot]{
	plural:     "snapshots",
	create:     func() *v1beta2.Snapshot { return &v1beta2.Snapshot{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator:    mutateSnapshot,
	checker: func(_ context.Context, _ world, r request[*v1beta2.Snapshot]) error {
		return CheckSnapshot(r.old, r.new) // nothing is old at creation
	},
}

// mutateSnapshot completes new snapshots only: the finalizer of one whose snapshot is gone is taken
// away for good.
func mutateSnapshot(ctx context.Context, w world, r request[*v1beta2.Snapshot]) error {
	s := r.new
	if !r.created() {
		orElse(&s.Spec.Volume, r.old.Spec.Volume)
		return nil
	}
	if s.Spec.Volume == "" {
		return nil // which is refused
	}
	v, err := w.volume(ctx, s.Spec.Volume)
	if err != nil {
		return err
	}
	if v == nil {
		return invalid("snapshot %s is of volume %q, which does not exist", s.Name, s.Spec.Volume)
	}
	addFinalizer(s)
	addLabels(s, naming.VolumeLabels(v.Name))
	if len(s.OwnerReferences) == 0 {
		s.OwnerReferences = []metav1.OwnerReference{ownedByVolume(v)}
	}
	return nil
}

// CheckSnapshot refuses snapshots that cannot be (old nil: creation).
func CheckSnapshot(old, s *v1beta2.Snapshot) error {
	if old == nil {
		if s.Spec.Volume == "" {
			return invalid("snapshot %s names no volume: fill spec.volume", s.Name)
		}
		return firstOf(func() error { return checkSnapshotName(s) },
			func() error { return CheckSnapshotLabels(s.Name, s.Labels) },
			func() error { return CheckSnapshotLabels(s.Name, s.Spec.Labels) })
	}
	switch {
	case s.Spec.Volume != old.Spec.Volume:
		return invalid("snapshot %s: spec.volume cannot be changed", s.Name)
	case len(old.OwnerReferences) > 0 && !equality.Semantic.DeepEqual(old.OwnerReferences, s.OwnerReferences):
		return invalid("snapshot %s: its owner cannot be changed", s.Name)
	case old.Labels[naming.LabelVolume] != "" && old.Labels[naming.LabelVolume] != s.Labels[naming.LabelVolume]:
		return invalid("snapshot %s: label %s cannot be changed", s.Name, naming.LabelVolume)
	}
	return nil
}

// checkSnapshotName refuses a wish for a snapshot that no engine can take.
func checkSnapshotName(s *v1beta2.Snapshot) error {
	if !s.Spec.CreateSnapshot {
		return nil
	}
	if err := naming.CheckSnapshotName(s.Name); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// CheckSnapshotLabels refuses labels that the engine could not be given.
func CheckSnapshotLabels(name string, labels map[string]string) error {
	for k, v := range labels {
		if strings.Contains(k, "=") || strings.Contains(v, "=") {
			return invalid("snapshot %s: label %q with value %q contains =", name, k, v)
		}
	}
	return nil
}
