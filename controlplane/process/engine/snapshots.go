package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

// notListed is the error of a listing that is not of the running engine: what status.snapshots
// shows may have changed since.
const notListed = "the running engine has not listed its snapshots"

// followSnapshots brings snapshots, limits and purges up to date. A purge that has failed on a
// replica is told once.
func followSnapshots(e *v1beta2.Engine, s *engineclient.State) (events []loop.Event) {
	st := &e.Status
	st.SnapshotsError = ""
	if _, listed := s.Snapshots[v1beta2.VolumeHeadName]; listed {
		st.Snapshots = Snapshots(*s)
	} else {
		st.SnapshotsError = notListed
	}
	if n := s.Options.SnapshotMaxCount; n != nil {
		st.SnapshotMaxCount = *n
	}
	if n := s.Options.SnapshotMaxSizeBytes; n != nil {
		st.SnapshotMaxSize = *n
	}
	before := st.PurgeStatus
	st.PurgeStatus = nil
	for _, r := range s.Replicas {
		if r.Purge == nil {
			continue
		}
		if st.PurgeStatus == nil {
			st.PurgeStatus = map[string]v1beta2.PurgeStatus{}
		}
		st.PurgeStatus[scheme+r.Address] = v1beta2.PurgeStatus{
			Error: r.Purge.Error, IsPurging: r.Purge.Running, Progress: r.Purge.Percent, State: r.Purge.State}
		if why := r.Purge.Error; why != "" && why != before[scheme+r.Address].Error {
			failed := loop.Event{Warning: true, Reason: naming.EventFailedSnapshotPurge,
				Message: "Failed to give back the space of snapshots on the replica at " + scheme + r.Address + ": " + why}
			events = append(events, failed)
			if v := volumeOf(e); v != nil {
				failed.On = v
				events = append(events, failed)
			}
		}
	}
	return events
}

// volumeOf is the volume of an engine, with what an event about it needs; nil if nothing owns the
// engine.
func volumeOf(e *v1beta2.Engine) *v1beta2.Volume {
	for _, of := range e.OwnerReferences {
		if of.Kind == "Volume" {
			return &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: of.Name, UID: of.UID}}
		}
	}
	return nil
}

// samePurge and samePurgeProgress compare what urgency looks at.
func samePurge(a, b *engineclient.Purge) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Running == b.Running && a.State == b.State && a.Error == b.Error)
}

func samePurgeProgress(a, b *engineclient.Purge) bool {
	return a == nil || b == nil || a.Percent == b.Percent
}

// keepSnapshots gives the engine its limits, and its snapshots their objects.
func keepSnapshots(e *v1beta2.Engine, s seen) loop.Decision {
	if limitsDiffer(e, s) {
		return loop.Decision{Do: loop.Call{What: "set the limits of snapshots of engine " + e.Name, Order: orderLimits}}
	}
	if len(s.Unmirrored) > 0 {
		// Crash window: none; what is there already is found there.
		return loop.Decision{Do: loop.Create{Object: mirror(e, s.Unmirrored[0])}}
	}
	return loop.Decision{}
}

func limitsDiffer(e *v1beta2.Engine, s seen) bool {
	o := s.State.Options
	if e.Spec.SnapshotMaxCount == 0 || o.SnapshotMaxCount == nil || o.SnapshotMaxSizeBytes == nil ||
		s.Refused[limitsOf(e)] != "" {
		return false
	}
	return *o.SnapshotMaxCount != e.Spec.SnapshotMaxCount || *o.SnapshotMaxSizeBytes != e.Spec.SnapshotMaxSize
}

// limitsOf names the limits wanted of an engine among what it may refuse.
func limitsOf(e *v1beta2.Engine) string {
	return fmt.Sprintf("limits %d, %d", e.Spec.SnapshotMaxCount, e.Spec.SnapshotMaxSize)
}

// setLimits does not fail where the engine refuses: it would refuse again.
func (r *Reconciler) setLimits(ctx context.Context, e *v1beta2.Engine) error {
	count, size := e.Spec.SnapshotMaxCount, e.Spec.SnapshotMaxSize
	err := r.engines.OptionsSet(ctx, target(e),
		engineclient.Options{SnapshotMaxCount: &count, SnapshotMaxSizeBytes: &size})
	r.monitor.Refused(e.Name, limitsOf(e), err)
	return err
}

// mirror is the object of a snapshot that the engine has.
func mirror(e *v1beta2.Engine, name string) *v1beta2.Snapshot {
	return &v1beta2.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: naming.VolumeLabels(e.Spec.VolumeName),
			Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.SnapshotSpec{Volume: e.Spec.VolumeName},
	}
}

// unmirrored are the engine's snapshots that need an object: not the head, none that no object can
// be named after, and none of a volume that is deleted.
func (r *Reconciler) unmirrored(ctx context.Context, e *v1beta2.Engine) ([]string, error) {
	if len(e.Status.Snapshots) <= 1 || !e.Spec.Active {
		return nil, nil
	}
	var v v1beta2.Volume
	err := r.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Spec.VolumeName}, &v,
		client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && v.DeletionTimestamp != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get volume %s: %w", e.Spec.VolumeName, err)
	}
	var list v1beta2.SnapshotList
	if err := r.client.List(ctx, &list, client.InNamespace(e.Namespace), index.OfVolume(e.Spec.VolumeName),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list snapshots of volume %s: %w", e.Spec.VolumeName, err)
	}
	have := map[string]bool{v1beta2.VolumeHeadName: true}
	for i := range list.Items {
		have[list.Items[i].Name] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(e.Status.Snapshots)) {
		if have[name] || len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue
		}
		// Names are those of the whole cluster; another volume may have taken this one.
		err := r.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: name}, &v1beta2.Snapshot{},
			client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
			out = append(out, name)
		case err != nil:
			return nil, fmt.Errorf("get snapshot %s: %w", name, err)
		}
	}
	return out, nil
}

// onSnapshot wakes the engines of a snapshot's volume.
func (r *Reconciler) onSnapshot(s *v1beta2.Snapshot) []string {
	var list v1beta2.EngineList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace),
		index.OfVolume(s.Spec.Volume), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; an object's own change wakes it too
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}
