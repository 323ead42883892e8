package concern

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestWhatConcernsVolumes: what happens to a node, an instance manager, an image or an attachment a
// hundred times while volumes are attached wakes no other volume. What a change costs must not grow
// with the number of volumes.
func TestWhatConcernsVolumes(t *testing.T) {
	node := func() *v1beta2.Node {
		n := &v1beta2.Node{}
		n.Spec.AllowScheduling = true
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/d"}}
		n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "u"}}
		return n
	}
	disk := func(edit func(*v1beta2.DiskStatus)) func(*v1beta2.Node) {
		return func(n *v1beta2.Node) {
			d := n.Status.DiskStatus["d"]
			edit(&d)
			n.Status.DiskStatus["d"] = d
		}
	}
	for name, c := range map[string]struct {
		edit func(*v1beta2.Node)
		want bool
	}{
		"room":      {disk(func(d *v1beta2.DiskStatus) { d.StorageScheduled, d.StorageAvailable = 1, 2 }), false},
		"a replica": {disk(func(d *v1beta2.DiskStatus) { d.ScheduledReplica = map[string]int64{"r": 1} }), false},
		"disk ready": {disk(func(d *v1beta2.DiskStatus) {
			d.Conditions = []v1beta2.Condition{{Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionTrue}}
		}), true},
		"disk pressure": {disk(func(d *v1beta2.DiskStatus) {
			d.Conditions = []v1beta2.Condition{{Type: v1beta2.DiskConditionSchedulable, Status: v1beta2.ConditionFalse,
				Reason: v1beta2.DiskReasonDiskPressure}}
		}), true},
		"not ready": {func(n *v1beta2.Node) { n.Status.Conditions[0].Status = v1beta2.ConditionFalse }, true},
		"tags":      {func(n *v1beta2.Node) { n.Spec.Tags = []string{"a"} }, true},
		"zone":      {func(n *v1beta2.Node) { n.Status.Zone = "a" }, true},
		"deleted":   {func(n *v1beta2.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)} }, true},
	} {
		after := node()
		c.edit(after)
		if got := NodeChanged(node(), after); got != c.want {
			t.Errorf("node, %s: %v", name, got)
		}
	}
	image, elsewhere, ready := &v1beta2.BackingImage{}, &v1beta2.BackingImage{}, &v1beta2.BackingImage{}
	elsewhere.Spec.DiskSelector, ready.Status.Size = []string{"ssd"}, 1
	if SelectorsChanged(image, ready) || !SelectorsChanged(image, elsewhere) {
		t.Error("a backing image's status wakes volumes, or its selectors do not")
	}
	a := &v1beta2.VolumeAttachment{}
	told, wanted := a.DeepCopy(), a.DeepCopy()
	told.Status.AttachmentTicketStatuses = map[string]v1beta2.AttachmentTicketStatus{"t": {Satisfied: true}}
	wanted.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {}}
	if TicketsChanged(a, told) || !TicketsChanged(a, wanted) {
		t.Error("an attachment's status wakes its volume, or a ticket does not")
	}
	ei := &v1beta2.EngineImage{}
	counted, deployed := ei.DeepCopy(), ei.DeepCopy()
	counted.Status.RefCount = 7
	deployed.Status.NodeDeploymentMap = map[string]bool{"n1": true}
	if DeploymentChanged(ei, counted) || !DeploymentChanged(ei, deployed) {
		t.Error("the count of an image's users wakes volumes, or its deployment does not")
	}
}
