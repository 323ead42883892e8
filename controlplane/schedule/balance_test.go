package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ankole.storage/test/seeded"
)

// TestBalance is the table of where one more replica would spread a complete volume better.
func TestBalance(t *testing.T) {
	soft := func(r *Request) { r.Policy.SoftNode = true }
	for _, tt := range []struct {
		name     string
		nodes    []Node
		existing []Replica
		edit     func(*Request)
		want     string // node; empty for none
	}{
		{"spread over all nodes", []Node{node(1, ""), node(2, ""), node(3, "")},
			[]Replica{on("a", "1"), on("b", "2")}, soft, ""},
		{"two on one node", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "1")}, soft, "n2"},
		{"two on one node, nodes are hard", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "1")},
			nil, "n2"},
		{"no other node", []Node{node(1, "")}, []Replica{on("a", "1"), on("b", "1")}, soft, ""},
		{"the other node takes none", []Node{node(1, ""), off(node(2, ""))}, []Replica{on("a", "1"), on("b", "1")}, soft, ""},
		{"the other node lacks the tags", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "1")},
			func(r *Request) { r.Volume.NodeSelector = []string{"x"} }, ""},
		{"the other node is full", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "1")},
			func(r *Request) { r.Policy.SoftNode, r.Nodes[1].Disks[0].Available = true, gib }, ""},
		{"one zone of two", []Node{node(1, "z1"), node(2, "z1"), node(3, "z2")}, []Replica{on("a", "1"), on("b", "2")},
			soft, "n3"},
		{"a zone before a node", []Node{node(1, "z1"), node(2, "z1"), node(3, "z2")}, []Replica{on("a", "1"), on("b", "1")},
			soft, "n3"},
		{"more zones than replicas", []Node{node(1, "z1"), node(2, "z2"), node(3, "z3")},
			[]Replica{on("a", "1"), on("b", "2")}, soft, ""},
		{"nodes without a zone are one zone", []Node{node(1, ""), node(2, ""), node(3, "z")},
			[]Replica{on("a", "1"), on("b", "2")}, soft, "n3"},
		{"one has no place yet", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), {Name: "b"}}, soft, "n2"},
		{"pressure is no better spread", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "2")},
			func(r *Request) {
				r.Policy.SoftNode, r.Policy.BalancePressurePercent, r.Nodes[0].Disks[0].Available = true, 50, 40*gib
			}, ""},
		{"pressure does not hide a free node", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "1")},
			func(r *Request) {
				r.Policy.BalancePressurePercent, r.Nodes[0].Disks[0].Available = 50, 40*gib
				r.Nodes[1].Disks[0].Scheduled = 50 * gib
			}, "n2"},
	} {
		req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
			Existing: tt.existing, Nodes: tt.nodes}
		if tt.edit != nil {
			tt.edit(&req)
		}
		where, ok := Balance(req, Balancing{Wanted: len(tt.existing)})
		if !ok {
			where.NodeID = ""
		}
		if where.NodeID != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, where.NodeID, tt.want)
		}
	}
}

func off(n Node) Node { n.AllowScheduling = false; return n }

// TestBalanceKeepsToTheNode: a request that is bound to a node is balanced on that node only.
func TestBalanceKeepsToTheNode(t *testing.T) {
	req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
		Existing: []Replica{on("a", "1"), on("b", "1")}, Nodes: []Node{node(1, ""), node(2, "")}}
	req.Policy.SoftNode = true
	for hard, want := range map[string]string{"": "n2", "n1": "", "n2": "n2"} {
		req.Replica.HardNode = hard
		if where, _ := Balance(req, Balancing{Wanted: 1, Best: true}); where.NodeID != want {
			t.Errorf("bound to %q: balanced to %q, want %q", hard, where.NodeID, want)
		}
	}
}

// TestBalanceComesToRest: on drawn clusters a complete volume that adds where Balance says and then
// gives up the Extra one is on more zones, or on as many zones and more nodes, after each round,
// and so stops after few; with best effort, or is spread more evenly, or has fewer replicas on
// disks under pressure.
func TestBalanceComesToRest(t *testing.T) {
	moved, even := 0, 0
	src := seeded.New(t, "balancing a volume spreads it better each time")
	for seed := range src.Seeds(modelled / 4) {
		rng := src.Rand(1)
		req, have := crowded(rng), []Replica(nil)
		for i := range 1 + rng.IntN(5) {
			n := req.Nodes[rng.IntN(len(req.Nodes))]
			d := n.Disks[rng.IntN(len(n.Disks))]
			have = append(have, Replica{Name: fmt.Sprintf("r%d", i), NodeID: n.Name, DiskID: d.UUID})
		}
		local := ""
		if seed%2 == 0 && len(have) > 0 && countOn(have, have[0].NodeID) == 1 {
			local = have[0].NodeID
		}
		b := Balancing{Wanted: len(have), Best: rng.IntN(2) == 0, Local: local, MayLeave: map[string]bool{}}
		for _, r := range have {
			b.MayLeave[r.Name] = rng.IntN(2) == 0
		}
		if b.Best {
			req.Policy.BalancePressurePercent = int64(rng.IntN(2) * 60)
		}
		zones, nodes := spread(have, req.Nodes)
		was := evenness(have, req.Nodes, req.Policy)
		for round := 0; ; round++ {
			req.Existing = have
			where, ok := Balance(req, b)
			if !ok {
				break
			}
			if moved++; round > 4*len(have) {
				t.Fatalf("seed %d: balances without end", seed)
			}
			more := append(have[:len(have):len(have)], Replica{Name: fmt.Sprintf("x%d", round), NodeID: where.NodeID,
				DiskID: where.DiskID})
			gone := Extra(more, req.Nodes, req.Policy, b)
			have = nil
			for _, r := range more {
				if r.Name != gone {
					have = append(have, r)
				}
			}
			z, n := spread(have, req.Nodes)
			away := local != "" && countOn(have, local) == 0
			wider, evener := z > zones || z == zones && n > nodes, false
			now := evenness(have, req.Nodes, req.Policy)
			if b.Best && z == zones && n == nodes {
				even++
				evener = now.betterThan(was)
			}
			if len(have) != len(more)-1 || !wider && !evener || away {
				t.Fatalf("seed %d: from %d zones and %d nodes to %d and %d, %+v to %+v, %s goes\n%+v", seed, zones, nodes, z, n,
					was, now, gone, req)
			}
			zones, nodes, was = z, n, now
		}
	}
	if moved < modelled/40 || even < modelled/400 {
		t.Errorf("%d replicas were moved, %d of them on as many nodes: the clusters are too even", moved, even)
	}
}

// crowded draws a cluster of a few nodes in a few zones with a few disks each, some switched off.
func crowded(rng *rand.Rand) Request {
	req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"}}
	req.Policy.SoftNode, req.Policy.SoftZone = rng.IntN(2) == 0, rng.IntN(3) > 0
	for i := range 1 + rng.IntN(6) {
		n := node(i, []string{"", "z1", "z2"}[rng.IntN(3)])
		for k := range rng.IntN(3) {
			n.Disks = append(n.Disks, disk(fmt.Sprintf("d%d-%d", i, k)))
			if rng.IntN(3) == 0 {
				n.Disks[k].Available = 30 * gib
			}
		}
		n.AllowScheduling = rng.IntN(5) > 0
		req.Nodes = append(req.Nodes, n)
	}
	return req
}

func countOn(rs []Replica, node string) int {
	n := 0
	for _, r := range rs {
		if r.NodeID == node {
			n++
		}
	}
	return n
}

func spread(rs []Replica, all []Node) (zones, nodes int) {
	zoneOf, z, n := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, node := range all {
		zoneOf[node.Name] = node.Zone
	}
	for _, r := range rs {
		z[zoneOf[r.NodeID]], n[r.NodeID] = true, true
	}
	return len(z), len(n)
}
