package attachment

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestUnderWay: a ticket says whether something is known to hold it up, and what.
func TestUnderWay(t *testing.T) {
	attaching := func(_ *v1beta2.VolumeAttachment, s *seen) {
		s.Volume.Spec.NodeID, s.Volume.Status.State = "n1", v1beta2.VolumeStateAttaching
	}
	for _, c := range []struct {
		name     string
		edit     func(a *v1beta2.VolumeAttachment, s *seen)
		underWay bool
		says     string
	}{
		{"being attached", attaching, true, "being attached to node n1"},
		{"no instance manager runs there", func(a *v1beta2.VolumeAttachment, s *seen) {
			attaching(a, s)
			s.Runs = nil
		}, false, "where no instance manager runs; see why with: ankole instance-manager list"},
		{"replicas are waited for", func(a *v1beta2.VolumeAttachment, s *seen) {
			attaching(a, s)
			s.Volume.Status.Conditions = []v1beta2.Condition{{Type: waitForReplicas, Status: v1beta2.ConditionTrue,
				Message: "it lacks replicas r"}}
		}, false, "being attached to node n1: it lacks replicas r"},
		{"processes have just been ordered", func(a *v1beta2.VolumeAttachment, s *seen) {
			attaching(a, s)
			s.Volume.Status.Conditions = []v1beta2.Condition{{Type: waitForReplicas, Status: v1beta2.ConditionTrue,
				Reason: v1beta2.VolumeReasonReplicasOrdered, Message: "ordered"}}
		}, true, "being attached to node n1"},
		{"about to be attached", func(*v1beta2.VolumeAttachment, *seen) {}, true, "being attached to node n1"},
		{"being detached", func(_ *v1beta2.VolumeAttachment, s *seen) {
			s.Volume.Status.State = v1beta2.VolumeStateDetaching
		}, true, "is not detached yet"},
		{"another ticket holds it", func(a *v1beta2.VolumeAttachment, s *seen) {
			attachedTo(s.Volume, "n2")
			ticket(a, "", "n2", v1beta2.AttacherTypeLonghornAPI)
		}, false, "belongs to node n2"},
		{"its node is down", func(_ *v1beta2.VolumeAttachment, s *seen) {
			s.Nodes["n1"] = node("n1", v1beta2.ConditionFalse, v1beta2.NodeReasonKubernetesNodeNotReady)
		}, false, "node n1 is down"},
	} {
		a, s := fixture()
		ticket(a, "csi", "n1", v1beta2.AttacherTypeCSI)
		c.edit(a, &s)
		said := statuses(now, a, s)["csi"]
		got := v1beta2.FindCondition(said.Conditions, v1beta2.AttachmentConditionSatisfied)
		if said.Satisfied || (got.Reason == v1beta2.AttachmentReasonUnderWay) != c.underWay ||
			!strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestInstanceManagersOfTickets: what runs is looked for on the nodes of the tickets, and wakes
// those.
func TestInstanceManagersOfTickets(t *testing.T) {
	manager := func(name, node string, state v1beta2.InstanceManagerState) *v1beta2.InstanceManager {
		im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		im.Spec.NodeID, im.Status.CurrentState = node, state
		return im
	}
	a, _ := fixture()
	a.Namespace = "ns"
	for _, n := range []string{"n1", "n2", "n3"} {
		ticket(a, n, n, v1beta2.AttacherTypeCSI)
	}
	starting := manager("b", "n2", v1beta2.InstanceManagerStateStarting)
	c := kubernetes(t, nil, a, manager("a", "n1", v1beta2.InstanceManagerStateRunning), starting,
		manager("old", "n1", v1beta2.InstanceManagerStateError))
	r := New(Config{Namespace: "ns"}).WithClient(c)
	s, err := r.gather(t.Context(), a)
	if err != nil || !s.Runs["n1"] || s.Runs["n2"] || s.Runs["n3"] {
		t.Errorf("run: %v, %v", s.Runs, err)
	}
	if woken := r.onManager(starting); len(woken) != 1 || woken[0] != "v" {
		t.Errorf("woken are %v", woken)
	}
}
