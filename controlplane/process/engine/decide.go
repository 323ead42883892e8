package engine

import (
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/instance"
)

// stopAgainAfter is when an order to stop is repeated; the instance manager kills on repetition
// after 60 s.
const stopAgainAfter = time.Minute

// wanted tells whether the engine's process is to run.
func wanted(e *v1beta2.Engine) bool {
	return e.Spec.DesireState == v1beta2.InstanceStateRunning && e.DeletionTimestamp == nil
}

func decide(now time.Time, e *v1beta2.Engine, s seen) loop.Decision {
	want := wanted(e)
	e.Status.OwnerID = s.Owner
	if e.Spec.NodeID != "" {
		e.Status.OwnerID = e.Spec.NodeID
	}
	im := instance.Choose(s.Managers, e.Status.InstanceManagerName, e.Spec.NodeID, s.Image)
	found := s.Answer.In(im, e.Name)
	have := instance.Seen{UID: string(e.UID), Manager: im, Process: found, Asked: s.Answer.Known,
		Image: imageOf(found, s.Images), NodeDown: s.NodeDown, Silent: im != nil && s.Silent[im.Name], Young: s.Young}
	before := e.Status.CurrentImage
	after := ""
	if want && instance.Forget(&e.Status.InstanceStatus, &have, e.Spec.RestartAfter) {
		after = e.Spec.RestartAfter
	}
	action := instance.Step(now, want, &e.Spec.InstanceSpec, &e.Status.InstanceStatus, have)
	wantsLog := instance.WantsLog(&e.Spec.InstanceSpec, &e.Status.InstanceStatus, im, s.Log)
	events := append(followImage(e, before), follow(now, e, s)...)
	if len(events) > 0 {
		// What happened is told together with the status that shows it; what to do about it comes
		// in the next step.
		return loop.Decision{Events: events}
	}
	if strays := instance.Strays(s.Managers, im, e.Name); len(strays) > 0 {
		return stop(e, strays[0], instance.Find(strays[0], e.Name))
	}
	if action == instance.Create && s.HandOverKnown && !s.HandOver.over {
		action = instance.None // a process that is about to take over would be in the way; the end wakes us
	}
	if wantsLog && action != instance.Create { // users wait for that; the log is there later too
		return loop.Decision{Do: loop.Call{What: "read the log of engine " + e.Name + " in " + im.Name, Order: logOrder{im}},
			After: time.Millisecond}
	}
	switch action {
	case instance.Create:
		// Crash window: the process may be created and the answer lost; the next step finds it, or
		// finds its name taken.
		return loop.Decision{
			Do: loop.Call{What: "start engine " + e.Name, Order: startOrder{im, after}},
			Events: []loop.Event{{Reason: naming.EventStart, Message: "Starting engine " + e.Name + " on node " + e.Spec.NodeID +
				" with replicas " + list(e.Spec.ReplicaAddressMap)}},
			FailureReason: naming.EventFailedStarting,
		}
	case instance.Delete:
		return stop(e, im, found)
	case instance.DeleteOther:
		return stopOther(e, im, found)
	}
	if d := releaseDevice(e, s); d.Do != nil {
		return d
	}
	if !want {
		return ending(e)
	}
	running := e.Status.CurrentState == v1beta2.InstanceStateRunning
	switch {
	case running && upgrading(e):
		return upgrade(now, e, im, s)
	case running && s.State != nil && e.Spec.StandInFor == "":
		return align(e, s)
	}
	return loop.Decision{}
}

// ending waits for the end of an engine, and ends the deletion of one that has stopped.
func ending(e *v1beta2.Engine) loop.Decision {
	switch {
	case e.Status.Starting:
		return loop.Decision{After: instance.AskAgain}
	case e.Status.CurrentState == v1beta2.InstanceStateStopping:
		return loop.Decision{After: stopAgainAfter}
	case e.DeletionTimestamp == nil || e.Status.CurrentState != v1beta2.InstanceStateStopped:
		return loop.Decision{}
	}
	c := e.DeepCopy()
	if controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{Do: loop.Update{Object: c}}
	}
	return loop.Decision{}
}

// stop orders the engine's end. On the node where it is to run another process may follow it, for
// which the instance manager keeps the volume's block device if this one dies; elsewhere, and when
// the volume is detached or deleted, none does.
func stop(e *v1beta2.Engine, im *v1beta2.InstanceManager, p *v1beta2.InstanceProcess) loop.Decision {
	last := e.DeletionTimestamp != nil || e.Spec.NodeID == "" || e.Spec.NodeID != im.Spec.NodeID
	return loop.Decision{
		Do: loop.Call{What: "stop engine " + e.Name + " in " + im.Name,
			Order: stopOrder{im, p.Status.UUID, last}},
		Events:        []loop.Event{{Reason: naming.EventStop, Message: "Stopping engine " + e.Name + " in " + im.Name}},
		FailureReason: naming.EventFailedStopping,
	}
}

// stopOther ends a process of the engine's name that was made for another order. The block device
// of an earlier engine object of that name is nobody's; that of an earlier order is the engine's.
func stopOther(e *v1beta2.Engine, im *v1beta2.InstanceManager, p *v1beta2.InstanceProcess) loop.Decision {
	theirs := instance.Judge(string(e.UID), &e.Status.InstanceStatus, true, p.Spec.Order) == instance.Theirs
	return loop.Decision{
		Do: loop.Call{What: "stop the process of another order of engine " + e.Name + " in " + im.Name,
			Order: stopOrder{im, p.Status.UUID, theirs}},
		Events: []loop.Event{{Reason: naming.EventStop,
			Message: "Stopping a process of engine " + e.Name + " in " + im.Name + " that was made for another order"}},
		FailureReason: naming.EventFailedStopping,
	}
}

// align makes the engine's replicas those of replicaAddressMap, then its content that of
// requestedDataSource, then its size spec.volumeSize, then its limits, one order per step. Replicas
// that are not wanted go first: a replica that comes back at the address of its failed predecessor
// must not be mistaken for it.
func align(e *v1beta2.Engine, s seen) loop.Decision {
	wanted, replicas := map[string]string{}, wantedReplicas(e)
	for name, address := range replicas {
		wanted[address] = name
	}
	have := map[string]bool{}
	for _, r := range s.State.Replicas {
		have[r.Address] = true
		if wanted[r.Address] == "" {
			return loop.Decision{
				Do: loop.Call{What: "remove replica " + r.Address + " from engine " + e.Name, Order: removeOrder{r.Address}},
				Events: []loop.Event{{Reason: naming.EventDelete,
					Message: "Removed replica " + nameOf(e, r.Address) + " at " + r.Address + " from the engine"}},
			}
		}
	}
	for _, name := range sortedKeys(replicas) {
		address := replicas[name]
		if have[address] || s.Refused[address] != "" {
			continue
		}
		return loop.Decision{
			// Crash window: the engine may have admitted the replica already; admitting it again
			// changes nothing.
			Do:            loop.Call{What: "add replica " + name + " to engine " + e.Name, Order: addOrder{address}},
			FailureReason: naming.EventFailedRebuilding,
		}
	}
	if d := fill(e, s); d.Do != nil || d.After > 0 {
		return d
	}
	if d := restore(e, s); d.Do != nil || d.After > 0 {
		return d
	}
	if d := expand(e, s); d.Do != nil {
		return d
	}
	if d := paceRebuilds(e, s); d.Do != nil {
		return d
	}
	if d := keepSnapshots(e, s); d.Do != nil {
		return d
	}
	return cleanUp(e, s)
}

// expand has the engine grow the volume to spec.volumeSize. An engine that rebuilds a replica, or
// has not judged one yet, would refuse; its next state wakes us.
func expand(e *v1beta2.Engine, s seen) loop.Decision {
	busy := slices.ContainsFunc(s.State.Replicas, func(r engineclient.Replica) bool {
		return r.Mode == engineclient.ModeWO || r.Mode == engineclient.ModePending
	})
	if busy || s.State.Expanding || s.State.SizeBytes >= e.Spec.VolumeSize {
		return loop.Decision{}
	}
	return loop.Decision{
		// Crash window: the answer may be lost; the size that the engine reports tells, and expanding
		// again changes nothing.
		Do: loop.Call{What: fmt.Sprintf("expand engine %s from %d to %d bytes", e.Name, s.State.SizeBytes, e.Spec.VolumeSize),
			Order: orderExpand},
		FailureReason: naming.EventFailedExpansion,
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// list names replicas for people.
func list(m map[string]string) string {
	out := ""
	for i, k := range sortedKeys(m) {
		if i > 0 {
			out += ", "
		}
		out += k
	}
	return out
}
