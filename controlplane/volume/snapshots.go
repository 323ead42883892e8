package volume

import (
	"fmt"
	"math"
	"strconv"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// deleteSnapshots removes the objects of a deleted volume's snapshots; wait while there are some.
// Their data goes with the replicas.
func (p *pass) deleteSnapshots() (change loop.Change, wait bool) {
	for i := range p.s.Snapshots {
		if s := &p.s.Snapshots[i]; s.DeletionTimestamp == nil {
			return loop.Delete{Object: s}, true
		}
	}
	return nil, len(p.s.Snapshots) > 0
}

// limits gives the objects of engine and replicas the limits of snapshots and of rebuilds that are
// wanted: the engine controller has a running engine take them over, which tells its replicas;
// processes that start later begin with those of snapshots.
func (p *pass) limits() loop.Change {
	steps, bandwidth := p.rebuildConcurrency(), p.v.Spec.ReplicaRebuildingBandwidthLimit
	if e := p.engine.Spec; e.RebuildConcurrentSyncLimit != steps || e.ReplicaRebuildingBandwidthLimit != bandwidth {
		return p.editEngine(func(s *v1beta2.EngineSpec) {
			s.RebuildConcurrentSyncLimit, s.ReplicaRebuildingBandwidthLimit = steps, bandwidth
		})
	}
	count, size := p.snapshotMaxCount(), p.snapshotMaxSize()
	if p.engine.Spec.SnapshotMaxCount != count || p.engine.Spec.SnapshotMaxSize != size {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.SnapshotMaxCount, s.SnapshotMaxSize = count, size })
	}
	for _, r := range p.live() {
		if r.Spec.SnapshotMaxCount != count || r.Spec.SnapshotMaxSize != size {
			return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.SnapshotMaxCount, s.SnapshotMaxSize = count, size })
		}
	}
	return nil
}

// snapshotMaxSize is what snapshots may occupy in bytes; 0 sets no limit. The field has 0 where
// nobody has chosen anything, as clients expect; the default of the time when the volume was
// created is beside it.
func (p *pass) snapshotMaxSize() int64 {
	v := p.v
	if v.Spec.SnapshotMaxSize != 0 {
		return v.Spec.SnapshotMaxSize
	}
	factor, err := strconv.ParseInt(v.Annotations[naming.AnnotationSnapshotSpace], 10, 32)
	if err != nil || factor <= 0 || v.Spec.Size <= 0 {
		return 0
	}
	if v.Spec.Size > math.MaxInt64/factor {
		return math.MaxInt64
	}
	return v.Spec.Size * factor
}

// noteFilesLost tells that files were removed under the volume's only replica, as its engine says.
func (p *pass) noteFilesLost() {
	have := v1beta2.FindCondition(p.v.Status.Conditions, v1beta2.ConditionReplicaFilesLost)
	c := v1beta2.Condition{Type: have.Type, Status: v1beta2.ConditionFalse}
	if p.engine != nil {
		told := v1beta2.FindCondition(p.engine.Status.Conditions, c.Type)
		if told.Status == v1beta2.ConditionTrue {
			c.Status, c.Message = told.Status, told.Message
		}
	}
	if c.Status == v1beta2.ConditionFalse && have.Status != v1beta2.ConditionTrue {
		return
	}
	p.setCondition(c)
	if c.Status == v1beta2.ConditionTrue && have.Status != v1beta2.ConditionTrue {
		p.events = append(p.events, loop.Event{Warning: true, Reason: c.Type, Message: c.Message})
	}
}

// noteSnapshots tells when a volume has so many snapshots, or so large ones, that it is time to
// delete some.
func (p *pass) noteSnapshots() {
	if p.engine == nil || p.engine.Status.Snapshots == nil {
		c := v1beta2.FindCondition(p.v.Status.Conditions, v1beta2.VolumeConditionTooManySnapshots)
		if c.Status == v1beta2.ConditionUnknown { // it is there from the start
			c.Status = v1beta2.ConditionFalse
			p.setCondition(c)
		}
		return
	}
	count, bytes := 0, int64(0)
	for name, s := range p.engine.Status.Snapshots {
		if name == v1beta2.VolumeHeadName {
			continue
		}
		n, _ := strconv.ParseInt(s.Size, 10, 64) // written as a number by the engine controller
		count, bytes = count+1, bytes+n
	}
	most := min(p.s.Settings.Int(setting.SnapshotCountWarningThreshold), p.snapshotMaxCount())
	c := v1beta2.Condition{Type: v1beta2.VolumeConditionTooManySnapshots, Status: v1beta2.ConditionFalse}
	switch most64 := p.snapshotMaxSize(); {
	case count >= most:
		// Clients compare these words and figures.
		c.Message = fmt.Sprintf("Snapshots count is %d at or over the warning threshold %d", count, most)
	case most64 > 0 && bytes >= most64:
		c.Message = fmt.Sprintf("the snapshots of the volume take the %d bytes that they may, or more; delete some", most64)
	}
	have := v1beta2.FindCondition(p.v.Status.Conditions, c.Type)
	if c.Message != "" {
		c.Status, c.Reason = v1beta2.ConditionTrue, v1beta2.VolumeReasonTooManySnapshots
	}
	p.setCondition(c)
	if c.Status == v1beta2.ConditionTrue && c.Status != have.Status {
		p.events = append(p.events, loop.Event{Warning: true, Reason: c.Type, Message: c.Message})
	}
}
