package volume

import (
	"fmt"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// checkSnapshot refuses a volume that is to be filled from a snapshot which its source does not
// have. What else is wrong with a data source admission says, or the copy. A snapshot that was just
// taken is in no object yet: a running engine is asked before it is said not to be there.
func (a *API) checkSnapshot(q *serve.Request, v *lh.Volume) error {
	source, snapshot, ok := naming.ParseCloneSource(v.Spec.DataSource)
	if !ok || snapshot == "" {
		return nil
	}
	var engines lh.EngineList
	if err := q.Objects.List(q.Context(), &engines); err != nil {
		return fmt.Errorf("failed to verify data source: listing engines: %w", err)
	}
	for i := range engines.Items {
		e := &engines.Items[i]
		if e.Spec.VolumeName != source {
			continue
		}
		have, there := e.Status.Snapshots[snapshot]
		if !there && e.Status.CurrentState == lh.InstanceStateRunning {
			var err error
			if have, there, err = a.askForSnapshot(q, e, snapshot); err != nil {
				return fmt.Errorf("failed to verify data source: asking volume %s for snapshot %s: %w", source, snapshot, err)
			}
		}
		switch {
		case !there:
			return fmt.Errorf("failed to verify data source: volume %s has no snapshot %s", source, snapshot)
		case have.Removed:
			return fmt.Errorf("failed to verify data source: snapshot %s of volume %s is marked as removed", snapshot, source)
		}
	}
	return nil
}

func (a *API) askForSnapshot(q *serve.Request, e *lh.Engine, name string) (s lh.SnapshotInfo, there bool, err error) {
	calls, err := a.snapshotCalls()
	if err != nil {
		return s, false, err
	}
	list, err := calls.List(q.Context(), e)
	s, there = list[name]
	return s, there, err
}

// cloneView is what clients see of a clone.
func cloneView(p volumeParts) resource.CloneStatus {
	st := &p.volume.Status.CloneStatus
	out := resource.CloneStatus{SourceVolume: st.SourceVolume, Snapshot: st.Snapshot, State: string(st.State),
		AttemptCount: st.AttemptCount, NextAllowedAttemptAt: st.NextAllowedAttemptAt}
	for _, e := range p.engines {
		for _, c := range e.Status.CloneStatus {
			out.Progress = max(out.Progress, c.Progress)
		}
	}
	if st.State == lh.VolumeCloneStateCopyCompletedUnhealthy || st.State == lh.VolumeCloneStateCompleted {
		out.Progress = 100
	}
	return out
}
