package attachment

import (
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/controlplane/volume/restore"
)

// decide sets the tickets' conditions, then attaches or detaches.
//
// Crash window: between the write to the volume and the next look nothing is remembered; the
// volume's own fields say what has been ordered.
func decide(now time.Time, a *v1beta2.VolumeAttachment, s seen) loop.Decision {
	v := s.Volume
	if v == nil || a.DeletionTimestamp != nil {
		return retire(a, v)
	}
	told := tellHeld(a, s, statuses(now, a, s))
	d := follow(a, s)
	if d.Do == nil { // else the wait is about to end, or to be another one
		d.Events, d.After = append(d.Events, told...), s.LookAgain
	}
	return d
}

// follow attaches, migrates or detaches the volume as its tickets ask.
func follow(a *v1beta2.VolumeAttachment, s seen) loop.Decision {
	v := s.Volume
	if d, ok := withdraw(a, s); ok {
		return d
	}
	if d, ok := collect(a, s); ok {
		return d
	}
	if d, ok := migrate(a, s); ok {
		return d
	}
	if why, unexpected := detachReason(a, s); why != "" {
		d := loop.Decision{Do: detach(v),
			Events: []loop.Event{{On: v, Reason: naming.EventStop, Message: "Detaching volume " + v.Name + ": " + why}}}
		if unexpected {
			d.Events[0].Warning, d.Events[0].Reason = true, naming.EventDetachedUnexpectedly
		}
		return d
	}
	if t := winner(a, s); t != nil && free(v) && !undecided(a, v) {
		return loop.Decision{
			Do: attach(v, *t),
			Events: []loop.Event{{On: v, Reason: naming.EventStart,
				Message: "Attaching volume " + v.Name + " to node " + t.NodeID + " for " + string(t.Type)}},
		}
	}
	return loop.Decision{}
}

// retire removes the finalizer of a deleted attachment, once its volume is deleted or detached.
func retire(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) loop.Decision {
	if a.DeletionTimestamp == nil {
		return loop.Decision{} // its owner is gone; it is about to be collected
	}
	if v != nil && v.DeletionTimestamp == nil && v.Spec.NodeID != "" {
		return loop.Decision{Do: detach(v)}
	}
	c := a.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}

func detach(v *v1beta2.Volume) loop.Change {
	c := v.DeepCopy()
	c.Spec.NodeID, c.Spec.DisableFrontend, c.Spec.LastAttachedBy = "", false, ""
	c.Spec.MigrationNodeID = ""
	return loop.Update{Object: c}
}

func attach(v *v1beta2.Volume, t v1beta2.AttachmentTicket) loop.Change {
	c := v.DeepCopy()
	c.Spec.NodeID = t.NodeID
	c.Spec.DisableFrontend = wantsNoFrontend(t)
	c.Spec.LastAttachedBy = t.Parameters[v1beta2.AttachmentParameterLastAttachedBy]
	return loop.Update{Object: c}
}

func wantsNoFrontend(t v1beta2.AttachmentTicket) bool {
	return t.Parameters[v1beta2.AttachmentParameterDisableFrontend] == v1beta2.AttachmentParameterTrue
}

// compatible says whether a volume attached with or without its frontend serves a ticket.
func compatible(t v1beta2.AttachmentTicket, disabled bool) bool {
	return t.Parameters[v1beta2.AttachmentParameterDisableFrontend] == v1beta2.AttachmentParameterAny ||
		wantsNoFrontend(t) == disabled
}

// tickets in order: highest priority first, then smallest id. Tickets of CSI for shared volumes are
// represented by the share manager's; while the volume is filled from another one only the ticket
// for that counts.
func tickets(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) []v1beta2.AttachmentTicket {
	var out []v1beta2.AttachmentTicket
	for _, id := range slices.Sorted(maps.Keys(a.Spec.AttachmentTickets)) {
		if t := a.Spec.AttachmentTickets[id]; !shared(t, v) && !early(t, v) {
			t.ID = id
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(x, y v1beta2.AttachmentTicket) int { return y.Type.Priority() - x.Type.Priority() })
	return out
}

func shared(t v1beta2.AttachmentTicket, v *v1beta2.Volume) bool {
	return t.Type == v1beta2.AttacherTypeCSI && v.Spec.AccessMode == v1beta2.AccessModeReadWriteMany && !v.Spec.Migratable
}

// early says whether a ticket has to wait until the volume holds the content of the volume or the
// backup that it is filled from.
func early(t v1beta2.AttachmentTicket, v *v1beta2.Volume) bool {
	return clone.Copying(v) && t.Type != v1beta2.AttacherTypeVolumeClone ||
		restore.Needed(v) && t.Type != v1beta2.AttacherTypeVolumeRestore
}

// free says whether the volume can take an order to attach.
func free(v *v1beta2.Volume) bool {
	return v.DeletionTimestamp == nil && v.Spec.NodeID == "" && v.Spec.MigrationNodeID == "" &&
		v.Status.CurrentMigrationNodeID == "" &&
		v.Status.CurrentNodeID == "" && v.Status.State == v1beta2.VolumeStateDetached &&
		v.Status.Robustness != v1beta2.VolumeRobustnessFaulted
}

// winner is the best ticket whose node can take the volume.
func winner(a *v1beta2.VolumeAttachment, s seen) *v1beta2.AttachmentTicket {
	for _, t := range tickets(a, s.Volume) {
		if obstacle(t, s) == "" {
			return &t
		}
	}
	return nil
}

// obstacle says why a ticket cannot be satisfied now; empty if it can be.
func obstacle(t v1beta2.AttachmentTicket, s seen) string {
	n := s.Nodes[t.NodeID]
	switch {
	case t.NodeID == "":
		return ticketText(&t) + " names no node, so it is never satisfied; it " + endOf(&t, s.Volume)
	case n == nil:
		return "node " + t.NodeID + " is not known"
	case n.DeletionTimestamp != nil || condition.NodeDown(n):
		return "node " + t.NodeID + " is down"
	case !condition.NodeReady(n):
		c := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
		return strings.TrimSpace("node " + t.NodeID + " is not ready " + c.Reason)
	}
	return ""
}

// detachReason says why a volume with a node must leave it; unexpected if its users did not ask for
// it. A workload whose node cannot take the volume interrupts nobody: the volume would be attached
// again for whom it was interrupted, and so on.
func detachReason(a *v1beta2.VolumeAttachment, s seen) (why string, unexpected bool) {
	v := s.Volume
	node := v.Spec.NodeID
	switch {
	case node == "":
		return "", false
	case v.DeletionTimestamp != nil:
		return "it is deleted", false
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return "it is faulted", true
	}
	var here, elsewhere []v1beta2.AttachmentTicket
	for _, t := range tickets(a, v) {
		switch {
		case t.NodeID == node && compatible(t, v.Spec.DisableFrontend):
			here = append(here, t)
		case t.NodeID != node && obstacle(t, s) == "":
			elsewhere = append(elsewhere, t)
		}
	}
	if len(here) == 0 {
		return "no ticket wants it on node " + node, false
	}
	interruptible := !slices.ContainsFunc(here, func(t v1beta2.AttachmentTicket) bool { return !yields(t, v) })
	if i := slices.IndexFunc(elsewhere, workload); interruptible && i >= 0 {
		return "a workload wants it on node " + elsewhere[i].NodeID, false
	}
	return "", false
}

// yields says whether a ticket's work can be interrupted for a workload.
func yields(t v1beta2.AttachmentTicket, v *v1beta2.Volume) bool {
	switch t.Type {
	case v1beta2.AttacherTypeSnapshot, v1beta2.AttacherTypeBackup, v1beta2.AttacherTypeBackingImageData:
		return true
	case v1beta2.AttacherTypeVolumeClone:
		return v.Status.CloneStatus.State == v1beta2.VolumeCloneStateCopyCompletedUnhealthy
	}
	return false
}

func workload(t v1beta2.AttachmentTicket) bool {
	switch t.Type {
	case v1beta2.AttacherTypeCSI, v1beta2.AttacherTypeLonghornAPI, v1beta2.AttacherTypeShareManager:
		return true
	}
	return false
}

// statuses says of each ticket whether it is satisfied, and if not, why.
func statuses(now time.Time, a *v1beta2.VolumeAttachment, s seen) map[string]v1beta2.AttachmentTicketStatus {
	out := make(map[string]v1beta2.AttachmentTicketStatus, len(a.Spec.AttachmentTickets))
	for id, t := range a.Spec.AttachmentTickets {
		t.ID = id
		have := a.Status.AttachmentTicketStatuses[id]
		c := judge(t, a, s)
		conditions, _ := v1beta2.SetCondition(have.Conditions, c, now)
		out[id] = v1beta2.AttachmentTicketStatus{
			ID: id, Generation: t.Generation, Satisfied: c.Status == v1beta2.ConditionTrue, Conditions: conditions,
		}
	}
	return out
}

func judge(t v1beta2.AttachmentTicket, a *v1beta2.VolumeAttachment, s seen) v1beta2.Condition {
	v := s.Volume
	c := v1beta2.Condition{Type: v1beta2.AttachmentConditionSatisfied, Status: v1beta2.ConditionFalse}
	if shared(t, v) {
		if v.Status.ShareState == v1beta2.ShareManagerStateRunning {
			c.Status = v1beta2.ConditionTrue
		} else {
			c.Message = "the share of the volume is not available yet"
		}
		return c
	}
	if early(t, v) {
		c.Message = "volume " + v.Name + " does not hold all of " + v.Spec.DataSource + " yet, from which it is cloned"
		if restore.Needed(v) {
			c.Message = "volume " + v.Name + " does not hold all of " + v.Spec.FromBackup + " yet, from which it is restored"
		}
		return c
	}
	// The target of a migration has its device before the engine moves there, and while it does.
	target := v.Status.CurrentMigrationNodeID == t.NodeID &&
		(v.Spec.NodeID == t.NodeID || v.Spec.MigrationNodeID == t.NodeID)
	here := (target || v.Spec.NodeID == t.NodeID && v.Status.CurrentNodeID == t.NodeID) &&
		v.Status.State == v1beta2.VolumeStateAttached && t.NodeID != ""
	switch {
	case here && compatible(t, v.Spec.DisableFrontend):
		c.Status = v1beta2.ConditionTrue
	case here:
		c.Reason = v1beta2.AttachmentReasonAttachedIncompatibleParameters
		c.Message = "volume " + v.Name + " is attached to node " + t.NodeID +
			" with another frontend than the ticket asks for" + heldBy(t, a, v)
	case obstacle(t, s) != "":
		c.Message = obstacle(t, s)
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		c.Message = faultedText(v)
	case v.Spec.NodeID == t.NodeID:
		c.Reason, c.Message = underWay(t, s)
	case v.Spec.MigrationNodeID == t.NodeID && t.NodeID != "":
		c.Reason = v1beta2.AttachmentReasonUnderWay
		c.Message = "volume " + v.Name + " is about to be offered on node " + t.NodeID + ", to which it migrates"
	case v.Spec.NodeID != "":
		c.Message = "volume " + v.Name + " belongs to node " + v.Spec.NodeID + heldBy(t, a, v)
	case v.Status.State != v1beta2.VolumeStateDetached:
		c.Reason = v1beta2.AttachmentReasonUnderWay
		c.Message = "volume " + v.Name + " is not detached yet, it is " + string(v.Status.State)
	case undecided(a, v):
		c.Message = "two nodes claim volume " + v.Name + ", whose migration has failed: detach it from one of them"
	default:
		switch w := winner(a, s); {
		case w != nil && w.ID == t.ID && free(v):
			c.Reason, c.Message = underWay(t, s) // by the change that follows
		case w != nil && w.ID != t.ID:
			c.Message = ticketText(w) + " goes first, " + precedence(w, t) + "; it " + endOf(w, v)
		}
	}
	return c
}

// underWay says of a volume that is being attached to the node of a ticket what that waits for.
func underWay(t v1beta2.AttachmentTicket, s seen) (reason, message string) {
	message = "volume " + s.Volume.Name + " is being attached to node " + t.NodeID
	wait := v1beta2.FindCondition(s.Volume.Status.Conditions, waitForReplicas)
	switch {
	case wait.Status == v1beta2.ConditionTrue && wait.Reason != v1beta2.VolumeReasonReplicasOrdered:
		return "", message + ": " + wait.Message
	case !s.Runs[t.NodeID]:
		return "", message + ", where no instance manager runs; see why with: ankole instance-manager list"
	}
	return v1beta2.AttachmentReasonUnderWay, message
}

// faultedText says what a volume that no replica can serve lacks, and what to do.
func faultedText(v *v1beta2.Volume) string {
	text := "volume " + v.Name + " is faulted: no replica can serve it"
	if c := v1beta2.FindCondition(v.Status.Conditions, startOfVolume); c.Status == v1beta2.ConditionFalse {
		text += "; " + c.Message
	}
	return text + "; see which are missing with: ankole volume describe " + v.Name + "; bring their nodes and disks " +
		"back, then: ankole volume salvage " + v.Name
}

// startOfVolume is the volume's condition that says why it could not be served (package volume).
const startOfVolume = "Start"

// waitForReplicas is the volume's condition that says what attaching waits for (package volume).
const waitForReplicas = "WaitForReplicas"
