package rest

import (
	"context"
	"fmt"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
	"ankole.storage/rest/resource"
)

// checkSnapshot refuses a volume that is to be filled from a snapshot which its source does not
// have. What else is wrong with a data source admission says, or the copy.
func (s *Server) checkSnapshot(ctx context.Context, v *lh.Volume) error {
	source, snapshot, ok := naming.ParseCloneSource(v.Spec.DataSource)
	if !ok || snapshot == "" {
		return nil
	}
	var engines lh.EngineList
	if err := s.list(ctx, &engines); err != nil {
		return fmt.Errorf("listing engines: %w", err)
	}
	for _, e := range engines.Items {
		switch have, there := e.Status.Snapshots[snapshot]; {
		case e.Spec.VolumeName != source:
		case !there:
			return fmt.Errorf("failed to verify data source: volume %s has no snapshot %s", source, snapshot)
		case have.Removed:
			return fmt.Errorf("failed to verify data source: snapshot %s of volume %s is marked as removed", snapshot, source)
		}
	}
	return nil
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
