package volume

import (
	"slices"
	"strings"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/setting"
)

// This file is about the waits for replicas: the condition WaitForReplicas is true while an
// attachment, or I/O of an attached volume, waits for them. How long it has been true is measured
// by the clock of this process (package firstseen).

// retryMostWithIO bounds the pause before a process is started again while I/O waits.
const retryMostWithIO = 5 * time.Second

// waiting bounds for how long the I/O of a volume in use waits for an engine.
type waiting struct{ *pass }

// ioWaits says whether users of the volume may have its device open, so that their I/O waits while
// no engine serves. Nothing but the bound of that wait makes such a volume faulted.
func (p waiting) ioWaits() bool { return p.v.Status.State == v1beta2.VolumeStateAttached }

// ioBound is how long I/O waits. The engine has told the keeper of the device the same.
func (p waiting) ioBound() time.Duration {
	return time.Duration(p.s.Settings.Int(setting.BlockDeviceWait)) * time.Second
}

// ioWaitLeft notes what I/O waits for, and returns what is left of the bound.
func (p waiting) ioWaitLeft(why string) time.Duration {
	until := p.now.Add(p.ioBound() - p.waited())
	p.noteWait(ReasonIOWaits, "I/O waits until "+until.UTC().Format(time.RFC3339)+" at most: "+why)
	left := until.Sub(p.now)
	if left > 0 {
		p.wakeIn(left)
	}
	return left
}

// ioWaitsForReplicas says whether the next engine of a volume whose I/O waits is to wait for more
// replicas than are ready.
func (p opening) ioWaitsForReplicas(ready map[string]string) bool {
	p.ioWaitLeft(p.missing(ready))
	waited := p.waited()
	if len(ready) > 0 && waited < followWait {
		p.wakeIn(followWait - waited)
	}
	return len(ready) == 0 || waited < followWait
}

// giveUp ends the wait of I/O: the volume becomes faulted and is detached, which ends its device.
func (p waiting) giveUp() loop.Change {
	return p.failAll("no engine could serve the volume for " + p.ioBound().String())
}

// missing names the replicas that an engine should have and that are not ready, each with the
// reason.
func (p opening) missing(ready map[string]string) string {
	var out []string
	for _, r := range p.live() {
		if _, ok := ready[r.Name]; ok || !r.Spec.Active || !p.needed(r) {
			continue
		}
		why := "its process is " + string(r.Status.CurrentState)
		switch {
		case r.Spec.NodeID == "":
			why = "it has no place"
		case p.nodeDown(r.Spec.NodeID):
			why = "node " + r.Spec.NodeID + " is down"
		case !p.reachable(r):
			why = "node " + r.Spec.NodeID + " has no instance manager that runs"
		case startFailure(&r.Status.InstanceStatus) != "":
			why = startFailure(&r.Status.InstanceStatus)
		}
		why += p.unmounted(r)
		out = append(out, r.Name+" ("+why+")")
	}
	if len(out) == 0 {
		return "no replica of the volume may hold its data"
	}
	slices.Sort(out)
	return "it lacks replicas " + strings.Join(out, ", ")
}

// unmounted says that the disk of a replica is known to be away, in parentheses; empty if it is
// not.
func (p opening) unmounted(r *v1beta2.Replica) string {
	n := p.nodes.named(r.Spec.NodeID)
	if n == nil {
		return ""
	}
	d, ok := n.Status.DiskStatus[condition.DiskOf(n, r)]
	if !ok || !condition.DiskAway(d) {
		return ""
	}
	return " (node " + n.Name + ": " + v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady).Message + ")"
}

// noteWait keeps the condition and returns how long it has been true.
func (p waiting) noteWait(reason, message string) time.Duration {
	waited := p.waited()
	p.setCondition(v1beta2.Condition{
		Type: ConditionWaitForReplicas, Status: v1beta2.ConditionTrue, Reason: reason, Message: message,
	})
	return waited
}

// tellAfter is how long attaching waits for processes before those that are missing are named, if
// nothing is known against them: usually all are there by then, and each one that comes up would
// cost a write of the volume and one of its attachment.
const tellAfter = 5 * time.Second

const orderedText = "the processes of the replicas are being started"

// waitsFor says which replicas attaching waits for: each is a name, and what is known to be in its
// way after a space.
func (p opening) waitsFor(late []string) (reason, message string) {
	told := slices.ContainsFunc(late, func(text string) bool { return strings.Contains(text, " ") })
	switch waited := p.waited(); {
	case len(late) == 0:
		message = "no replica of the volume is on a node that is up"
	case waited < tellAfter && !told:
		p.wakeIn(tellAfter - waited)
		return v1beta2.VolumeReasonReplicasOrdered, orderedText
	default:
		message = "waiting for the processes of replicas " + strings.Join(late, ", ")
	}
	return ReasonReplicasStarting, message
}

// waited is how long this process has seen that replicas are waited for.
func (p waiting) waited() time.Duration {
	if p.s.WaitsSince.IsZero() {
		return 0
	}
	return p.now.Sub(p.s.WaitsSince)
}

func (p waiting) doneWaiting() {
	if v1beta2.IsConditionTrue(p.v.Status.Conditions, ConditionWaitForReplicas) {
		p.setCondition(v1beta2.Condition{Type: ConditionWaitForReplicas, Status: v1beta2.ConditionFalse})
	}
}

// ConditionWaitForReplicas of a Volume is True while attaching waits for processes of replicas, or
// I/O for replicas and an engine; its message says for which, and until when. It is our addition.
const (
	ConditionWaitForReplicas = "WaitForReplicas"
	ReasonReplicasStarting   = "ReplicasStarting"
	ReasonIOWaits            = "IOWaits"
)
