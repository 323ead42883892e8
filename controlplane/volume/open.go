package volume

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/volume/restore"
	"ankole.storage/controlplane/volume/runs"
)

const (
	// openWait bounds the wait for processes of replicas before an engine is started without them:
	// enough for the Pod of an instance manager to come back.
	openWait = 45 * time.Second
	// followWait is openWait where I/O waits meanwhile: enough for a process that was killed.
	followWait = 15 * time.Second
	// maxFailedRuns of an engine in a row make the volume faulted, unless I/O waits for it.
	maxFailedRuns = 3
)

// opening starts the replicas and the engine of a volume, and keeps its list of replicas right. It
// is the part of a pass that nobody else needs.
type opening struct{ waiting }

// open starts the replicas, then the engine, and from then on keeps the engine's replica list
// right. It also brings back an engine that failed: start again what can be started, then the
// engine with everything that may hold data.
func (p opening) open() loop.Change {
	e := p.engine
	state, desired := e.Status.CurrentState, e.Spec.DesireState
	off := state == v1beta2.InstanceStateStopped || state == ""
	switch {
	case desired == v1beta2.InstanceStateRunning && e.Spec.NodeID != p.v.Spec.NodeID:
		return p.stopEngine()
	case desired == v1beta2.InstanceStateRunning && state == v1beta2.InstanceStateError:
		return p.engineFailed()
	case desired != v1beta2.InstanceStateRunning && e.Status.Off():
		return p.startUp("")
	case desired != v1beta2.InstanceStateRunning:
		return nil // being stopped
	case off:
		return p.awaitProcess()
	case p.engineReports() && p.inSyncNow() == 0:
		// It is starting. Or it has lost its last replica: it ends, and the next one follows.
		return p.withoutReplicas()
	case p.engineReports():
		p.doneWaiting()
		salvaging{p.pass}.followDevice()
		if change := p.endLogRequest(); change != nil {
			return change
		}
		return p.extend()
	}
	return nil
}

// awaitProcess waits for the process of an ordered engine. On a node that is down it may run
// unseen.
func (p opening) awaitProcess() loop.Change {
	if p.ioWaits() && !p.nodeDown(p.v.Spec.NodeID) && p.ioWaitLeft("its engine is being started") <= 0 {
		return p.giveUp()
	}
	if change := p.startReturned(); change != nil {
		return change
	}
	return p.correctAddresses()
}

// startReturned starts the process of a recorded member whose node has come back since the engine
// was ordered. The order may wait for long, for a cordoned node for instance, and an engine that
// starts without a member drops it: it would have to be rebuilt, and the copies that are left may
// be few.
func (p opening) startReturned() loop.Change {
	for _, r := range p.candidates() {
		if p.isMember(r) && p.reachable(r) && r.Status.Off() && r.Spec.DesireState != v1beta2.InstanceStateRunning {
			return p.startCandidate(r)
		}
	}
	return nil
}

// withoutReplicas waits for what becomes of a running engine that has no replica in sync. It cannot
// take those back that it has lost.
func (p opening) withoutReplicas() loop.Change {
	if !p.ioWaits() || p.v.Status.Robustness == v1beta2.VolumeRobustnessFaulted {
		return nil
	}
	if left := p.ioWaitLeft("its engine has no replica left and ends"); left <= 0 {
		return p.giveUp()
	}
	_, _, change := p.readyCandidates() // for the next engine
	return change
}

func (p opening) stopEngine() loop.Change {
	return p.editEngine(func(s *v1beta2.EngineSpec) {
		s.DesireState = v1beta2.InstanceStateStopped
		s.LogRequested = s.LogRequested || engineEnded(p.engine)
	})
}

// engineEnded says whether the engine's process has ended without an order: what it printed tells
// why.
func engineEnded(e *v1beta2.Engine) bool {
	return e.Status.CurrentState == v1beta2.InstanceStateError
}

// engineFailed has the next process of the engine follow the failed one, later and later. After
// maxFailedRuns every replica is marked as failed, which makes the volume faulted: it is detached,
// and salvage tries again. Where I/O waits, only the bound of that wait does so.
func (p opening) engineFailed() loop.Change {
	waits := p.ioWaits()
	switch {
	case waits && p.ioWaitLeft("its engine has ended") <= 0:
		return p.giveUp()
	case !waits && p.s.Run.Failures >= maxFailedRuns:
		return p.failAll("the engine could not be started with it")
	}
	if wait := p.retryIn(p.s.Run); wait > 0 {
		p.wakeIn(wait)
		return nil
	}
	failed := p.engine.Status.UUID
	switch failed {
	case "": // its instance manager is gone, or does not list it
		return p.stopEngine()
	case p.engine.Spec.RestartAfter:
		return nil // ordered already
	}
	// A round over desireState stopped would cost some changes of objects more while I/O waits, and
	// the order to stop might end the device that is kept for the next process.
	return p.startUp(failed)
}

// retryIn is when a process that has failed may be started again.
func (p *pass) retryIn(r runs.Run) time.Duration {
	wait := r.RetryAt.Sub(p.now)
	if (waiting{p}).ioWaits() {
		wait = min(wait, retryMostWithIO)
	}
	return wait
}

func (p waiting) failAll(why string) loop.Change {
	for _, r := range p.live() {
		if r.Spec.NodeID == "" || r.Spec.FailedAt != "" {
			continue
		}
		text := p.because(why, r)
		if change := p.fail(r, text); change != nil {
			p.noteStart(v1beta2.ConditionFalse, "replica "+r.Name+": "+text)
			return change
		}
	}
	return nil
}

// candidates are the replicas to give to a starting engine: everything on a node that is not down
// that may hold data of the recorded member set. The engine tells the fresh from the stale; what it
// must never be given is a directory without data beside ones with data.
func (p opening) candidates() []*v1beta2.Replica {
	_, recorded := p.members()
	anyData := p.anyData()
	var out []*v1beta2.Replica
	for _, r := range p.live() {
		if !r.Spec.Active || r.Spec.NodeID == "" || r.Spec.DataDirectoryName == "" ||
			r.Spec.Image != p.engine.Spec.Image || p.nodeDown(r.Spec.NodeID) {
			continue
		}
		first := !recorded && !anyData && r.Spec.FailedAt == ""
		if p.isMember(r) || hasData(r) || first {
			out = append(out, r)
		}
	}
	return out
}

// needed candidates are waited for: recorded members and replicas that have not failed. The others
// come along if they can.
func (p opening) needed(r *v1beta2.Replica) bool { return p.isMember(r) || r.Spec.FailedAt == "" }

// readyCandidates returns the addresses of candidates that run, the names of needed ones that do
// not yet, and what there is to do first.
func (p opening) readyCandidates() (ready map[string]string, late []string, change loop.Change) {
	ready = map[string]string{}
	for _, r := range p.candidates() {
		state, desired := r.Status.CurrentState, r.Spec.DesireState
		if state == v1beta2.InstanceStateError && damaged(r) {
			continue // it is rebuilt beside the others, or a person looks
		}
		wait := p.retryIn(p.s.ReplicaRuns[r.Name])
		switch {
		case desired == v1beta2.InstanceStateRunning && state == v1beta2.InstanceStateError && wait > 0:
			p.wakeIn(wait)
		case desired == v1beta2.InstanceStateRunning && state == v1beta2.InstanceStateError:
			// Only a stopped process is started. The mark of a failure is left to the engine.
			return nil, nil, editReplica(r, func(s *v1beta2.ReplicaSpec) { s.DesireState = v1beta2.InstanceStateStopped })
		case desired != v1beta2.InstanceStateRunning && r.Status.Off():
			if p.waited() > openWait && !p.ioWaits() {
				continue // it was waited for; the engine starts without it
			}
			return nil, nil, p.startCandidate(r)
		case upgrading{p.pass}.twinRuns(r):
			// The process of an upgrade that has ended may still have the directory.
		case desired == v1beta2.InstanceStateRunning && state == v1beta2.InstanceStateRunning && addressOf(r) != "":
			ready[r.Name] = addressOf(r)
			continue
		}
		if p.needed(r) && !(p.drained(r) && (salvaging{p.pass}).enoughReachable()) {
			text := r.Name + p.unmounted(r)
			if said := startFailure(&r.Status.InstanceStatus); said != "" {
				text += " (" + said + ")"
			}
			late = append(late, text)
		}
	}
	return ready, late, nil
}

// drained says whether the node of a replica has lost its instance manager to a drain: there is
// none until the node is uncordoned, which may be days later, and nothing runs on it before. Its
// replicas come back then, with a short rebuild.
func (p opening) drained(r *v1beta2.Replica) bool {
	node := r.Spec.NodeID
	if p.reachable(r) {
		return false
	}
	return slices.ContainsFunc(p.s.Managers, func(im v1beta2.InstanceManager) bool {
		ready := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionNodeReady)
		gone := im.Status.CurrentState == v1beta2.InstanceManagerStateError ||
			im.Status.CurrentState == v1beta2.InstanceManagerStateStopped
		return im.Spec.NodeID == node && gone && ready.Status == v1beta2.ConditionFalse &&
			ready.Reason == v1beta2.InstanceManagerReasonNodeUnschedulable
	})
}

// startUp starts the processes of the candidates and then the engine, in place of the process that
// has ended, if one is named.
func (p opening) startUp(after string) loop.Change {
	if p.ioWaits() && p.ioWaitLeft("it is opened again") <= 0 {
		return p.giveUp()
	}
	ready, late, change := p.readyCandidates()
	if change != nil {
		return change
	}
	if len(late) > 0 || len(ready) == 0 {
		if p.ioWaits() {
			if p.ioWaitsForReplicas(ready) {
				return nil
			}
			return p.startEngine(ready, after)
		}
		waited := p.noteWait(p.waitsFor(late))
		if waited < openWait && !p.allDamaged() {
			p.wakeIn(openWait - waited + time.Second)
			return nil
		}
		if len(ready) == 0 {
			return p.failAll("its process could not be started")
		}
	}
	return p.startEngine(ready, after)
}

// allDamaged says whether there are copies to start from, and all are known to be damaged: waiting
// changes nothing.
func (p opening) allDamaged() bool {
	all := p.candidates()
	return len(all) > 0 && count(all, func(r *v1beta2.Replica) bool {
		return r.Status.CurrentState == v1beta2.InstanceStateError && damaged(r)
	}) == len(all)
}

// startEngine orders an engine with these replicas, in place of the process that has ended, if one
// is named.
func (p opening) startEngine(replicas map[string]string, after string) loop.Change {
	return p.editEngine(func(s *v1beta2.EngineSpec) {
		p.order(&s.InstanceSpec)
		s.LogRequested = after != ""
		s.NodeID, s.ReplicaAddressMap, s.RestartAfter = p.v.Spec.NodeID, replicas, after
		s.Frontend, s.DisableFrontend = p.v.Spec.Frontend, p.v.Spec.DisableFrontend
		s.SnapshotMaxCount, s.SnapshotMaxSize = p.snapshotMaxCount(), p.snapshotMaxSize()
		s.RebuildConcurrentSyncLimit = p.rebuildConcurrency()
		s.ReplicaRebuildingBandwidthLimit = p.v.Spec.ReplicaRebuildingBandwidthLimit
		s.UnmapMarkSnapChainRemovedEnabled = p.trimMarksRemoved()
	})
}

// startCandidate starts a candidate's process. A copy whose rebuild the engine's end interrupted is
// marked as failed first: the engine alone can say that it was finished after all.
func (p opening) startCandidate(r *v1beta2.Replica) loop.Change {
	interrupted := r.Spec.HealthyAt == "" && r.Spec.FailedAt == "" && p.anyData()
	return editReplica(r, func(s *v1beta2.ReplicaSpec) {
		p.order(&s.InstanceSpec)
		if interrupted {
			s.FailedAt, s.LastFailedAt = p.stamp(), p.stamp()
		}
	})
}

// correctAddresses keeps the list right until the engine's process is created: a replica may have
// died in between. The process may be there and not be seen yet. To stop it would take its block
// device down, so while I/O waits it is left to start without a missing replica, or to fail.
func (p opening) correctAddresses() loop.Change {
	ready := map[string]string{}
	for _, r := range p.candidates() {
		if r.Spec.DesireState == v1beta2.InstanceStateRunning &&
			r.Status.CurrentState == v1beta2.InstanceStateRunning && addressOf(r) != "" {
			ready[r.Name] = addressOf(r)
		}
	}
	if maps.Equal(ready, p.engine.Spec.ReplicaAddressMap) {
		return nil
	}
	if len(ready) < len(p.engine.Spec.ReplicaAddressMap) {
		if p.ioWaits() {
			return nil
		}
		return p.stopEngine() // back to startUp, which waits for what is missing
	}
	return p.editEngine(func(s *v1beta2.EngineSpec) { s.ReplicaAddressMap = ready })
}

// addressOf is where the engine reaches a replica: the storage network's address and the first
// port.
func addressOf(r *v1beta2.Replica) string {
	if r.Status.StorageIP == "" || r.Status.Port == 0 {
		return ""
	}
	return net.JoinHostPort(r.Status.StorageIP, strconv.Itoa(r.Status.Port))
}

// endLogRequest takes the request for a failed engine's log back once it was answered, so that the
// next failure is a request of its own.
func (p opening) endLogRequest() loop.Change {
	if !p.engine.Spec.LogRequested || !p.engine.Status.LogFetched {
		return nil
	}
	return p.editEngine(func(s *v1beta2.EngineSpec) { s.LogRequested = false })
}

// extend keeps a running engine's replica list: failed and deleted ones out, then new ones started
// and in.
func (p opening) extend() loop.Change {
	if change := p.dropAddresses(); change != nil {
		return change
	}
	if restore.Filling(p.v) {
		return nil // an engine that is being filled takes no replica
	}
	if change := p.startNew(); change != nil {
		return change
	}
	return p.addAddress()
}

func (p opening) dropAddresses() loop.Change {
	keep := map[string]string{}
	for _, r := range p.live() {
		address, ok := p.engine.Spec.ReplicaAddressMap[r.Name]
		failed := r.Spec.FailedAt != "" && p.mode(r) != v1beta2.ReplicaModeRW && p.mode(r) != v1beta2.ReplicaModeWO
		if ok && !failed {
			keep[r.Name] = address
		}
	}
	if len(keep) == len(p.engine.Spec.ReplicaAddressMap) || len(keep) == 0 {
		// An engine without any replica is of no use; the volume is faulted then and will be
		// closed.
		return nil
	}
	return p.editEngine(func(s *v1beta2.EngineSpec) { s.ReplicaAddressMap = keep })
}

// startNew starts one replica that is to be rebuilt, on a node that has a slot for it.
func (p opening) startNew() loop.Change {
	p.slotsAsked, p.slots = true, map[string]bool{}
	if p.rebuilding() {
		return nil
	}
	var change loop.Change
	for _, r := range p.live() {
		fit := r.Spec.Active && r.Spec.NodeID != "" && r.Spec.FailedAt == "" && r.Spec.Image == p.engine.Spec.Image &&
			r.Spec.DesireState != v1beta2.InstanceStateRunning && !p.nodeDown(r.Spec.NodeID) && r.Status.Off()
		if !fit {
			continue
		}
		if free := p.slot(r); change == nil && free {
			change = p.startRebuild(r)
		}
	}
	return change
}

// slot asks for a slot for a rebuild on a replica's node, and notes that the volume wants one.
func (p opening) slot(r *v1beta2.Replica) (free bool) {
	p.slots[r.Spec.NodeID] = p.s.Slots[r.Spec.NodeID]
	return p.slots[r.Spec.NodeID]
}

// startRebuild has the process of a replica run for a rebuild, and marks it as one.
func (p opening) startRebuild(r *v1beta2.Replica) loop.Change {
	c := r.DeepCopy()
	p.order(&c.Spec.InstanceSpec)
	if !rebuildMarked(r) {
		c.Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
	}
	return reserving(c)
}

// rebuildMarked tells whether a replica has the mark by which the allocator knows a rebuild. Only
// the first replicas of a volume begin without it: those that find a place, or whose process comes
// up, after the engine has started are rebuilt too.
func rebuildMarked(r *v1beta2.Replica) bool {
	return r.Spec.RebuildRetryCount != 0 || r.Spec.LastHealthyAt != ""
}

// reserving returns the change of a replica that takes a slot for a rebuild or room on a disk.
func reserving(r *v1beta2.Replica) loop.Change {
	return loop.Reserving{Change: loop.Update{Object: r}}
}

// rebuilding says whether a replica of this volume is on its way into the engine: one at a time.
func (p *pass) rebuilding() bool {
	return slices.ContainsFunc(p.live(), func(r *v1beta2.Replica) bool {
		_, wanted := p.engine.Spec.ReplicaAddressMap[r.Name]
		mode := p.mode(r)
		running := r.Spec.DesireState == v1beta2.InstanceStateRunning && r.Spec.FailedAt == "" && r.Spec.Active
		return mode == v1beta2.ReplicaModeWO || (wanted && mode == "") || (running && mode == "")
	})
}

// addAddress gives the engine a replica whose process runs. The address must not be that of a
// replica the engine has not dropped yet, or the new one would be taken for the old. One that was
// taken off the list and is needed again, before the engine has removed it, is put back.
func (p opening) addAddress() loop.Change {
	for _, r := range p.live() {
		address := addressOf(r)
		if _, ok := p.engine.Spec.ReplicaAddressMap[r.Name]; ok || address == "" || !r.Spec.Active || r.Spec.FailedAt != "" ||
			r.Status.CurrentState != v1beta2.InstanceStateRunning || r.Spec.DesireState != v1beta2.InstanceStateRunning {
			continue
		}
		if p.addressTaken(r, address) {
			continue
		}
		if !rebuildMarked(r) && r.Spec.HealthyAt == "" {
			if p.slot(r) {
				return p.startRebuild(r)
			}
			continue
		}
		return p.editEngine(func(s *v1beta2.EngineSpec) {
			s.ReplicaAddressMap = maps.Clone(s.ReplicaAddressMap)
			if s.ReplicaAddressMap == nil {
				s.ReplicaAddressMap = map[string]string{}
			}
			s.ReplicaAddressMap[r.Name] = address
		})
	}
	return nil
}

// addressTaken says whether the engine may take a replica at an address for another one, or for an
// earlier process of the same one.
func (p opening) addressTaken(r *v1beta2.Replica, address string) bool {
	if p.mode(r) == v1beta2.ReplicaModeRW && p.engine.Status.CurrentReplicaAddressMap[r.Name] == address {
		return false
	}
	for _, have := range p.engine.Status.CurrentReplicaAddressMap {
		if have == address {
			return true
		}
	}
	for _, have := range p.engine.Spec.ReplicaAddressMap {
		if have == address {
			return true
		}
	}
	_, unknown := p.engine.Status.ReplicaModeMap[v1beta2.UnknownReplicaPrefix+address]
	return unknown
}
