package volume

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestBalanceStep is the table of when a volume balances, and what it gives up. In all rows both
// replicas are on n1 unless it is said otherwise.
func TestBalanceStep(t *testing.T) {
	type edit func(v *v1beta2.Volume, s *seen)
	move := func(s *seen, i int, node string) {
		r := &s.Replicas[i]
		r.Spec.NodeID, r.Spec.DiskID = node, "disk-"+node
	}
	both := func(edits ...edit) edit {
		return func(v *v1beta2.Volume, s *seen) {
			for _, e := range edits {
				e(v, s)
			}
		}
	}
	extra := func(_ *v1beta2.Volume, s *seen) {
		third(s)
		s.Engine.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
		s.Engine.Status.ReplicaModeMap["c"] = v1beta2.ReplicaModeRW
		s.Engine.Status.ReplicaTransitionTimeMap["c"] = s.Engine.Status.ReplicaTransitionTimeMap["a"]
		s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, "v-cccccccc")
	}
	mode := func(m v1beta2.ReplicaAutoBalance) edit {
		return func(v *v1beta2.Volume, _ *seen) { v.Spec.ReplicaAutoBalance = m }
	}
	bySetting := func(value string) edit {
		return func(_ *v1beta2.Volume, s *seen) { s.Settings["replica-auto-balance"] = value }
	}
	local := func(v *v1beta2.Volume, _ *seen) { v.Spec.DataLocality = v1beta2.DataLocalityBestEffort }
	const adds = "create *v1beta2.Replica ns/v-r-11111111"
	for _, tt := range []struct {
		name string
		edit edit
		want string
	}{
		{"off", func(*v1beta2.Volume, *seen) {}, ""},
		{"volume's least-effort", mode("least-effort"), adds},
		{"volume's best-effort", mode("best-effort"), adds},
		{"setting's, volume silent", bySetting("least-effort"), adds},
		{"setting's, volume follows", both(mode("ignored"), bySetting("least-effort")), adds},
		{"setting's, volume will not", both(mode("disabled"), bySetting("least-effort")), ""},
		{"spread already", both(mode("least-effort"), func(_ *v1beta2.Volume, s *seen) { move(s, 1, "n2") }), ""},
		{"one is being evicted: replaced first", both(mode("least-effort"), func(_ *v1beta2.Volume, s *seen) {
			s.Replicas[1].Spec.EvictionRequested = true
		}), adds},
		{"no node has room", both(mode("least-effort"), func(_ *v1beta2.Volume, s *seen) {
			s.Nodes[1].Spec.AllowScheduling, s.Nodes[2].Spec.AllowScheduling = false, false
		}), ""},
		{"rebuilds are off", both(mode("least-effort"), bySetting("disabled"), func(_ *v1beta2.Volume, s *seen) {
			s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0"
		}), ""},
		{"one more, balancing: of the fuller node", both(mode("least-effort"), extra), "delete *v1beta2.Replica a"},
		{"one more, off: stays", extra, ""},
		{"one more, local: one of several goes", both(mode("least-effort"), extra, local), "delete *v1beta2.Replica a"},
		{"one more, single local one stays", both(mode("least-effort"), extra, local, func(_ *v1beta2.Volume, s *seen) {
			move(s, 1, "n3")
		}), "delete *v1beta2.Replica b"},
		{"one more, not in sync yet: none goes", both(mode("least-effort"), extra, func(v *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap["c"] = v1beta2.ReplicaModeWO
			s.Replicas[2].Spec.HealthyAt = ""
			degrade(v, 0)
		}), ""},
	} {
		v, s := fixture()
		move(s, 1, "n1")
		s.Replicas[1].Status.StorageIP = "10.0.0.2" // as the fixture's engine has it
		tt.edit(v, s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}
