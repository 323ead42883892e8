package schedule

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// cluster draws up to six nodes over three zones with up to three disks each, some of them unfit.
func cluster(t *rapid.T) []Node {
	nodes := make([]Node, rapid.IntRange(1, 6).Draw(t, "nodes"))
	for i := range nodes {
		n := node(i, rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "zone"))
		n.Ready = rapid.IntRange(0, 9).Draw(t, "ready") > 0
		n.Disks = nil
		for j := range rapid.IntRange(0, 3).Draw(t, "disks") {
			d := disk(fmt.Sprintf("d%d-%d", i, j))
			d.Maximum = rapid.Int64Range(1, 100).Draw(t, "maximum") * gib
			d.Available = rapid.Int64Range(0, d.Maximum).Draw(t, "available")
			d.Reserved = rapid.Int64Range(0, d.Maximum/2).Draw(t, "reserved")
			n.Disks = append(n.Disks, d)
		}
		nodes[i] = n
	}
	return nodes
}

func drawPolicy(t *rapid.T) Policy {
	p := policy()
	p.SoftNode, p.SoftZone, p.SoftDisk = rapid.Bool().Draw(t, "softNode"), rapid.Bool().Draw(t, "softZone"),
		rapid.Bool().Draw(t, "softDisk")
	p.OverProvisioningPercent = rapid.Int64Range(0, 300).Draw(t, "overProvisioning")
	p.MinimalAvailablePercent = rapid.Int64Range(0, 100).Draw(t, "minimalAvailable")
	return p
}

// TestManyVolumesKeepTheRules places volumes one after the other and checks after each placement
// that no hard rule is broken and no disk is over its limit.
func TestManyVolumesKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, p := cluster(t), drawPolicy(t)
		byName, disks := map[string]*Node{}, map[string]*Disk{}
		for i := range nodes {
			byName[nodes[i].Name] = &nodes[i]
			for j := range nodes[i].Disks {
				disks[nodes[i].Disks[j].UUID] = &nodes[i].Disks[j]
			}
		}
		for v := range rapid.IntRange(1, 4).Draw(t, "volumes") {
			size := rapid.Int64Range(1, 60).Draw(t, "size") * gib
			var placed []Replica
			for r := range rapid.IntRange(1, 4).Draw(t, "replicas") {
				name := fmt.Sprintf("v%d-r%d", v, r)
				req := Request{Policy: p, Volume: Volume{Size: size}, Replica: Replica{Name: name}, Existing: placed, Nodes: nodes}
				place, why := Place(req)
				if (place == Placement{}) {
					if brute := anyFits(req); brute != "" && p.SoftNode && p.SoftZone && p.SoftDisk {
						t.Fatalf("everything is soft, %s fits, yet: %v", brute, why)
					}
					continue
				}
				checkApart(t, p, byName, placed, place)
				placed = append(placed, Replica{Name: name, NodeID: place.NodeID, DiskID: place.DiskID})
				disks[place.DiskID].Scheduled += size
			}
			for uuid, d := range disks {
				if limit := percent(d.Maximum-d.Reserved, p.OverProvisioningPercent); d.Scheduled > limit {
					t.Fatalf("disk %s holds %d, over its limit of %d", uuid, d.Scheduled, limit)
				}
			}
		}
	})
}

func checkApart(t *rapid.T, p Policy, nodes map[string]*Node, placed []Replica, place Placement) {
	t.Helper()
	if n := nodes[place.NodeID]; !n.Ready {
		t.Fatalf("placed on node %s, which is not ready", n.Name)
	}
	for _, other := range placed {
		if other.NodeID == place.NodeID && (!p.SoftNode || !p.SoftZone) {
			t.Fatalf("two replicas on node %s under hard anti-affinity", place.NodeID)
		}
		if nodes[other.NodeID].Zone == nodes[place.NodeID].Zone && !p.SoftZone {
			t.Fatalf("two replicas in zone %q under hard anti-affinity", nodes[place.NodeID].Zone)
		}
		if other.DiskID == place.DiskID && !p.SoftDisk {
			t.Fatalf("two replicas on disk %s under hard anti-affinity", place.DiskID)
		}
	}
}

// anyFits names a disk that passes every rule about itself, found without the scheduler's sets.
func anyFits(req Request) string {
	s := newSearch(req, false)
	nodes, _ := s.eligibleNodes()
	for _, n := range nodes {
		for i := range n.Disks {
			if s.diskFits(&n.Disks[i]) == "" {
				return n.Disks[i].UUID
			}
		}
	}
	return ""
}

// TestInputOrderIsIrrelevant shuffles nodes, disks and replicas.
func TestInputOrderIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, p := cluster(t), drawPolicy(t)
		var existing []Replica
		for i := range rapid.IntRange(0, 3).Draw(t, "existing") {
			n := rapid.SampledFrom(nodes).Draw(t, "on")
			if len(n.Disks) == 0 {
				continue
			}
			existing = append(existing, Replica{
				Name: fmt.Sprintf("r%d", i), NodeID: n.Name, DiskID: rapid.SampledFrom(n.Disks).Draw(t, "disk").UUID,
				Evicting: rapid.Bool().Draw(t, "evicting"), Failed: rapid.Bool().Draw(t, "failed"),
				Reusable: rapid.Bool().Draw(t, "reusable"),
			})
		}
		req := Request{Policy: p, Volume: Volume{Size: gib}, Replica: Replica{Name: "new"}, Existing: existing, Nodes: nodes}
		first, firstWhy := Place(req)
		reuse := Reuse(req)

		req.Nodes = rapid.Permutation(nodes).Draw(t, "shuffled nodes")
		for i := range req.Nodes {
			if len(req.Nodes[i].Disks) > 1 {
				req.Nodes[i].Disks = rapid.Permutation(req.Nodes[i].Disks).Draw(t, "shuffled disks")
			}
		}
		if len(existing) > 1 {
			req.Existing = rapid.Permutation(existing).Draw(t, "shuffled replicas")
		}
		second, secondWhy := Place(req)
		if first != second || firstWhy.String() != secondWhy.String() {
			t.Fatalf("%v %v became %v %v", first, firstWhy, second, secondWhy)
		}
		if again := Reuse(req); again != reuse {
			t.Fatalf("reuse of %q became %q", reuse, again)
		}
	})
}
