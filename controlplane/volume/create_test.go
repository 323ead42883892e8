package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestReplacementIsOfTheEnginesImage: an attached volume of which another image is wanted gets its
// replacement of the image that it runs. One of the wanted image would never be started, and no
// other would be made.
func TestReplacementIsOfTheEnginesImage(t *testing.T) {
	v, s := fixture()
	v.Spec.Image = "img:2"
	fail(s, 1, 48*time.Hour)
	s.Replicas[1].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
	degrade(v, time.Hour)
	c, ok := settle(v, s).Do.(loop.Create)
	if !ok {
		t.Fatalf("no replica is created (state %s)", v.Status.State)
	}
	if r, ok := c.Object.(*v1beta2.Replica); !ok || r.Spec.Image != "img:1" {
		t.Errorf("created %+v, want a replica of img:1", c.Object)
	}
}

// unplacedLocal adds a third replica that is for n3 only and has no place, because n3 takes none.
func unplacedLocal(v *v1beta2.Volume, s *seen) {
	v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n3", "n3"
	third(s)
	c := &s.Replicas[2]
	c.Spec.NodeID, c.Spec.DiskID, c.Spec.DataDirectoryName, c.Spec.HealthyAt, c.Spec.LastHealthyAt = "", "", "", "", ""
	c.Spec.DesireState, c.Spec.HardNodeAffinity = stopped, "n3"
	c.Status.CurrentState, c.Status.StorageIP, c.Status.Port = stopped, "", 0
	s.Nodes[2].Spec.AllowScheduling = false
}

// TestUnplacedLocalReplica: a replica for best-effort locality without a place neither counts
// towards the volume's number nor holds up a replacement, and goes when locality is switched off.
func TestUnplacedLocalReplica(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		want string
	}{
		{"complete: waits", unplacedLocal, ""},
		{"one lost for good: replaced", func(v *v1beta2.Volume, s *seen) {
			unplacedLocal(v, s)
			n4(s)
			fail(s, 1, 48*time.Hour)
			s.Replicas[1].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
			degrade(v, time.Hour)
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"locality switched off: deleted", func(v *v1beta2.Volume, s *seen) {
			unplacedLocal(v, s)
			v.Spec.DataLocality = v1beta2.DataLocalityDisabled
		}, "delete *v1beta2.Replica c"},
		{"of a volume without locality, from an older version: deleted", func(v *v1beta2.Volume, s *seen) {
			unplacedLocal(v, s)
			v.Spec.DataLocality = ""
		}, "delete *v1beta2.Replica c"},
		{"locality switched off during an eviction: waits", func(v *v1beta2.Volume, s *seen) {
			unplacedLocal(v, s)
			v.Spec.DataLocality = v1beta2.DataLocalityDisabled
			v.Spec.NumberOfReplicas = 1
			s.Replicas[1].Spec.EvictionRequested = true
		}, "delete *v1beta2.Replica b"},
	} {
		v, s := fixture()
		s.Engine.Spec.NodeID, s.Owner = "n3", "n3"
		tt.edit(v, s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// n4 adds a node to the fixture.
func n4(s *seen) {
	node := *s.Nodes[1].DeepCopy()
	d := node.Status.DiskStatus["d"]
	node.Name, d.DiskUUID = "n4", "disk-n4"
	node.Status.DiskStatus["d"] = d
	im := *s.Managers[1].DeepCopy()
	im.Name, im.Spec.NodeID = "im-n4", "n4"
	s.Nodes, s.Managers = append(s.Nodes, node), append(s.Managers, im)
	s.ImageOn["n4"], s.Slots["n4"] = true, true
}
