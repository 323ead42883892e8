package volume

import (
	"net"
	"strconv"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// This file is live migration: the process that stands in for the engine on the target's node, and
// the engine's move there. docs/design/migration.md has states, invariants and the decision table.

// migrating moves the engine of a volume to another node while it is in use. It is the part of a
// pass that nobody else needs.
type migrating struct{ *pass }

// standIn is the engine object of the process that offers the volume on the target's node, nil if
// there is none.
func (p migrating) standIn() *v1beta2.Engine {
	for i := range p.s.Engines {
		if e := &p.s.Engines[i]; !e.Spec.Active && e.Spec.StandInFor != "" {
			return e
		}
	}
	return nil
}

// migrating says whether anything of a migration is there: then no replica is made or deleted.
func (p *pass) migrating() bool {
	return p.v.Spec.MigrationNodeID != "" || p.v.Status.CurrentMigrationNodeID != "" || migrating{p}.standIn() != nil
}

// switching says whether the migration is confirmed and the engine not at the target yet.
func (p migrating) switching() bool {
	v := p.v
	return v.Status.State == v1beta2.VolumeStateAttached && v.Spec.NodeID != "" && v.Status.CurrentNodeID != "" &&
		v.Spec.NodeID != v.Status.CurrentNodeID && v.Spec.NodeID == v.Status.CurrentMigrationNodeID &&
		v.Spec.MigrationNodeID == ""
}

// migrate makes, keeps or removes the stand-in of an attached volume.
//
// Crash windows: its name follows from the engine's, so that it is made once; all else is found in
// the objects.
func (p migrating) migrate() loop.Change {
	v, s := p.v, p.standIn()
	to := v.Spec.MigrationNodeID
	switch {
	case s == nil && to == "":
		v.Status.CurrentMigrationNodeID = ""
	case s == nil && p.mayMigrate():
		return loop.Create{Object: p.newStandIn(to)}
	case s == nil || s.DeletionTimestamp != nil:
	case to == "" || s.Spec.NodeID != to:
		return loop.Delete{Object: s}
	default:
		return p.keepStandIn(s)
	}
	return nil
}

// mayMigrate says whether a migration can begin.
func (p migrating) mayMigrate() bool {
	whole := p.v.Status.Robustness == v1beta2.VolumeRobustnessHealthy ||
		p.v.Status.Robustness == v1beta2.VolumeRobustnessDegraded
	return whole && p.servedAt() != "" && !p.upgradeUnderWay()
}

// servedAt is the address of the engine, empty unless it serves.
func (p migrating) servedAt() string {
	st := &p.engine.Status
	if !p.serving() || st.IP == "" || st.Port == 0 {
		return ""
	}
	return net.JoinHostPort(st.IP, strconv.Itoa(st.Port))
}

func (p migrating) newStandIn(node string) *v1beta2.Engine {
	e := creating(p).newEngine()
	e.Name = naming.NextEngineName(p.v.Name, p.engine.Name)
	e.Spec.Active, e.Spec.NodeID, e.Spec.Image = false, node, p.engine.Spec.Image
	e.Spec.VolumeSize = p.engine.Spec.VolumeSize
	e.Spec.StandInFor = p.servedAt()
	p.order(&e.Spec.InstanceSpec)
	return e
}

// keepStandIn has it run for the engine as it is now. Its block device outlives its process.
func (p migrating) keepStandIn(s *v1beta2.Engine) loop.Change {
	source, st := p.servedAt(), &s.Status
	runs := s.Spec.DesireState == v1beta2.InstanceStateRunning
	ended := st.UUID
	switch {
	case source == "":
	case runs && st.CurrentState == v1beta2.InstanceStateError && ended != "":
		if wait := p.s.StandInRun.RetryAt.Sub(p.now); wait > 0 {
			p.wakeIn(wait)
		} else if s.Spec.RestartAfter != ended || s.Spec.StandInFor != source {
			return p.runStandIn(s, v1beta2.InstanceStateRunning, source, ended)
		}
	case runs && (s.Spec.StandInFor != source || st.CurrentState == v1beta2.InstanceStateError):
		return p.runStandIn(s, v1beta2.InstanceStateStopped, s.Spec.StandInFor, "")
	case !runs && st.Off():
		return p.runStandIn(s, v1beta2.InstanceStateRunning, source, "")
	case runs && st.CurrentState == v1beta2.InstanceStateRunning &&
		(st.Endpoint != "" || !advancing(p).needsDevice()):
		p.v.Status.CurrentMigrationNodeID = s.Spec.NodeID
	}
	return nil
}

func (p migrating) runStandIn(s *v1beta2.Engine, state v1beta2.InstanceState, source, after string) loop.Change {
	c := s.DeepCopy()
	c.Spec.DesireState, c.Spec.StandInFor, c.Spec.RestartAfter = state, source, after
	c.Spec.StorageNetwork = p.s.Network
	return loop.Update{Object: c}
}

// switchOver moves the engine to the target. Stand-in and engine end at the same time; the device
// of the target waits for the engine that follows, that of the source ends.
//
// Crash windows: each step is found done or not done from specs and states alone.
func (p migrating) switchOver() loop.Change {
	v, e, s, wait := p.v, p.engine, p.standIn(), waiting(p)
	if s != nil && s.Spec.DesireState != v1beta2.InstanceStateStopped {
		return p.runStandIn(s, v1beta2.InstanceStateStopped, s.Spec.StandInFor, "")
	}
	if e.Spec.NodeID != v.Spec.NodeID && e.Spec.DesireState != v1beta2.InstanceStateStopped {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.DesireState, s.NodeID = v1beta2.InstanceStateStopped, "" })
	}
	if s != nil && !s.Status.Off() || e.Spec.DesireState == v1beta2.InstanceStateStopped && !e.Status.Off() {
		if wait.ioWaitLeft("it moves to node "+v.Spec.NodeID) <= 0 {
			return wait.giveUp()
		}
		return nil
	}
	if change := (opening{wait}).open(); change != nil {
		return change
	}
	if p.serving() {
		v.Status.CurrentNodeID = v.Spec.NodeID
		p.tell(false, naming.EventAttached, "volume %s has migrated to %s", v.Name, v.Spec.NodeID)
	}
	return nil
}

// failMigration removes the stand-in of a volume that is being detached.
func (p migrating) failMigration() loop.Change {
	s := p.standIn()
	if s == nil || s.DeletionTimestamp != nil {
		return nil
	}
	p.changeEvents = []loop.Event{{Warning: true, Reason: naming.EventMigrationFailed,
		Message: "The migration of volume " + p.v.Name + " to node " + s.Spec.NodeID +
			" has failed: the volume is detached"}}
	return loop.Delete{Object: s}
}
