package orphan

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
)

// presence is what is known of the orphan's process.
type presence int

const (
	// away: nobody can say whether it is there.
	away presence = iota
	there
	gone
)

// presenceOf is gone only by the word of whoever would know: a list that lacks the process, or the
// end of the Pod that held it.
func presenceOf(s seen) presence {
	switch {
	case s.Manager == nil:
		return gone // with its Pod, which follows its owner
	case s.NodeDown || s.Manager.Status.CurrentState == v1beta2.InstanceManagerStateUnknown,
		s.Silent && s.Manager.Status.CurrentState == v1beta2.InstanceManagerStateRunning:
		return away
	case s.Process != nil:
		return there
	}
	return gone
}

// decide is the decision table of docs/design/controlplane.md.
func decide(now time.Time, o *v1beta2.Orphan, s seen) loop.Decision {
	if !ofProcess(o) {
		return decideAway(now, o, s)
	}
	is := presenceOf(s)
	observe(now, o, s, is)
	if o.DeletionTimestamp != nil {
		return decideDeletion(o, s, is)
	}
	if is == gone || s.Owned {
		return loop.Decision{Do: loop.Delete{Object: o}}
	}
	switch {
	case is == away && s.Silent:
		return loop.Decision{After: instance.AskAgain} // nobody wakes us when something is heard
	case is == away || !s.Auto:
		return loop.Decision{}
	}
	if wait := firstseen.Left(now, o.CreationTimestamp.Time, s.Since, s.Grace); wait > 0 {
		return loop.Decision{After: wait}
	}
	return loop.Decision{Do: loop.Delete{Object: o}}
}

func observe(now time.Time, o *v1beta2.Orphan, s seen, is presence) {
	o.Status.OwnerID = o.Spec.NodeID
	if s.NodeDown {
		o.Status.OwnerID = s.Owner
	}
	c := v1beta2.Condition{Type: v1beta2.OrphanConditionInstanceExist, Status: v1beta2.ConditionFalse}
	switch is {
	case there:
		c.Status, c.Reason = v1beta2.ConditionTrue, string(s.Process.Status.State)
	case away:
		c.Status, c.Reason = v1beta2.ConditionUnknown, string(v1beta2.InstanceStateUnknown)
		c.Message = "the instance manager on node " + o.Spec.NodeID + " does not answer"
	}
	o.Status.Conditions, _ = v1beta2.SetCondition(o.Status.Conditions, c, now)
}

// decideDeletion ends the process and lets the object go when it has ended.
func decideDeletion(o *v1beta2.Orphan, s seen, is presence) loop.Decision {
	name := o.Spec.Parameters[v1beta2.OrphanParameterInstanceName]
	switch {
	case s.Owned: // not an orphan any more
	case is == away && s.Silent:
		return loop.Decision{After: instance.AskAgain}
	case is == away:
		return loop.Decision{}
	case is == there && s.Process.Status.State == v1beta2.InstanceStateStopping:
		return loop.Decision{} // the instance manager kills it after a minute and tells of its end
	case is == there:
		return loop.Decision{Do: loop.Call{What: "stop orphaned process " + name, Order: endProcess{}},
			FailureReason: naming.EventFailedDeleting}
	}
	d := removeFinalizer(o)
	if d.Do != nil && !s.Owned {
		d.Events = []loop.Event{{Reason: naming.EventOrphanCleanupCompleted, Message: "Process " + name + " has ended"}}
	}
	return d
}
