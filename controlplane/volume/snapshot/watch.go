package snapshot

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/clone"
)

// volumeShape is what of a volume a snapshot looks at.
type volumeShape struct {
	node, at, owner, migration, image, current string
	state                                      v1beta2.VolumeState
	robustness                                 v1beta2.VolumeRobustness
	deleted, copying                           bool
}

func volumeView(v *v1beta2.Volume) volumeShape {
	return volumeShape{v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.OwnerID, v.Spec.MigrationNodeID, v.Spec.Image,
		v.Status.CurrentImage, v.Status.State, v.Status.Robustness, v.DeletionTimestamp != nil,
		clone.Copying(v) && !clone.GivenUp(v)}
}

// onVolume wakes the snapshots of a volume that wait for something, and those of the volume that it
// is filled from.
func (r *Reconciler) onVolume(v *v1beta2.Volume) []string {
	out := r.unsettled(index.OfVolume(v.Name))
	if source := clone.Source(v); source != "" {
		out = append(out, r.unsettled(index.OfVolume(source))...)
	}
	return out
}

func ticketsChanged(before, after *v1beta2.VolumeAttachment) bool {
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// unsettled names the snapshots among some that wait for something: those to be taken, those to be
// given up, and those that a volume is filled with.
func (r *Reconciler) unsettled(which ...client.ListOption) []string {
	return r.names(func(s *v1beta2.Snapshot) bool {
		return s.DeletionTimestamp != nil || s.Spec.CreateSnapshot && s.Status.CreationTime == "" ||
			s.Status.Labels[naming.LabelForCloningVolume] != ""
	}, which...)
}

func (r *Reconciler) names(ok func(*v1beta2.Snapshot) bool, which ...client.ListOption) []string {
	var list v1beta2.SnapshotList
	which = append(which, client.InNamespace(r.cfg.Namespace), client.UnsafeDisableDeepCopy)
	if err := r.client.List(context.Background(), &list, which...); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	var out []string
	for i := range list.Items {
		if ok(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// onEngine wakes all snapshots of a new or removed engine's volume.
func (r *Reconciler) onEngine(e *v1beta2.Engine) []string {
	return r.names(func(*v1beta2.Snapshot) bool { return true }, index.OfVolume(e.Spec.VolumeName))
}

// onEngineUpdate wakes the snapshots that the engine shows otherwise than before, those that wait
// if it may accept now what it refused, and, when a purge has ended, those of other volumes that
// wait for one.
func (r *Reconciler) onEngineUpdate(before, after *v1beta2.Engine) []string {
	var out []string
	if before.Status.CurrentSize != after.Status.CurrentSize {
		out = r.onEngine(after)
	}
	for _, name := range sortedKeys(after.Status.Snapshots) {
		have, there := before.Status.Snapshots[name]
		if name != v1beta2.VolumeHeadName && (!there || !reflect.DeepEqual(have, after.Status.Snapshots[name])) {
			out = append(out, name)
		}
	}
	for _, name := range sortedKeys(before.Status.Snapshots) {
		if _, there := after.Status.Snapshots[name]; !there {
			out = append(out, name)
		}
	}
	if before.Busy() && !after.Busy() {
		return append(out, r.unsettled()...)
	}
	if concernsWaiting(before, after) {
		out = append(out, r.unsettled(index.OfVolume(after.Spec.VolumeName))...)
	}
	return out
}

// concernsWaiting reports whether an engine's change concerns the snapshots that wait: it may now
// accept what it refused, or may have more of them.
func concernsWaiting(before, after *v1beta2.Engine) bool {
	return outline(before) != outline(after) || before.Spec.SnapshotMaxCount != after.Spec.SnapshotMaxCount
}

func (r *Reconciler) onSetting(s *v1beta2.Setting) []string {
	if s.Name != setting.DisableSnapshotPurge && s.Name != setting.SnapshotHeavyTaskConcurrentLimit {
		return nil
	}
	return r.unsettled()
}
