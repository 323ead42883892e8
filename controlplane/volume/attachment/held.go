package attachment

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// holder is the ticket that keeps the volume where and how it is, other than t; nil if none does.
func holder(t v1beta2.AttachmentTicket, a *v1beta2.VolumeAttachment, v *v1beta2.Volume) *v1beta2.AttachmentTicket {
	for _, o := range tickets(a, v) {
		if o.ID != t.ID && o.NodeID == v.Spec.NodeID && compatible(o, v.Spec.DisableFrontend) {
			return &o
		}
	}
	return nil
}

// heldBy names the ticket that is in a ticket's way, since when, and what ends it.
func heldBy(t v1beta2.AttachmentTicket, a *v1beta2.VolumeAttachment, v *v1beta2.Volume) string {
	h := holder(t, a, v)
	if h == nil {
		return ", and no ticket keeps it there any more"
	}
	since := ""
	c := v1beta2.FindCondition(a.Status.AttachmentTicketStatuses[h.ID].Conditions, v1beta2.AttachmentConditionSatisfied)
	if c.Status == v1beta2.ConditionTrue && c.LastTransitionTime != "" {
		since = ", since " + c.LastTransitionTime
	}
	return " by ticket " + strconv.Quote(h.ID) + " (" + string(h.Type) + ", node " + h.NodeID + since + "), which " +
		endOf(h, v)
}

// ticketText names a ticket.
func ticketText(t *v1beta2.AttachmentTicket) string {
	text := "ticket " + strconv.Quote(t.ID) + " (" + string(t.Type)
	if t.NodeID != "" {
		text += ", node " + t.NodeID
	}
	return text + ")"
}

// precedence says why a ticket comes before another one, see tickets.
func precedence(w *v1beta2.AttachmentTicket, t v1beta2.AttachmentTicket) string {
	if w.Type.Priority() > t.Type.Priority() {
		return "as its type has the higher priority"
	}
	return "as the first by name of equal priority"
}

// endOf says what ends a ticket.
func endOf(h *v1beta2.AttachmentTicket, v *v1beta2.Volume) string {
	detach := "ankole volume detach " + v.Name
	switch h.Type {
	case v1beta2.AttacherTypeLonghornAPI:
		return "ends by: " + detach
	case v1beta2.AttacherTypeCSI:
		return "ends with the Pods that use the volume there, or whatever they do by: " + detach + " --force"
	case v1beta2.AttacherTypeSnapshot:
		name := strings.TrimPrefix(h.ID, string(h.Type)+"-")
		return "ends when snapshot " + name + " is taken or removed, or by: kubectl -n " + v.Namespace +
			" delete snapshots.longhorn.io " + name
	}
	return "ends by itself when its work is done, or by: " + detach + " --force"
}

// tellHeld takes over what is said of the tickets, and returns an event for each one that has begun
// to wait for another one.
func tellHeld(a *v1beta2.VolumeAttachment, s seen, said map[string]v1beta2.AttachmentTicketStatus) []loop.Event {
	before := a.Status.AttachmentTicketStatuses
	a.Status.AttachmentTicketStatuses = said
	var events []loop.Event
	for _, id := range slices.Sorted(maps.Keys(said)) {
		now := v1beta2.FindCondition(said[id].Conditions, v1beta2.AttachmentConditionSatisfied)
		was := v1beta2.FindCondition(before[id].Conditions, v1beta2.AttachmentConditionSatisfied)
		t := a.Spec.AttachmentTickets[id]
		if h := holderIn(now.Message); h != "" && h != holderIn(was.Message) {
			events = append(events, loop.Event{On: s.Volume, Reason: naming.EventWaiting,
				Message: "Ticket " + strconv.Quote(id) + " (" + string(t.Type) + ") waits for node " + t.NodeID + ": " +
					now.Message})
		}
	}
	return events
}

// holderIn finds the ticket that heldBy has named in a message, in quotes: that of a manual
// attachment may have no id.
func holderIn(message string) string {
	_, rest, ok := strings.Cut(message, " by ticket ")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, " ")
	return id
}
