package instance

import (
	"fmt"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// Step brings status up to date and says what to do. want is whether the process should run; image
// is the one it is started from. When it answers Create, the status already records the intention
// (starting, order, instanceManagerName): write it before creating the process.
func Step(now time.Time, want bool, spec *v1beta2.InstanceSpec, status *v1beta2.InstanceStatus, seen Seen) Action {
	if silent(want, spec, seen) {
		return None // what is recorded stays until somebody knows better
	}
	other := compare(want, status, &seen)
	closed := seen.Manager != nil && seen.Manager.Status.ClosedPod != ""
	if !want {
		status.Started = false
		if closed && seen.Process != nil && ended(seen.Process) {
			seen.Process = nil // its name need not become free there
		}
	}
	state := observe(want, spec, status, seen)
	if young := seen.Process != nil && seen.Young && state == v1beta2.InstanceStateStarting; young && other == nil &&
		want && status.Starting {
		return None // it runs soon, and that is the next thing to tell
	}
	status.CurrentState = state
	status.Starting = status.Starting && (want || state != v1beta2.InstanceStateStopped)
	switch state {
	case v1beta2.InstanceStateRunning:
		fillRunning(want, spec, status, seen)
	default:
		status.IP, status.StorageIP, status.Port, status.CurrentImage = "", "", 0, ""
		if seen.Process != nil {
			// The run's identity is kept, so that one failed run is counted once.
			status.UUID = seen.Process.Status.UUID
		} else if state != v1beta2.InstanceStateUnknown {
			status.UUID = ""
		}
	}
	noteCreation(now, want, spec, status, seen, state, other)

	managerRuns := seen.Manager != nil && seen.Manager.Status.CurrentState == v1beta2.InstanceManagerStateRunning &&
		seen.Manager.DeletionTimestamp == nil && !seen.NodeDown
	switch {
	case other != nil && managerRuns && other.Status.State != v1beta2.InstanceStateStopping:
		return DeleteOther
	case other != nil && managerRuns:
		return None // its name is free when it has ended
	case want && state == v1beta2.InstanceStateStopped && managerRuns && !closed && onNetwork(spec, seen.Manager):
		if !status.Starting || status.InstanceManagerName != seen.Manager.Name {
			status.Order = Next(seen.UID, status.Order)
		}
		status.Starting = true
		status.InstanceManagerName = seen.Manager.Name
		return Create
	case state == v1beta2.InstanceStateStopped && (!want || seen.Manager == nil || closed && !status.Starting):
		// A recorded manager that is gone, or takes no process any more, must not keep the instance from
		// finding another.
		status.InstanceManagerName = ""
	case !want && managerRuns && seen.Process != nil && seen.Process.Status.State != v1beta2.InstanceStateStopping:
		return Delete
	}
	return None
}

// silent tells whether nobody knows what runs in an instance manager that could be asked for it.
func silent(want bool, spec *v1beta2.InstanceSpec, seen Seen) bool {
	im := seen.Manager
	return im != nil && seen.Silent && !seen.Asked && !seen.NodeDown && im.DeletionTimestamp == nil &&
		im.Status.CurrentState == v1beta2.InstanceManagerStateRunning && !elsewhere(want, spec, im)
}

// elsewhere tells whether an instance is wanted on another node than that of its instance manager.
func elsewhere(want bool, spec *v1beta2.InstanceSpec, im *v1beta2.InstanceManager) bool {
	return want && spec.NodeID != "" && im.Spec.NodeID != spec.NodeID
}

// onNetwork tells whether a process in a running instance manager would be on the storage network
// that it was ordered for. The Pod of one that is on another network is about to be made again.
func onNetwork(spec *v1beta2.InstanceSpec, im *v1beta2.InstanceManager) bool {
	return im.Status.StorageNetwork == spec.StorageNetwork
}

// compare takes a process that is not the object's out of what is seen, and returns it. An object
// that wants none has no need to tell its own orders apart.
func compare(want bool, status *v1beta2.InstanceStatus, seen *Seen) (other *v1beta2.InstanceProcess) {
	if seen.Process == nil {
		return nil
	}
	inForce := status.Started || status.Starting || !want
	switch Judge(seen.UID, status, inForce, seen.Process.Spec.Order) {
	case Newer:
		status.Order = seen.Process.Spec.Order
		status.Starting = status.Starting || want && !status.Started
	case Over:
		if !want {
			return nil
		}
		fallthrough
	case Theirs:
		other, seen.Process = seen.Process, nil
	}
	return other
}

// observe is the table of instance states: what is seen of manager and process gives the state.
func observe(want bool, spec *v1beta2.InstanceSpec, status *v1beta2.InstanceStatus, seen Seen) v1beta2.InstanceState {
	ifStarted := func(started, otherwise v1beta2.InstanceState) v1beta2.InstanceState {
		if status.Started {
			return started
		}
		return otherwise
	}
	const (
		stopped = v1beta2.InstanceStateStopped
		failed  = v1beta2.InstanceStateError
		unknown = v1beta2.InstanceStateUnknown
	)
	im := seen.Manager
	switch {
	case seen.NodeDown:
		return ifStarted(unknown, stopped)
	case im == nil: // the node is up: its processes died with its Pod
		return ifStarted(failed, stopped)
	case elsewhere(want, spec, im):
		return failed
	case im.DeletionTimestamp != nil:
		return ifStarted(failed, stopped)
	case !want && unheard(status, seen):
		return unknown
	}
	switch im.Status.CurrentState {
	case v1beta2.InstanceManagerStateUnknown:
		if state, known := unobserved(status, seen); known {
			return state
		}
	case v1beta2.InstanceManagerStateStarting:
		if status.Started {
			return failed
		}
		if status.CurrentState == "" || !want {
			return stopped
		}
		return status.CurrentState
	case v1beta2.InstanceManagerStateRunning:
	default:
		return ifStarted(failed, stopped)
	}
	if seen.Process == nil {
		return ifStarted(failed, stopped)
	}
	switch state := seen.Process.Status.State; state {
	case v1beta2.InstanceStateStarting, v1beta2.InstanceStateRunning:
		return state
	case v1beta2.InstanceStateStopping:
		return ifStarted(failed, v1beta2.InstanceStateStopping)
	case stopped:
		if want && status.Starting {
			// It ended by itself before it was ever seen running.
			return failed
		}
		if want {
			return ifStarted(failed, stopped)
		}
		// Ended, but still listed: it is stopped once the manager has dropped it.
		return v1beta2.InstanceStateStopping
	}
	return failed
}

// unobserved is the state while the instance manager cannot be observed and its node is up: what
// was known last is confirmed or refuted soon. Only a node that is down lets a process that nobody
// can stop count as stopped. One that has ended stays so, whatever becomes of its instance manager:
// that of one which is told to end is not ready before its last process has ended; known is false.
func unobserved(status *v1beta2.InstanceStatus, seen Seen) (state v1beta2.InstanceState, known bool) {
	switch p := seen.Process; {
	case p != nil && ended(p):
		return "", false
	case seen.Silent && status.CurrentState == v1beta2.InstanceStateError:
		return v1beta2.InstanceStateError, true
	case p != nil, status.Started:
		return v1beta2.InstanceStateUnknown, true
	case seen.Silent && !status.Off():
		return v1beta2.InstanceStateUnknown, true // it was there when somebody knew last
	}
	return v1beta2.InstanceStateStopped, true
}

// unheard tells whether a process that was ordered may be there, though no list shows it.
func unheard(status *v1beta2.InstanceStatus, seen Seen) bool {
	state := seen.Manager.Status.CurrentState
	return status.Starting && seen.Process == nil && !seen.Asked &&
		(state == v1beta2.InstanceManagerStateRunning || state == v1beta2.InstanceManagerStateUnknown)
}

func fillRunning(want bool, spec *v1beta2.InstanceSpec, status *v1beta2.InstanceStatus, seen Seen) {
	if want {
		status.Started, status.Starting = true, false
	}
	status.InstanceManagerName = seen.Manager.Name
	status.IP = seen.Manager.Status.IP
	status.StorageIP = StorageIP(seen.Manager)
	status.Port = seen.Process.Status.PortStart
	status.UUID = seen.Process.Status.UUID
	switch {
	case seen.Image != "":
		status.CurrentImage = seen.Image
	case status.CurrentImage == "":
		status.CurrentImage = spec.Image
	}
}

// exited is how an instance manager begins to tell that a process has ended by itself, damaged what
// a replica ends with whose directory is not what an engine left.
const (
	exited  = "exit status "
	damaged = exited + "65"
)

// noteCreation keeps the condition InstanceCreation: False with the process's error when it failed
// to start or gave its volume up, or with what it waits for.
func noteCreation(now time.Time, want bool, spec *v1beta2.InstanceSpec, status *v1beta2.InstanceStatus, seen Seen,
	state v1beta2.InstanceState, other *v1beta2.InstanceProcess) {
	c := v1beta2.Condition{Type: v1beta2.InstanceConditionInstanceCreation, Status: v1beta2.ConditionTrue}
	switch {
	case want && state == v1beta2.InstanceStateError && seen.Process != nil &&
		(!status.Started || strings.HasPrefix(seen.Process.Status.ErrorMsg, exited)):
		c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.InstanceReasonInstanceCreationFailure
		c.Message = seen.Process.Status.ErrorMsg
		if strings.HasPrefix(c.Message, damaged) {
			c.Reason = v1beta2.InstanceReasonDirectoryDamaged
		}
	case want && other != nil:
		c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.InstanceReasonInstanceCreationFailure
		c.Message = fmt.Sprintf("instance manager %s has a process of this name, UUID %s, that was made for another order (%s); "+
			"it is stopped first", seen.Manager.Name, other.Status.UUID, other.Spec.Order)
	case want && state == v1beta2.InstanceStateStopped && seen.Manager != nil && !onNetwork(spec, seen.Manager) &&
		seen.Manager.Status.CurrentState == v1beta2.InstanceManagerStateRunning:
		c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.InstanceReasonInstanceCreationFailure
		c.Message = fmt.Sprintf("instance manager %s is on storage network %q and the volume on %q; its Pod is made again "+
			"first", seen.Manager.Name, seen.Manager.Status.StorageNetwork, spec.StorageNetwork)
	case state != v1beta2.InstanceStateRunning:
		return // no news about the creation
	}
	status.Conditions, _ = v1beta2.SetCondition(status.Conditions, c, now)
}
