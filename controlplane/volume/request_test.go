package volume

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/schedule"
)

// TestRequest is the table of what objects and settings reach the scheduler as.
func TestRequest(t *testing.T) {
	condition := func(s *seen, kind string) {
		s.Nodes[0].Status.Conditions = []v1beta2.Condition{
			{Type: "Ready", Status: v1beta2.ConditionTrue}, {Type: "Schedulable", Status: v1beta2.ConditionTrue},
		}
		for i := range s.Nodes[0].Status.Conditions {
			if s.Nodes[0].Status.Conditions[i].Type == kind {
				s.Nodes[0].Status.Conditions[i].Status = v1beta2.ConditionFalse
			}
		}
	}
	disk := func(s *seen, edit func(*v1beta2.DiskSpec, *v1beta2.DiskStatus)) {
		spec, status := s.Nodes[0].Spec.Disks["d"], s.Nodes[0].Status.DiskStatus["d"]
		edit(&spec, &status)
		s.Nodes[0].Spec.Disks["d"], s.Nodes[0].Status.DiskStatus["d"] = spec, status
	}
	node := func(r schedule.Request) schedule.Node { return r.Nodes[0] }
	first := func(r schedule.Request) schedule.Disk { return r.Nodes[0].Disks[0] }
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		of   func(r schedule.Request) any
		want any
	}{
		{"node ready", none, func(r schedule.Request) any { return node(r).Ready && node(r).Schedulable }, true},
		{"node not ready", func(_ *v1beta2.Volume, s *seen) { condition(s, "Ready") },
			func(r schedule.Request) any { return node(r).Ready }, false},
		{"node not schedulable", func(_ *v1beta2.Volume, s *seen) { condition(s, "Schedulable") },
			func(r schedule.Request) any { return node(r).Schedulable }, false},
		{"node being deleted", func(_ *v1beta2.Volume, s *seen) {
			s.Nodes[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, func(r schedule.Request) any { return node(r).Deleting }, true},
		{"zone and region", func(_ *v1beta2.Volume, s *seen) {
			s.Nodes[0].Status.Zone, s.Nodes[0].Status.Region = "z", "r"
		}, func(r schedule.Request) any { return node(r).Zone + node(r).Region }, "zr"},
		{"node tags", func(_ *v1beta2.Volume, s *seen) { s.Nodes[0].Spec.Tags = []string{"x"} },
			func(r schedule.Request) any { return node(r).Tags }, []string{"x"}},
		{"node switched off", func(_ *v1beta2.Volume, s *seen) { s.Nodes[0].Spec.AllowScheduling = false },
			func(r schedule.Request) any { return node(r).AllowScheduling }, false},
		{"node being evicted", func(_ *v1beta2.Volume, s *seen) { s.Nodes[0].Spec.EvictionRequested = true },
			func(r schedule.Request) any { return node(r).AllowScheduling }, false},
		{"default instance manager", none, func(r schedule.Request) any { return node(r).RunsInstances }, true},
		{"instance manager of another image", func(_ *v1beta2.Volume, s *seen) { s.Managers[0].Spec.Image = "im:0" },
			func(r schedule.Request) any { return node(r).RunsInstances }, false},
		{"instance manager of another type", func(_ *v1beta2.Volume, s *seen) {
			s.Managers[0].Spec.Type = v1beta2.InstanceManagerTypeEngine
		}, func(r schedule.Request) any { return node(r).RunsInstances }, false},
		{"instance manager that starts", func(_ *v1beta2.Volume, s *seen) {
			s.Managers[0].Status.CurrentState = v1beta2.InstanceManagerStateStarting
		}, func(r schedule.Request) any { return node(r).RunsInstances }, false},
		{"instance manager being deleted", func(_ *v1beta2.Volume, s *seen) {
			s.Managers[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, func(r schedule.Request) any { return node(r).RunsInstances }, false},
		{"image missing", func(_ *v1beta2.Volume, s *seen) { s.ImageOn["n1"] = false },
			func(r schedule.Request) any { return node(r).HasImage }, false},
		{"disk without a status", func(_ *v1beta2.Volume, s *seen) { s.Nodes[0].Status.DiskStatus = nil },
			func(r schedule.Request) any { return node(r).Disks },
			[]schedule.Disk{{Path: "/data", Missing: "the node does not report this disk yet"}}},
		{"disk without a spec", func(_ *v1beta2.Volume, s *seen) { s.Nodes[0].Spec.Disks = nil },
			func(r schedule.Request) any { return node(r).Disks },
			[]schedule.Disk{{Missing: "the disk is not in the node's spec any more"}}},
		{"a disk", func(_ *v1beta2.Volume, s *seen) {
			s.ScheduledBytes = map[string]int64{"disk-n1": 7}
			disk(s, func(spec *v1beta2.DiskSpec, status *v1beta2.DiskStatus) {
				spec.Tags, spec.StorageReserved, spec.EvictionRequested = []string{"ssd"}, 5, true
				status.FilesystemType, status.ScheduledBackingImage = "xfs", map[string]int64{"b": 3}
			})
		}, func(r schedule.Request) any { return first(r) }, schedule.Disk{UUID: "disk-n1", Path: "/data", Filesystem: "xfs",
			Tags: []string{"ssd"}, AllowScheduling: true, EvictionRequested: true, Ready: true, Schedulable: true,
			Maximum: 100 << 30, Available: 90 << 30, Reserved: 5, Scheduled: 10}},
		{"disk switched off", func(_ *v1beta2.Volume, s *seen) {
			disk(s, func(spec *v1beta2.DiskSpec, _ *v1beta2.DiskStatus) { spec.AllowScheduling = false })
		}, func(r schedule.Request) any { return first(r).AllowScheduling }, false},
		{"block disk", func(_ *v1beta2.Volume, s *seen) {
			disk(s, func(spec *v1beta2.DiskSpec, _ *v1beta2.DiskStatus) { spec.DiskType = "block" })
		}, func(r schedule.Request) any { return first(r).Unsupported }, true},
		{"disk under pressure", func(_ *v1beta2.Volume, s *seen) {
			disk(s, func(_ *v1beta2.DiskSpec, d *v1beta2.DiskStatus) {
				d.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionTrue},
					{Type: "Schedulable", Status: v1beta2.ConditionFalse, Reason: v1beta2.DiskReasonDiskPressure}}
			})
		}, func(r schedule.Request) any { return first(r).Pressure && !first(r).Schedulable }, true},
		{"selectors", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.NodeSelector, v.Spec.DiskSelector = []string{"n"}, []string{"d"}
		}, func(r schedule.Request) any {
			return append(r.Volume.NodeSelector, r.Volume.DiskSelector...)
		}, []string{"n", "d"}},
		{"no backing image", none, func(r schedule.Request) any { return r.Volume.Image }, (*schedule.Selectors)(nil)},
		{"backing image", func(_ *v1beta2.Volume, s *seen) {
			s.BackingImage = &v1beta2.BackingImage{Spec: v1beta2.BackingImageSpec{
				NodeSelector: []string{"n"}, DiskSelector: []string{"d"}}}
		}, func(r schedule.Request) any { return r.Volume.Image },
			&schedule.Selectors{Node: []string{"n"}, Disk: []string{"d"}}},
		{"topology", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.TopologyRequirement = []v1beta2.TopologyTerm{{Zone: "z", Region: "r"}}
		}, func(r schedule.Request) any { return r.Volume.Topology }, []schedule.Term{{Zone: "z", Region: "r"}}},
		{"sizes", func(v *v1beta2.Volume, _ *seen) { v.Status.ActualSize = 9 },
			func(r schedule.Request) any { return []int64{r.Volume.Size, r.Volume.ActualSize} }, []int64{1 << 30, 9}},
		{"local node", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.DataLocality, v.Spec.NodeID = v1beta2.DataLocalityBestEffort, "n3"
		}, func(r schedule.Request) any { return r.Volume.LocalNode }, "n3"},
		{"local node, a replica is there", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.DataLocality = v1beta2.DataLocalityBestEffort
		}, func(r schedule.Request) any { return r.Volume.LocalNode }, ""},
		{"local node, the replica there has failed", func(v *v1beta2.Volume, s *seen) {
			v.Spec.DataLocality = v1beta2.DataLocalityBestEffort
			fail(s, 0, time.Minute)
		}, func(r schedule.Request) any { return r.Volume.LocalNode }, "n1"},
		{"replacement due", func(v *v1beta2.Volume, s *seen) {
			s.Settings["replica-replenishment-wait-interval"] = "60"
			degrade(v, time.Minute)
		}, func(r schedule.Request) any { return r.Volume.ReplacementDue }, true},
		{"replacement not due", func(v *v1beta2.Volume, s *seen) {
			s.Settings["replica-replenishment-wait-interval"] = "60"
			degrade(v, time.Minute-time.Second)
		}, func(r schedule.Request) any { return r.Volume.ReplacementDue }, false},
		{"space settings", func(_ *v1beta2.Volume, s *seen) {
			s.Settings["storage-over-provisioning-percentage"], s.Settings["storage-minimal-available-percentage"] = "150", "12"
		}, func(r schedule.Request) any {
			return []int64{r.Policy.OverProvisioningPercent, r.Policy.MinimalAvailablePercent}
		}, []int64{150, 12}},
		{"empty selectors", func(_ *v1beta2.Volume, s *seen) {
			s.Settings["allow-empty-node-selector-volume"], s.Settings["allow-empty-disk-selector-volume"] = "false", "true"
		}, func(r schedule.Request) any {
			return []bool{r.Policy.AllowEmptyNodeSelector, r.Policy.AllowEmptyDiskSelector}
		}, []bool{false, true}},
		{"pressure, best effort", func(v *v1beta2.Volume, s *seen) {
			v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceBestEffort
			s.Settings["replica-auto-balance-disk-pressure-percentage"] = "80"
		}, func(r schedule.Request) any { return r.Policy.BalancePressurePercent }, int64(80)},
		{"pressure, least effort", func(v *v1beta2.Volume, s *seen) {
			v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceLeastEffort
			s.Settings["replica-auto-balance-disk-pressure-percentage"] = "80"
		}, func(r schedule.Request) any { return r.Policy.BalancePressurePercent }, int64(0)},
	} {
		v, s := fixture()
		tt.edit(v, s)
		got := tt.of(newPass(now, v, *s).request(schedule.Replica{}))
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func none(*v1beta2.Volume, *seen) {}

// TestAntiAffinityOverrides: on each level the volume's word goes before the setting.
func TestAntiAffinityOverrides(t *testing.T) {
	for level, name := range []string{"replica-soft-anti-affinity", "replica-zone-soft-anti-affinity",
		"replica-disk-soft-anti-affinity"} {
		for _, tt := range []struct {
			own     v1beta2.Override
			setting string
			want    bool
		}{
			{"", "true", true}, {"", "false", false},
			{v1beta2.OverrideIgnored, "true", true}, {v1beta2.OverrideIgnored, "false", false},
			{v1beta2.OverrideEnabled, "false", true}, {v1beta2.OverrideDisabled, "true", false},
		} {
			v, s := fixture()
			s.Settings[name] = tt.setting
			*[]*v1beta2.Override{&v.Spec.ReplicaSoftAntiAffinity, &v.Spec.ReplicaZoneSoftAntiAffinity,
				&v.Spec.ReplicaDiskSoftAntiAffinity}[level] = tt.own
			p := scheduling{newPass(now, v, *s)}.policy()
			if got := []bool{p.SoftNode, p.SoftZone, p.SoftDisk}[level]; got != tt.want {
				t.Errorf("%s %s, the volume says %q: %v", name, tt.setting, tt.own, got)
			}
		}
	}
}

// TestReplenishAndCleanUp is the table of when replicas are made and leftover ones deleted.
func TestReplenishAndCleanUp(t *testing.T) {
	const adds = "create *v1beta2.Replica ns/v-r-11111111"
	usedUp := func(v *v1beta2.Volume, s *seen) { // b is lost for good
		fail(s, 1, time.Minute)
		s.Replicas[1].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
		degrade(v, time.Minute)
	}
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		want string
	}{
		{"two lack: one at a time", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 4
			n4(s)
			degrade(v, time.Minute)
		}, adds},
		{"one without a place waits already", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 4
			third(s)
			c := &s.Replicas[2]
			c.Spec.NodeID, c.Spec.DiskID, c.Spec.HealthyAt = "", "", ""
			c.Spec.DesireState, c.Status.CurrentState = stopped, stopped
			s.Nodes[2].Spec.AllowScheduling = false
			degrade(v, time.Minute)
		}, ""},
		{"lacks one while another is rebuilt", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 3
			s.Replicas[1].Spec.HealthyAt = ""
			s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeWO
			degrade(v, time.Minute)
		}, ""},
		{"wait interval 0, a failed one might be reused later", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			s.Nodes[1].Spec.AllowScheduling = false
			s.Settings["replica-replenishment-wait-interval"] = "0"
			degrade(v, 0)
		}, adds},
		{"not degraded: at once", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 3
			s.Settings["replica-replenishment-wait-interval"] = "600"
		}, adds},
		{"failed once without a disk: not reusable", func(v *v1beta2.Volume, s *seen) {
			fail(s, 1, time.Minute)
			s.Replicas[1].Spec.DiskID = ""
			s.Settings["replica-replenishment-wait-interval"] = "600"
			degrade(v, time.Minute)
		}, adds},
		{"failed five rebuilds: deleted once complete", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 1
			usedUp(v, s)
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		}, "delete *v1beta2.Replica b"},
		{"failed, of another image: deleted", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 1
			fail(s, 1, time.Minute)
			s.Replicas[1].Spec.Image = "img:0"
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		}, "delete *v1beta2.Replica b"},
		{"failed for years, timeout 0: stays", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas, v.Spec.StaleReplicaTimeout = 1, 0
			fail(s, 1, 10000*time.Hour)
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		}, ""},
		{"never healthy and without a place, complete: deleted", func(_ *v1beta2.Volume, s *seen) {
			third(s)
			c := &s.Replicas[2]
			c.Spec.NodeID, c.Spec.DiskID, c.Spec.DataDirectoryName, c.Spec.HealthyAt, c.Spec.LastHealthyAt = "", "", "", "", ""
			c.Spec.DesireState, c.Status.CurrentState = stopped, stopped
			s.Nodes[2].Spec.AllowScheduling = false
		}, "delete *v1beta2.Replica c"},
		{"locality without a frontend: none", func(v *v1beta2.Volume, s *seen) {
			v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n3", "n3"
			s.Engine.Spec.NodeID, s.Engine.Spec.DisableFrontend, v.Spec.DisableFrontend = "n3", true, true
		}, ""},
		{"locality: one is made", func(v *v1beta2.Volume, s *seen) {
			v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n3", "n3"
			s.Engine.Spec.NodeID = "n3"
		}, adds},
		{"evicting one is the only one in sync: stays", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 1
			s.Replicas[0].Spec.EvictionRequested, s.Replicas[1].Spec.EvictionRequested = true, true
			s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0"
		}, ""},
	} {
		v, s := fixture()
		tt.edit(v, s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestNewReplicas: what a replacement, and one for locality, is made as.
func TestNewReplicas(t *testing.T) {
	v, s := fixture()
	v.Spec.NumberOfReplicas = 3
	made := func(hardNode string) {
		t.Helper()
		c, ok := settle(v, s).Do.(loop.Create)
		if !ok {
			t.Fatal("no replica is made")
		}
		r := c.Object.(*v1beta2.Replica)
		if r.Spec.RebuildRetryCount != 5 || r.Spec.HardNodeAffinity != hardNode || r.Spec.NodeID != "" {
			t.Errorf("made %+v", r.Spec)
		}
	}
	made("")
	v.Spec.NumberOfReplicas, v.Spec.DataLocality = 2, v1beta2.DataLocalityBestEffort
	v.Spec.NodeID, v.Status.CurrentNodeID, s.Engine.Spec.NodeID = "n3", "n3", "n3"
	v.Status.Robustness, v.Status.LastDegradedAt = v1beta2.VolumeRobustnessHealthy, ""
	made("n3")
}
