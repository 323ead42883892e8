package backingimage

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/schedule"
)

func yes(kind string) []v1beta2.Condition {
	return []v1beta2.Condition{{Type: kind, Status: v1beta2.ConditionTrue}}
}

// node is one that takes copies on its one disk d, but for what edit does to it.
func node(name string, edit func(*v1beta2.Node, *v1beta2.DiskSpec, *v1beta2.DiskStatus)) v1beta2.Node {
	n := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta2.NodeSpec{AllowScheduling: true, Tags: []string{"fast"}},
		Status: v1beta2.NodeStatus{
			Conditions: append(yes(v1beta2.NodeConditionReady), yes(v1beta2.NodeConditionSchedulable)...)}}
	spec := v1beta2.DiskSpec{Path: "/p", AllowScheduling: true, DiskType: v1beta2.DiskTypeFilesystem,
		Tags: []string{"ssd"}}
	status := v1beta2.DiskStatus{DiskUUID: "u", StorageMaximum: 100, StorageAvailable: 100,
		Conditions: append(yes(v1beta2.DiskConditionReady), yes(v1beta2.DiskConditionSchedulable)...)}
	if edit != nil {
		edit(&n, &spec, &status)
	}
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": spec}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": status}
	return n
}

func no(kind, reason string) []v1beta2.Condition {
	return []v1beta2.Condition{{Type: kind, Status: v1beta2.ConditionFalse, Reason: reason}}
}

// TestDisks has what decides whether a disk is up, takes copies, and is to be emptied.
func TestDisks(t *testing.T) {
	type (
		n = *v1beta2.Node
		p = *v1beta2.DiskSpec
		s = *v1beta2.DiskStatus
	)
	for _, tt := range []struct {
		name               string
		edit               func(n, p, s)
		up, takes, leaving bool
	}{
		{"whole", nil, true, true, false},
		{"node down", func(n n, _ p, _ s) { n.Status.Conditions = no("Ready", v1beta2.NodeReasonKubernetesNodeNotReady) },
			false,
			false, false},
		{"node without a manager", func(n n, _ p, _ s) { n.Status.Conditions[0].Status = "False" }, true, false, false},
		{"node cordoned", func(n n, _ p, _ s) { n.Status.Conditions[1].Status = "False" }, true, false, false},
		{"node closed", func(n n, _ p, _ s) { n.Spec.AllowScheduling = false }, true, false, false},
		{"node being deleted", func(n n, _ p, _ s) { n.DeletionTimestamp = &metav1.Time{} }, true, false, false},
		{"node to be emptied", func(n n, _ p, _ s) { n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true }, true,
			false,
			true},
		{"disk not ready", func(_ n, _ p, s s) { s.Conditions = no("Ready", "") }, false, false, false},
		{"disk full", func(_ n, _ p, s s) { s.Conditions[1].Status = "False" }, true, false, false},
		{"disk closed", func(_ n, p p, _ s) { p.AllowScheduling = false }, true, false, false},
		{"disk to be emptied", func(_ n, p p, _ s) { p.AllowScheduling, p.EvictionRequested = false, true }, true, false,
			true},
		{"block device", func(_ n, p p, _ s) { p.DiskType = "block" }, true, false, false},
	} {
		d := Disks([]v1beta2.Node{node("n1", tt.edit)})["u"]
		if d.Up != tt.up || d.Takes != tt.takes || d.Leaving != tt.leaving || d.Node != "n1" || d.Path != "/p" {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
	if all := Disks([]v1beta2.Node{node("n1", func(_ n, _ p, s s) { s.DiskUUID = "" })}); len(all) > 0 {
		t.Errorf("a disk that nobody has read: %+v", all)
	}
	away := node("n1", func(_ n, _ p, s s) { s.Conditions = no("Ready", "") })
	for _, nodes := range [][]v1beta2.Node{{away, node("n2", nil)}, {node("n2", nil), away}} {
		if d := Disks(nodes)["u"]; d.Node != "n2" {
			t.Errorf("a disk that moved is on %s", d.Node)
		}
	}
}

// TestFits has what an image asks of a disk.
func TestFits(t *testing.T) {
	policy := schedule.Policy{OverProvisioningPercent: 100, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true}
	strict := policy
	strict.AllowEmptyDiskSelector = false
	d := Disks([]v1beta2.Node{node("n1", nil)})["u"]
	for _, tt := range []struct {
		name         string
		nodes, disks []string
		size         int64
		policy       schedule.Policy
		want         bool
	}{
		{"no tags", nil, nil, 10, policy, true},
		{"too large", nil, nil, 101, policy, false},
		{"tags of both", []string{"fast"}, []string{"ssd"}, 10, policy, true},
		{"another node", []string{"slow"}, nil, 10, policy, false},
		{"another disk", nil, []string{"hdd"}, 10, policy, false},
		{"no tag, and the disk has one", nil, nil, 10, strict, false},
	} {
		b := &v1beta2.BackingImage{Spec: v1beta2.BackingImageSpec{NodeSelector: tt.nodes, DiskSelector: tt.disks}}
		if got := d.Fits(b, tt.size, tt.policy); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestDisksChanged: what is free is no change.
func TestDisksChanged(t *testing.T) {
	one := node("n1", nil)
	free := node("n1", func(_ *v1beta2.Node, _ *v1beta2.DiskSpec, s *v1beta2.DiskStatus) { s.StorageAvailable = 3 })
	closed := node("n1", func(n *v1beta2.Node, _ *v1beta2.DiskSpec,
		_ *v1beta2.DiskStatus) {
		n.Spec.AllowScheduling = false
	})
	tagged := node("n1", func(_ *v1beta2.Node, p *v1beta2.DiskSpec, _ *v1beta2.DiskStatus) { p.Tags = []string{"hdd"} })
	if DisksChanged(&one, &free) || !DisksChanged(&one, &closed) || !DisksChanged(&one, &tagged) {
		t.Error("changes of a node are misjudged")
	}
}
