package replica

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
)

func decide(now time.Time, rep *v1beta2.Replica, s seen) loop.Decision {
	status := &rep.Status.InstanceStatus
	rep.Status.OwnerID = rep.Spec.NodeID
	if rep.Spec.NodeID == "" {
		rep.Status.OwnerID = s.Owner
	}
	deleting := rep.DeletionTimestamp != nil
	// A deleted replica goes on serving until its engine has dropped it, so that the engine removes
	// it from the membership in order instead of losing it.
	want := rep.Spec.DesireState == v1beta2.InstanceStateRunning && (!deleting || s.InUse) && !awaitsImage(now, rep, s)
	im := instance.Choose(s.Managers, status.InstanceManagerName, rep.Spec.NodeID, s.Image)
	found := s.Answer.In(im, rep.Name)
	action := instance.Step(now, want, &rep.Spec.InstanceSpec, status, instance.Seen{
		UID: string(rep.UID), Manager: im, Process: found, Asked: s.Answer.Known,
		NodeDown: s.NodeDown && rep.Spec.NodeID != "", Silent: im != nil && s.Silent[im.Name], Young: s.Young,
	})
	if !deleting {
		noteRebuild(now, rep, s)
	}
	wantsLog := instance.WantsLog(&rep.Spec.InstanceSpec, status, im, s.Log)
	if strays := instance.Strays(s.Managers, im, rep.Name); len(strays) > 0 {
		return stop(rep, strays[0], instance.Find(strays[0], rep.Name))
	}
	if wantsLog && action != instance.Create { // its engine waits for that; the log is there later too
		return loop.Decision{
			Do:    loop.Call{What: "read the log of replica " + rep.Name + " in " + im.Name, Order: logOrder{im}},
			After: time.Millisecond,
		}
	}
	switch action {
	case instance.Create:
		// Crash window: the process may be created and the answer lost; the next step finds it, or
		// finds its name taken.
		return loop.Decision{
			Do: loop.Call{What: "start replica " + rep.Name, Order: startOrder{im}},
			Events: []loop.Event{{Reason: naming.EventStart,
				Message: "Starting the process of replica " + rep.Name + " on node " + rep.Spec.NodeID}},
			FailureReason: naming.EventFailedStarting,
		}
	case instance.Delete, instance.DeleteOther:
		return stop(rep, im, found)
	}
	if deleting && s.Holds != "" {
		return loop.Decision{After: holdRetry} // looked at live: no event tells of every change
	}
	if deleting && status.CurrentState == v1beta2.InstanceStateStopped {
		return release(now, rep, s)
	}
	if !want && status.Starting {
		return loop.Decision{After: instance.AskAgain}
	}
	if !want && status.CurrentState == v1beta2.InstanceStateStopping {
		return loop.Decision{After: stopAgainAfter}
	}
	return loop.Decision{}
}

// release ends the deletion of a stopped replica that no agent will come for: it has no data, its
// node does not answer, or the manager Pod there is gone for good. What it has on a disk stays.
func release(now time.Time, rep *v1beta2.Replica, s seen) loop.Decision {
	if rep.Spec.NodeID == "" || s.NodeDown {
		return removeFinalizer(rep)
	}
	gone, again := condition.ManagerGone(now, s.Node, s.ManagerLostSince)
	if !gone {
		return loop.Decision{After: again}
	}
	d := removeFinalizer(rep)
	if d.Do != nil {
		d.Events = []loop.Event{{Warning: true, Reason: naming.EventFailedDeleting, Message: "Left the data of replica " +
			rep.Name + " on node " + rep.Spec.NodeID + ": there is no manager Pod that could remove it"}}
	}
	return d
}

// stop orders the end of a process of the replica's name in an instance manager. An order that is
// late then ends no process that has followed it.
func stop(rep *v1beta2.Replica, im *v1beta2.InstanceManager, p *v1beta2.InstanceProcess) loop.Decision {
	return loop.Decision{
		Do: loop.Call{What: "stop replica " + rep.Name + " in " + im.Name, Order: stopOrder{im, p.Status.UUID}},
		Events: []loop.Event{{Reason: naming.EventStop,
			Message: "Stopping the process of replica " + rep.Name + " in " + im.Name}},
		FailureReason: naming.EventFailedStopping,
	}
}

func removeFinalizer(rep *v1beta2.Replica) loop.Decision {
	c := rep.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}
