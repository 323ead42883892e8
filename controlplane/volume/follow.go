package volume

import (
	"fmt"
	"strconv"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
)

// following turns what the engine says of its replicas into what is recorded of them and of the
// volume. It is the part of a pass that follow and robustness stand for.
type following struct{ *pass }

// follow marks the replicas as the running engine reports them, one per pass. While the engine does
// not run, or has none in sync, nothing is marked: a replica whose process died together with its
// engine, or with all the others, may be as good as they are, and the next engine says so.
func (p following) follow() loop.Change {
	p.actualSize()
	if !p.engineReports() || p.inSyncNow() == 0 {
		return nil
	}
	for _, r := range p.live() {
		if !r.Spec.Active {
			continue
		}
		if change := p.followReplica(r); change != nil {
			return change
		}
	}
	return nil
}

func (p following) followReplica(r *v1beta2.Replica) loop.Change {
	mode := p.mode(r)
	_, wanted := p.engine.Spec.ReplicaAddressMap[r.Name]
	switch {
	case mode == v1beta2.ReplicaModeRW:
		return p.inSync(r)
	case mode == v1beta2.ReplicaModeWO:
		if r.Spec.FailedAt == "" && r.Spec.HealthyAt == "" {
			return nil
		}
		// The engine rebuilds it after all.
		return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.FailedAt, s.HealthyAt = "", "" })
	case mode == v1beta2.ReplicaModeERR:
		return p.fail(r, "its engine reported it in error")
	case wanted && r.Status.CurrentState != v1beta2.InstanceStateError:
		return nil // the engine is about to admit it
	case r.Spec.FailedAt != "":
		return p.fail(r, "") // only its process may have to stop
	case r.Status.CurrentState == v1beta2.InstanceStateError:
		return p.fail(r, p.because("its process ended", r))
	case r.Spec.HealthyAt != "":
		// It was not there when the engine started, and the others have gone on without it.
		return p.fail(r, "its engine runs without it")
	case r.Spec.NodeID != "" && p.nodeDown(r.Spec.NodeID):
		return p.fail(r, "its node "+r.Spec.NodeID+" is down")
	case r.Spec.NodeID != "" && r.Status.CurrentState == v1beta2.InstanceStateStopped && !p.manned(r):
		return p.fail(r, "its node "+r.Spec.NodeID+" has no instance manager that could run it")
	case r.Status.CurrentState == v1beta2.InstanceStateStopping && r.Spec.DesireState == v1beta2.InstanceStateRunning:
		return p.fail(r, "its process did not come up")
	}
	return p.followAwaited(r)
}

// comeUpWait bounds the wait for the process of a replica beside a running engine, until it has
// come up or has ended: longer than an instance manager takes to give it up and to kill it.
const comeUpWait = 3 * time.Minute

// followAwaited ends the wait for a process of which nothing is heard for too long.
func (p following) followAwaited(r *v1beta2.Replica) loop.Change {
	since := p.s.ReplicaRuns[r.Name].Awaited
	if since.IsZero() {
		return nil
	}
	if left := since.Add(comeUpWait).Sub(p.now); left > 0 {
		p.wakeIn(left)
		return nil
	}
	return p.fail(r, "its process has not come up in "+comeUpWait.String())
}

// manned says whether the process of a replica could be ordered: its instance manager runs, or may,
// since it cannot be observed at the moment.
func (p following) manned(r *v1beta2.Replica) bool {
	im := p.managerFor(r)
	return im != nil && (im.Status.CurrentState == v1beta2.InstanceManagerStateRunning ||
		im.Status.CurrentState == v1beta2.InstanceManagerStateUnknown)
}

// managerFor is the instance manager that has the process of a replica, or that it is ordered of;
// nil if that takes none, or is on another network than the process is for.
func (p *pass) managerFor(r *v1beta2.Replica) *v1beta2.InstanceManager {
	image := p.s.Settings.String(setting.DefaultInstanceManagerImage)
	im := instance.Choose(p.s.Managers, r.Status.InstanceManagerName, r.Spec.NodeID, image)
	if im == nil {
		im = instance.Choose(p.s.Managers, "", r.Spec.NodeID, image)
	}
	network := p.s.Network
	if r.Spec.DesireState == v1beta2.InstanceStateRunning {
		network = r.Spec.StorageNetwork
	}
	if im == nil || !takesProcesses(im, network) {
		return nil
	}
	return im
}

// takesProcesses says whether an instance manager that runs takes processes for a network.
func takesProcesses(im *v1beta2.InstanceManager, network string) bool {
	return im.DeletionTimestamp == nil && im.Status.ClosedPod == "" && im.Status.StorageNetwork == network
}

// inSync marks a replica that the engine counts as up to date.
func (p following) inSync(r *v1beta2.Replica) loop.Change {
	since := p.engine.Status.ReplicaTransitionTimeMap[r.Name]
	if since == "" {
		since = p.stamp()
	}
	newer := later(since, r.Spec.LastHealthyAt)
	if r.Spec.FailedAt == "" && r.Spec.HealthyAt != "" && r.Spec.RebuildRetryCount == 0 && !newer {
		return nil
	}
	return editReplica(r, func(s *v1beta2.ReplicaSpec) {
		s.FailedAt, s.RebuildRetryCount = "", 0
		if s.HealthyAt == "" {
			s.HealthyAt = p.stamp()
		}
		if newer {
			s.LastHealthyAt = since
		}
	})
}

// fail marks a replica as failed and has its process stopped. A rebuild that did not finish counts
// as a failed attempt.
func (p *pass) fail(r *v1beta2.Replica, why string) loop.Change {
	if r.Spec.FailedAt != "" && r.Spec.DesireState == v1beta2.InstanceStateStopped {
		return nil
	}
	if why != "" && r.Spec.FailedAt == "" {
		p.changeEvents = append(p.changeEvents, loop.Event{
			Warning: true, Reason: naming.EventFaulted, Message: fmt.Sprintf("Replica %s is marked as failed: %s", r.Name, why),
		})
	}
	rebuildFailed := r.Spec.FailedAt == "" && r.Spec.HealthyAt == "" && p.anyData()
	return editReplica(r, func(s *v1beta2.ReplicaSpec) {
		s.DesireState = v1beta2.InstanceStateStopped
		if s.FailedAt == "" {
			s.FailedAt, s.LastFailedAt = p.stamp(), p.stamp()
			s.LogRequested = s.NodeID != "" // what its process printed tells more
		}
		if rebuildFailed {
			s.RebuildRetryCount = min(s.RebuildRetryCount+1, v1beta2.MaxRebuildRetryCount)
		}
	})
}

// later compares two RFC 3339 times; an empty or unreadable one is earliest.
func later(a, b string) bool {
	ta, errA := time.Parse(time.RFC3339, a)
	tb, errB := time.Parse(time.RFC3339, b)
	return errA == nil && (errB != nil || ta.After(tb))
}

// actualSize sums what the engine's layers occupy.
func (p following) actualSize() {
	if !p.engineReports() || len(p.engine.Status.Snapshots) == 0 {
		return
	}
	var sum int64
	for _, s := range p.engine.Status.Snapshots {
		n, err := strconv.ParseInt(s.Size, 10, 64)
		if err == nil && n > 0 {
			sum += n
		}
	}
	p.v.Status.ActualSize = sum
}

// robustness derives the volume's health from what the engine reports, or from its silence.
func (p following) robustness() loop.Change {
	v := p.v
	before := v.Status.Robustness
	now := p.judgeRobustness()
	v.Status.Robustness = now
	switch {
	case now != v1beta2.VolumeRobustnessDegraded:
		v.Status.LastDegradedAt = ""
	case v.Status.LastDegradedAt == "":
		v.Status.LastDegradedAt = p.stamp()
	}
	if before == now {
		return nil
	}
	switch now {
	case v1beta2.VolumeRobustnessHealthy:
		p.tell(false, naming.EventHealthy, "volume %s is healthy", v.Name)
	case v1beta2.VolumeRobustnessDegraded:
		p.tell(false, naming.EventDegraded, "volume %s is degraded: fewer than %d replicas are in sync", v.Name,
			v.Spec.NumberOfReplicas)
	case v1beta2.VolumeRobustnessFaulted:
		why := ""
		if c := v1beta2.FindCondition(v.Status.Conditions, ConditionStart); c.Status == v1beta2.ConditionFalse {
			why = "; " + c.Message
		}
		p.tell(true, naming.EventFaulted, "volume %s is faulted: no replica can serve it%s", v.Name, why)
	case v1beta2.VolumeRobustnessUnknown:
		if v.Status.State == v1beta2.VolumeStateAttached && v.Spec.NodeID != "" && before != "" &&
			!migrating(p).switching() {
			p.tell(true, naming.EventUnknown, "the state of the replicas of volume %s is unknown", v.Name)
		}
	}
	return nil
}

func (p following) judgeRobustness() v1beta2.VolumeRobustness {
	v := p.v
	engaged := v.Spec.NodeID != "" && (v.Status.State == v1beta2.VolumeStateAttached ||
		v.Status.State == v1beta2.VolumeStateAttaching)
	if engaged && p.engineReports() {
		rw := p.inSyncNow()
		switch {
		case rw >= v.Spec.NumberOfReplicas:
			return v1beta2.VolumeRobustnessHealthy
		case rw > 0:
			return v1beta2.VolumeRobustnessDegraded
		}
	}
	if v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return v1beta2.VolumeRobustnessFaulted // until salvage finds a way
	}
	replicas := p.live()
	// One that never had a place is no copy, whatever its marks say.
	failed := count(replicas, func(r *v1beta2.Replica) bool { return r.Spec.FailedAt != "" && r.Spec.NodeID != "" })
	placed := count(replicas, func(r *v1beta2.Replica) bool { return r.Spec.NodeID != "" })
	if engaged && failed > 0 && failed >= placed && !p.rebuildRunning() {
		return v1beta2.VolumeRobustnessFaulted
	}
	return v1beta2.VolumeRobustnessUnknown
}

// rebuildRunning says whether the engine rebuilds some replica, which it can do only from one in
// sync.
func (p following) rebuildRunning() bool {
	return p.engineReports() && count(p.live(), func(r *v1beta2.Replica) bool {
		return p.mode(r) == v1beta2.ReplicaModeWO
	}) > 0
}

func (p *pass) tell(warning bool, reason, format string, args ...any) {
	p.events = append(p.events, loop.Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}
