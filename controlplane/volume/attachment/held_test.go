package attachment

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestWaitingTicketNamesTheHolder: who waits is told which ticket is in the way, since when, and
// what ends it, once by an event.
func TestWaitingTicketNamesTheHolder(t *testing.T) {
	for _, tt := range []struct {
		holder v1beta2.AttacherType
		id     string
		want   string
	}{
		{v1beta2.AttacherTypeCSI, "csi-1", "ends with the Pods that use the volume there, or whatever they do by: " +
			"ankole volume detach v --force"},
		{v1beta2.AttacherTypeLonghornAPI, "", "ends by: ankole volume detach v"},
		{v1beta2.AttacherTypeSnapshot, "snapshot-controller-s1", "delete snapshots.longhorn.io s1"},
		{v1beta2.AttacherTypeVolumeRebuilding, "volume-rebuilding-controller-v", "ends by itself when its work is done"},
	} {
		a, s := fixture()
		attachedTo(s.Volume, "n1")
		ticket(a, tt.id, "n1", tt.holder)
		decide(now, a, s)
		ticket(a, "waits", "n2", v1beta2.AttacherTypeBackup)
		later := now.Add(time.Hour)
		d := decide(later, a, s)
		c := v1beta2.FindCondition(a.Status.AttachmentTicketStatuses["waits"].Conditions,
			v1beta2.AttachmentConditionSatisfied)
		for _, want := range []string{"volume v belongs to node n1 by ticket \"" + tt.id + "\" (" + string(tt.holder) +
			", node n1, since " + now.UTC().Format(time.RFC3339), tt.want} {
			if !strings.Contains(c.Message, want) {
				t.Errorf("message %q lacks %q", c.Message, want)
			}
		}
		if len(d.Events) != 1 || d.Events[0].Reason != naming.EventWaiting || d.Events[0].Warning ||
			!strings.Contains(d.Events[0].Message, c.Message) {
			t.Errorf("events %+v", d.Events)
		}
		if again := decide(later.Add(time.Hour), a, s); len(again.Events) != 0 {
			t.Errorf("told again: %+v", again.Events)
		}
	}
}

// TestTicketThatCannotBeServed: what is in the way is told with what ends it.
func TestTicketThatCannotBeServed(t *testing.T) {
	const csi, user, backup = v1beta2.AttacherTypeCSI, v1beta2.AttacherTypeLonghornAPI, v1beta2.AttacherTypeBackup
	for _, tt := range []struct {
		name string
		edit func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume)
		want string
	}{
		{"no node", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) { ticket(a, "waits", "", user) },
			`ticket "waits" (longhorn-api) names no node, so it is never satisfied; it ends by: ankole volume detach v`},
		{"faulted", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "waits", "n1", csi)
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}, "volume v is faulted: no replica can serve it; see which are missing with: ankole volume describe v; bring " +
			"their nodes and disks back, then: ankole volume salvage v"},
		{"faulted, with a reason", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "waits", "n1", csi)
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
			v.Status.Conditions = []v1beta2.Condition{{Type: "Start", Status: v1beta2.ConditionFalse, Message: "b is damaged"}}
		}, "no replica can serve it; b is damaged; see which"},
		{"priority", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "waits", "n1", backup)
			ticket(a, "x", "n2", csi)
		}, `ticket "x" (csi-attacher, node n2) goes first, as its type has the higher priority; it ends with the Pods`},
		{"name", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "waits", "n1", user)
			ticket(a, "", "n2", user)
		}, `ticket "" (longhorn-api, node n2) goes first, as the first by name of equal priority; it ends by: ankole volume ` +
			"detach v"},
	} {
		a, s := fixture()
		tt.edit(a, s.Volume)
		decide(now, a, s)
		c := v1beta2.FindCondition(a.Status.AttachmentTicketStatuses["waits"].Conditions,
			v1beta2.AttachmentConditionSatisfied)
		if c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, tt.want) {
			t.Errorf("%s: %s, message %q lacks %q", tt.name, c.Status, c.Message, tt.want)
		}
	}
}

// TestOtherFrontendNamesTheHolder: the same where the volume is on the node, but otherwise
// attached.
func TestOtherFrontendNamesTheHolder(t *testing.T) {
	a, s := fixture()
	attachedTo(s.Volume, "n1")
	ticket(a, "csi-1", "n1", v1beta2.AttacherTypeCSI)
	ticket(a, "waits", "n1", v1beta2.AttacherTypeLonghornAPI, with(v1beta2.AttachmentParameterDisableFrontend, "true"))
	decide(now, a, s)
	c := v1beta2.FindCondition(a.Status.AttachmentTicketStatuses["waits"].Conditions,
		v1beta2.AttachmentConditionSatisfied)
	if !strings.Contains(c.Message, "another frontend") ||
		!strings.Contains(c.Message, "by ticket \"csi-1\" (csi-attacher") {
		t.Errorf("message %q", c.Message)
	}
}
