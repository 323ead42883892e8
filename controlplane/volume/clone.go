package volume

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/clone"
)

// cloning fills a volume with the content of another one. It is the part of a pass that clone
// stands for.
type cloning struct{ *pass }

// gatherClone reads the volume that this one is filled from, and the volumes filled from this one.
func (r *Reconciler) gatherClone(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	if source := clone.Source(v); source != "" && clone.Copying(v) {
		var o v1beta2.Volume
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: source}, &o,
			client.UnsafeDisableDeepCopy); {
		case err == nil:
			s.Source = &o
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get volume %s: %w", source, err)
		}
	}
	var clones v1beta2.VolumeList
	if err := r.client.List(ctx, &clones, client.InNamespace(v.Namespace), index.ClonedFrom(v.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list clones of volume %s: %w", v.Name, err)
	}
	s.Clones = clones.Items
	return nil
}

// onClone names whom a change of a volume concerns beside itself: the volume that it is filled
// from, and those that are filled from it.
func (r *Reconciler) onClone(v *v1beta2.Volume) []string {
	var names []string
	if source := clone.Source(v); source != "" {
		names = append(names, source)
	}
	var clones v1beta2.VolumeList
	if err := r.client.List(context.Background(), &clones, client.InNamespace(r.cfg.Namespace), index.ClonedFrom(v.Name),
		client.UnsafeDisableDeepCopy); err != nil {
		return names // the cache does not fail
	}
	for i := range clones.Items {
		if clone.Copying(&clones.Items[i]) {
			names = append(names, clones.Items[i].Name)
		}
	}
	return names
}

// cloneView is what of a volume matters to its source and its clones.
type cloneView struct {
	state      v1beta2.VolumeState
	robustness v1beta2.VolumeRobustness
	clone      v1beta2.VolumeCloneState
	deleted    bool
}

func viewForClones(v *v1beta2.Volume) cloneView {
	return cloneView{v.Status.State, v.Status.Robustness, v.Status.CloneStatus.State, v.DeletionTimestamp != nil}
}

// clone follows the filling of the volume from another one, and has the engine begin it.
func (p cloning) clone() loop.Change {
	if p.v.Spec.DataSource == "" {
		return nil
	}
	st := &p.v.Status.CloneStatus
	before := st.State
	switch before {
	case v1beta2.VolumeCloneStateNone:
		p.initiateClone()
	case v1beta2.VolumeCloneStateInitiated:
		p.followClone()
	case v1beta2.VolumeCloneStateFailed:
		p.retryClone()
	case v1beta2.VolumeCloneStateCopyCompletedUnhealthy:
		if p.v.Status.Robustness == v1beta2.VolumeRobustnessHealthy {
			st.State = v1beta2.VolumeCloneStateCompleted
			p.tell(false, naming.EventVolumeCloneCompleted, "volume %s has all its replicas; it was cloned from snapshot %s of "+
				"volume %s", p.v.Name, st.Snapshot, st.SourceVolume)
		}
	}
	want := ""
	if st.State == v1beta2.VolumeCloneStateInitiated {
		want = naming.CloneFromSnapshot(st.SourceVolume, st.Snapshot)
	}
	if p.engine.Spec.RequestedDataSource != want {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.RequestedDataSource = want })
	}
	return nil
}

// initiateClone has the copy begin once both volumes are attached. The source may be a clone
// itself, whose content is not whole yet: then this one waits.
func (p cloning) initiateClone() {
	v, source := p.v, p.s.Source
	switch {
	case source == nil || source.DeletionTimestamp != nil:
		p.cloneFailed("volume " + clone.Source(v) + " does not exist")
	case v.Status.State == v1beta2.VolumeStateAttached && p.serving() && lends(source):
		st := &v.Status.CloneStatus
		st.State, st.SourceVolume, st.Snapshot = v1beta2.VolumeCloneStateInitiated, source.Name, clone.Snapshot(v, source)
		p.tell(false, naming.EventVolumeCloneInitiated, "volume %s is being cloned from snapshot %s of volume %s", v.Name,
			st.Snapshot, st.SourceVolume)
	}
}

// lends says whether another volume can be filled from a volume now.
func lends(source *v1beta2.Volume) bool {
	return !clone.Copying(source) && source.Status.State == v1beta2.VolumeStateAttached &&
		(source.Status.Robustness == v1beta2.VolumeRobustnessHealthy ||
			source.Status.Robustness == v1beta2.VolumeRobustnessDegraded)
}

// followClone reads what the engine says of the copy. While it says nothing the copy was not begun,
// or its engine was killed: it is begun again, and goes on.
func (p cloning) followClone() {
	v := p.v
	done := 0
	for _, c := range p.engine.Status.CloneStatus {
		switch c.State {
		case v1beta2.ProcessStateError:
			p.cloneFailed(cmp.Or(c.Error, "no reason given"))
			return
		case v1beta2.ProcessStateComplete:
			done++
		}
	}
	switch {
	case done > 0 && done == len(p.engine.Status.CloneStatus):
		v.Status.CloneStatus.State = v1beta2.VolumeCloneStateCopyCompletedUnhealthy
		v.Status.CloneStatus.NextAllowedAttemptAt = ""
		p.tell(false, naming.EventVolumeCloneCopyCompleteAwaitingHealthy,
			"volume %s holds what snapshot %s of volume %s held; its other replicas are made now", v.Name,
			v.Status.CloneStatus.Snapshot, v.Status.CloneStatus.SourceVolume)
	case len(p.engine.Status.CloneStatus) == 0 && (p.s.Source == nil || p.s.Source.DeletionTimestamp != nil):
		p.cloneFailed("volume " + v.Status.CloneStatus.SourceVolume + " does not exist any more")
	}
}

// cloneFailed counts an attempt.
func (p cloning) cloneFailed(why string) {
	st := &p.v.Status.CloneStatus
	st.State = v1beta2.VolumeCloneStateFailed
	st.AttemptCount++
	st.NextAllowedAttemptAt = p.now.Add(clone.Pause(st.AttemptCount)).UTC().Format(time.RFC3339)
	next := "it is tried again at " + st.NextAllowedAttemptAt
	if clone.GivenUp(p.v) {
		st.NextAllowedAttemptAt, next = "", "it is not tried again: delete the volume"
	}
	p.tell(true, naming.EventVolumeCloneFailed, "attempt %d of %d to clone %s into volume %s has failed: %s; %s",
		st.AttemptCount, clone.MostAttempts, p.v.Spec.DataSource, p.v.Name, why, next)
}

// retryClone begins the next attempt when its time has come, with another process of the engine.
func (p cloning) retryClone() {
	st := &p.v.Status.CloneStatus
	if clone.GivenUp(p.v) || p.v.Status.State != v1beta2.VolumeStateDetached {
		return
	}
	if at, err := time.Parse(time.RFC3339, st.NextAllowedAttemptAt); err == nil && p.now.Before(at) {
		p.wakeIn(at.Sub(p.now))
		return
	}
	st.State = v1beta2.VolumeCloneStateNone
}

// wantsClone says whether the volume is to be attached for a clone: to be filled, to get its other
// replicas after that, or to be read for another volume; alone: whoever else wants it waits.
func (p cloning) wantsClone() (wanted, alone bool) {
	switch p.v.Status.CloneStatus.State {
	case v1beta2.VolumeCloneStateNone, v1beta2.VolumeCloneStateInitiated:
		if p.v.Spec.DataSource != "" {
			return p.s.Source != nil || p.v.Status.CloneStatus.State != v1beta2.VolumeCloneStateNone, true
		}
	case v1beta2.VolumeCloneStateCopyCompletedUnhealthy:
		return true, false
	}
	if clone.Copying(p.v) {
		return false, true
	}
	for i := range p.s.Clones {
		if clone.Needs(&p.s.Clones[i], p.v.Name) {
			return true, false
		}
	}
	return false, false
}
