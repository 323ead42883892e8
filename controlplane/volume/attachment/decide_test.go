package attachment

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func node(name string, ready v1beta2.ConditionStatus, reason string) *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: ready, Reason: reason}}
	return n
}

// fixture is a detached volume, nodes n1 and n2 up, n3 down, and no ticket.
func fixture() (*v1beta2.VolumeAttachment, seen) {
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	v.Status.State, v.Status.Robustness = v1beta2.VolumeStateDetached, v1beta2.VolumeRobustnessUnknown
	a := &v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{v1beta2.Finalizer}}}
	a.Spec.Volume, a.Spec.AttachmentTickets = "v", map[string]v1beta2.AttachmentTicket{}
	return a, seen{Volume: v, Runs: map[string]bool{"n1": true, "n2": true}, Nodes: map[string]*v1beta2.Node{
		"n1": node("n1", v1beta2.ConditionTrue, ""), "n2": node("n2", v1beta2.ConditionTrue, ""),
		"n3": node("n3", v1beta2.ConditionFalse, v1beta2.NodeReasonKubernetesNodeNotReady),
	}}
}

type ticketOption func(*v1beta2.AttachmentTicket)

func with(key, value string) ticketOption {
	return func(t *v1beta2.AttachmentTicket) {
		if t.Parameters == nil {
			t.Parameters = map[string]string{}
		}
		t.Parameters[key] = value
	}
}

func ticket(a *v1beta2.VolumeAttachment, id, node string, kind v1beta2.AttacherType, opts ...ticketOption) {
	t := v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: kind, Generation: 7}
	for _, o := range opts {
		o(&t)
	}
	a.Spec.AttachmentTickets[id] = t
}

func attachedTo(v *v1beta2.Volume, node string) {
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State, v.Status.Robustness = node, node,
		v1beta2.VolumeStateAttached, v1beta2.VolumeRobustnessHealthy
}

// outcome is the node the decision writes: a name, "detach", or "" for no change.
func outcome(d loop.Decision) string {
	u, ok := d.Do.(loop.Update)
	if !ok {
		return ""
	}
	v, ok := u.Object.(*v1beta2.Volume)
	if !ok {
		return "attachment"
	}
	if v.Spec.NodeID == "" {
		return "detach"
	}
	return v.Spec.NodeID
}

// filling makes a volume one that is attached to n1, hidden, for a clone in a state.
func filling(v *v1beta2.Volume, state v1beta2.VolumeCloneState) {
	attachedTo(v, "n1")
	v.Spec.DataSource, v.Spec.DisableFrontend, v.Status.CloneStatus.State = "vol://s", true, state
}

func TestWhereTheVolumeGoes(t *testing.T) {
	const clones = v1beta2.AttacherTypeVolumeClone
	const api, csi = v1beta2.AttacherTypeLonghornAPI, v1beta2.AttacherTypeCSI
	const snap, expand = v1beta2.AttacherTypeSnapshot, v1beta2.AttacherTypeVolumeExpansion
	disable := v1beta2.AttachmentParameterDisableFrontend
	tests := []struct {
		name string
		edit func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume)
		want string
	}{
		{"no ticket", func(*v1beta2.VolumeAttachment, *v1beta2.Volume) {}, ""},
		{"one ticket", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) { ticket(a, "a", "n2", csi) }, "n2"},
		{"priority", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "a", "n1", csi)
			ticket(a, "b", "n2", api)
		}, "n2"},
		{"expansion before everything", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "a", "n1", api)
			ticket(a, "b", "n2", expand)
		}, "n2"},
		{"ties by id", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "b", "n1", csi)
			ticket(a, "a", "n2", csi)
		}, "n2"},
		{"a node that is down cannot win", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) {
			ticket(a, "a", "n3", api)
			ticket(a, "b", "n1", snap)
		}, "n1"},
		{"unknown node", func(a *v1beta2.VolumeAttachment, _ *v1beta2.Volume) { ticket(a, "a", "n9", api) }, ""},
		{"faulted", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "a", "n1", api)
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}, ""},
		{"it migrates", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "a", "n1", api)
			v.Spec.MigrationNodeID = "n2"
		}, ""},
		{"what migrated is not stopped yet", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "a", "n1", api)
			v.Status.CurrentMigrationNodeID = "n2"
		}, ""},
		{"still detaching", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			ticket(a, "a", "n1", api)
			v.Status.State = v1beta2.VolumeStateDetaching
		}, ""},
		{"stays while its ticket is there", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", csi)
			ticket(a, "b", "n2", api)
		}, ""},
		{"leaves without a ticket", func(_ *v1beta2.VolumeAttachment, v *v1beta2.Volume) { attachedTo(v, "n1") }, "detach"},
		{"leaves when faulted", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			v.Status.Robustness = v1beta2.VolumeRobustnessFaulted
			ticket(a, "a", "n1", api)
		}, "detach"},
		{"leaves when its frontend does not fit", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", api, with(disable, "true"))
		}, "detach"},
		{"any frontend fits", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", snap, with(disable, "any"))
		}, ""},
		{"a snapshot yields to a workload elsewhere", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", snap)
			ticket(a, "b", "n2", csi)
		}, "detach"},
		{"a snapshot does not yield to a workload on a node that is down", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", snap)
			ticket(a, "b", "n3", csi)
		}, ""},
		{"a snapshot does not yield to a backup elsewhere", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", snap)
			ticket(a, "b", "n2", v1beta2.AttacherTypeBackup)
		}, ""},
		{"a volume that is being filled goes with the clone's ticket", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			v.Spec.DataSource = "vol://s"
			ticket(a, "a", "n1", api)
			ticket(a, "b", "n2", clones, with(disable, "true"))
		}, "n2"},
		{"and no other", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			v.Spec.DataSource = "vol://s"
			ticket(a, "a", "n1", api)
		}, ""},
		{"it stays for that", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			filling(v, v1beta2.VolumeCloneStateInitiated)
			ticket(a, "a", "n1", clones, with(disable, "true"))
			ticket(a, "b", "n2", csi)
		}, ""},
		{"nobody keeps it who wants it hidden", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			filling(v, v1beta2.VolumeCloneStateFailed)
			ticket(a, "a", "n1", api, with(disable, "true"))
		}, "detach"},
		{"a clone that waits to be healthy yields", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			filling(v, v1beta2.VolumeCloneStateCopyCompletedUnhealthy)
			ticket(a, "a", "n1", clones, with(disable, "true"))
			ticket(a, "b", "n2", csi)
		}, "detach"},
		{"an expansion does not yield", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n1")
			ticket(a, "a", "n1", expand)
			ticket(a, "b", "n2", csi)
		}, ""},
		{"CSI tickets of shared volumes are the share manager's", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			v.Spec.AccessMode = v1beta2.AccessModeReadWriteMany
			ticket(a, "a", "n1", csi)
		}, ""},
		{"a deleted volume is not attached", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			v.DeletionTimestamp = &metav1.Time{Time: now}
			ticket(a, "a", "n1", api)
		}, ""},
		{"the node going down does not detach", func(a *v1beta2.VolumeAttachment, v *v1beta2.Volume) {
			attachedTo(v, "n3")
			ticket(a, "a", "n3", csi)
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, s := fixture()
			tt.edit(a, s.Volume)
			if got := outcome(decide(now, a, s)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWinnersParameters(t *testing.T) {
	a, s := fixture()
	ticket(a, "a", "n1", v1beta2.AttacherTypeLonghornAPI, with("disableFrontend", "true"), with("lastAttachedBy", "me"))
	v := decide(now, a, s).Do.(loop.Update).Object.(*v1beta2.Volume)
	if !v.Spec.DisableFrontend || v.Spec.LastAttachedBy != "me" {
		t.Errorf("parameters were not taken over: %+v", v.Spec)
	}
	if s.Volume.Spec.NodeID != "" {
		t.Error("the gathered volume was edited")
	}
}

func TestTicketStatuses(t *testing.T) {
	a, s := fixture()
	attachedTo(s.Volume, "n1")
	ticket(a, "here", "n1", v1beta2.AttacherTypeLonghornAPI)
	ticket(a, "frontend", "n1", v1beta2.AttacherTypeSnapshot, with("disableFrontend", "true"))
	ticket(a, "elsewhere", "n2", v1beta2.AttacherTypeCSI)
	ticket(a, "down", "n3", v1beta2.AttacherTypeCSI)
	ticket(a, "unknown", "n9", v1beta2.AttacherTypeCSI)
	a.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{"gone": {ID: "gone"}}
	decide(now, a, s)
	tests := []struct {
		id              string
		satisfied       bool
		reason, message string
	}{
		{"here", true, "", ""},
		{"frontend", false, v1beta2.AttachmentReasonAttachedIncompatibleParameters, "another frontend"},
		{"elsewhere", false, "", "belongs to node n1"},
		{"down", false, "", "node n3 is down"},
		{"unknown", false, "", "node n9 is not known"},
	}
	for _, tt := range tests {
		st := a.Status.AttachmentTicketStatuses[tt.id]
		c := v1beta2.FindCondition(st.Conditions, v1beta2.AttachmentConditionSatisfied)
		if st.Satisfied != tt.satisfied || st.Generation != 7 || c.Reason != tt.reason ||
			!strings.Contains(c.Message, tt.message) {
			t.Errorf("ticket %s: %+v", tt.id, st)
		}
	}
	if len(a.Status.AttachmentTicketStatuses) != len(tests) {
		t.Errorf("statuses of withdrawn tickets are left: %v", a.Status.AttachmentTicketStatuses)
	}
}

func TestDecideSettles(t *testing.T) {
	a, s := fixture()
	ticket(a, "a", "n1", v1beta2.AttacherTypeCSI)
	decide(now, a, s)
	first := a.DeepCopy()
	decide(now.Add(time.Hour), a, s)
	if got, want := a.Status, first.Status; len(got.AttachmentTicketStatuses) != len(want.AttachmentTicketStatuses) ||
		got.AttachmentTicketStatuses["a"].Conditions[0] != want.AttachmentTicketStatuses["a"].Conditions[0] {
		t.Errorf("status changes by itself: %+v then %+v", want, got)
	}
}

func TestDeletedAttachmentLetsGo(t *testing.T) {
	a, s := fixture()
	a.DeletionTimestamp = &metav1.Time{Time: now}
	attachedTo(s.Volume, "n1")
	if got := outcome(decide(now, a, s)); got != "detach" {
		t.Errorf("with an attached volume: %q, want detach", got)
	}
	s.Volume = nil
	if got := outcome(decide(now, a, s)); got != "attachment" {
		t.Errorf("without a volume: %q, want the finalizer removed", got)
	}
}

// TestEarlyTicketSaysWhy: whoever wants a volume that is being filled is told what it waits for.
func TestEarlyTicketSaysWhy(t *testing.T) {
	a, s := fixture()
	filling(s.Volume, v1beta2.VolumeCloneStateInitiated)
	ticket(a, "a", "n1", v1beta2.AttacherTypeCSI, with(v1beta2.AttachmentParameterDisableFrontend, "true"))
	ticket(a, "b", "n1", v1beta2.AttacherTypeVolumeClone, with(v1beta2.AttachmentParameterDisableFrontend, "true"))
	decide(now, a, s)
	early, own := a.Status.AttachmentTicketStatuses["a"], a.Status.AttachmentTicketStatuses["b"]
	if early.Satisfied || !own.Satisfied ||
		!strings.Contains(early.Conditions[0].Message, "does not hold all of vol://s") {
		t.Errorf("%+v, %+v", early, own)
	}
}
