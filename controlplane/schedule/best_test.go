package schedule

import (
	"testing"
	"time"
)

// TestBestEffort is the table of what balancing with best effort does once a volume is on as many
// zones and nodes as it can be.
func TestBestEffort(t *testing.T) {
	two := func(n Node, available int64) Node {
		second := disk("d" + n.Name[1:] + "b")
		second.Available = available
		n.Disks = append(n.Disks, second)
		return n
	}
	press := func(n Node) Node {
		n.Disks[0].Available = 20 * gib
		return n
	}
	full := func(n Node) Node {
		n.Disks[1].Scheduled = 50 * gib
		return n
	}
	for _, tt := range []struct {
		name     string
		nodes    []Node
		existing []Replica
		edit     func(*Request)
		want     string // the disk, empty for none
	}{
		{"nodes are even", []Node{node(1, ""), node(2, "")}, []Replica{on("a", "1"), on("b", "2"), on("c", "1")}, nil, ""},
		{"three and one", []Node{node(1, ""), node(2, "")},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "1"), on("d", "2")}, nil, "d2"},
		{"three and one, nodes are hard", []Node{node(1, ""), node(2, "")},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "1"), on("d", "2")},
			func(r *Request) { r.Policy.SoftNode = false }, ""},
		{"three and one, the other is off", []Node{node(1, ""), off(node(2, ""))},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "1"), on("d", "2")}, nil, ""},
		{"zones become even where nodes stay so", []Node{node(1, "z1"), node(2, "z2"), node(3, "z2"), node(4, "z2"),
			node(5, "z1"), node(6, "z3")},
			[]Replica{on("a", "1"), on("b", "2"), on("c", "3"), on("d", "4"), on("e", "6")}, nil, "d5"},
		{"even zones that would make nodes uneven", []Node{node(1, "z1"), node(2, "z2"), node(3, "z2"), node(4, "z2")},
			[]Replica{on("a", "1"), on("b", "2"), on("c", "3"), on("d", "4")}, nil, ""},
		{"a disk under pressure", []Node{press(two(node(1, ""), 90*gib)), node(2, "")}, []Replica{on("a", "1"), on("b", "2")},
			nil, "d1b"},
		{"within its node, though another one is free", []Node{press(two(node(1, ""), 90*gib)), node(2, ""), node(3, "")},
			[]Replica{on("a", "1"), on("b", "2")}, nil, "d1b"},
		{"the first by name leaves first", []Node{press(two(node(1, ""), 90*gib)), press(two(node(2, ""), 90*gib))},
			[]Replica{on("b", "2"), on("a", "1")}, func(r *Request) { r.Volume.LocalNode = "n2" }, "d1b"},
		{"what has no place does not count", []Node{node(1, ""), node(2, "")},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "2"), {Name: "d"}}, nil, ""},
		{"what is being deleted does not count", []Node{node(1, ""), node(2, "")},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "2"), {Name: "d", NodeID: "n1", DiskID: "d1", Deleting: true}},
			nil, ""},
		{"the emptiest of several", []Node{node(1, ""), node(2, ""), node(3, "")},
			[]Replica{on("a", "1"), on("b", "1"), on("c", "1"), on("d", "1"), on("e", "2"), on("f", "2"), on("g", "3")},
			nil, "d3"},
		{"not its turn", []Node{press(two(node(1, ""), 90*gib)), node(2, "")},
			[]Replica{on("b", "1"), on("a", "2")}, nil, ""},
		{"the node's other disk is under pressure too", []Node{press(two(node(1, ""), 30*gib)), node(2, "")},
			[]Replica{on("a", "1"), on("b", "2")}, nil, ""},
		{"the node's other disk would come under pressure", []Node{press(full(two(node(1, ""), 90*gib))), node(2, "")},
			[]Replica{on("a", "1"), on("b", "2")}, nil, ""},
		{"the threshold is off", []Node{press(two(node(1, ""), 90*gib)), node(2, "")}, []Replica{on("a", "1"), on("b", "2")},
			func(r *Request) { r.Policy.BalancePressurePercent = 0 }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
				Existing: tt.existing, Nodes: tt.nodes}
			req.Policy.SoftNode, req.Policy.SoftZone, req.Policy.SoftDisk = true, true, true
			req.Policy.BalancePressurePercent = 50
			if tt.edit != nil {
				tt.edit(&req)
			}
			b := Balancing{Wanted: len(tt.existing), Best: true, MayLeave: map[string]bool{"a": true}}
			if tt.want != "" && tt.existing[0].Name == "b" {
				b.MayLeave["b"] = true
			}
			where, ok := Balance(req, b)
			if where.DiskID != tt.want || ok != (tt.want != "") {
				t.Fatalf("%+v, %v, want %q", where, ok, tt.want)
			}
			if !ok {
				return
			}
			// What is placed for it later, bound to the node, is on the same disk.
			req.Replica.HardNode = where.NodeID
			if placed, why := Place(req); placed != where {
				t.Errorf("placed on %+v (%v)", placed, why)
			}
			if _, ok := Balance(req, Balancing{Wanted: len(tt.existing)}); ok {
				t.Error("least effort does it too")
			}
		})
	}
}

// TestExtra is the table of which replica goes of one too many.
func TestExtra(t *testing.T) {
	ready := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	nodes := func(edit func(n []Node)) []Node {
		all := []Node{node(1, "z1"), node(2, "z1"), node(3, "z2"), node(4, "z3")}
		for i := range all {
			all[i].ReadySince = ready
		}
		if edit != nil {
			edit(all)
		}
		return all
	}
	since := func(r Replica, d time.Duration) Replica { r.HealthySince = ready.Add(d); return r }
	flapped := func(n []Node) { n[2].ReadySince = ready.Add(31 * time.Minute) }
	down := func(r Replica) Replica { r.Down = true; return r }
	for _, tt := range []struct {
		name     string
		replicas []Replica
		nodes    func(n []Node)
		b        Balancing
		want     string
	}{
		{"the first of all", []Replica{on("b", "1"), on("a", "3"), on("c", "4")}, nil, Balancing{}, "a"},
		{"of the fullest disk", []Replica{on("b", "1"), on("c", "1"), on("a", "3")}, nil, Balancing{}, "b"},
		{"one that is down", []Replica{on("b", "1"), on("c", "1"), down(on("d", "3"))}, nil, Balancing{}, "d"},
		{"the local one stays though it is down", []Replica{on("b", "1"), on("c", "1"), down(on("d", "3"))}, nil,
			Balancing{Local: "n3"}, "b"},
		{"on a node that is not ready", []Replica{on("b", "1"), on("c", "1"), on("d", "3")},
			func(n []Node) { n[2].Ready = false }, Balancing{}, "d"},
		{"on a node that is gone", []Replica{on("b", "1"), on("c", "1"), on("d", "9")}, nil, Balancing{}, "d"},
		{"on a node that was away", []Replica{on("a", "1"), since(on("d", "3"), 0), on("e", "4")}, flapped, Balancing{}, "d"},
		{"came into sync after that", []Replica{on("a", "1"), since(on("d", "3"), time.Hour), on("e", "4")}, flapped,
			Balancing{}, "a"},
		{"another node is fuller", []Replica{on("a", "1"), on("b", "1"), since(on("d", "3"), 0)}, flapped, Balancing{}, "a"},
		{"half an hour is not more", []Replica{on("a", "1"), since(on("d", "3"), 0), on("e", "4")},
			func(n []Node) { n[2].ReadySince = ready.Add(30 * time.Minute) }, Balancing{}, "a"},
		{"best effort: of the fullest node", []Replica{on("a", "3"), {Name: "b", NodeID: "n1", DiskID: "x"},
			{Name: "c", NodeID: "n1", DiskID: "y"}, {Name: "d", NodeID: "n4", DiskID: "z"}}, nil, Balancing{Best: true}, "b"},
		{"the fullest disk before the fullest node", []Replica{on("a", "3"), on("b", "3"),
			{Name: "c", NodeID: "n1", DiskID: "x"}, {Name: "d", NodeID: "n1", DiskID: "y"},
			{Name: "e", NodeID: "n1", DiskID: "z"}}, nil, Balancing{}, "a"},
		{"best effort: the fullest node before the fullest disk", []Replica{on("a", "3"), on("b", "3"),
			{Name: "c", NodeID: "n1", DiskID: "x"}, {Name: "d", NodeID: "n1", DiskID: "y"},
			{Name: "e", NodeID: "n1", DiskID: "z"}}, nil, Balancing{Best: true}, "c"},
		{"best effort: the fullest zone before the fullest disk", []Replica{on("z", "4"), on("a", "3"), on("b", "1"),
			on("c", "2")}, nil, Balancing{Best: true}, "b"},
		{"a node that was away is as full as the fullest", []Replica{since(on("d", "3"), 0), since(on("e", "3"), 0),
			on("a", "1"), on("b", "1")}, flapped, Balancing{}, "d"},
		{"the fullest node goes before the one that was away", []Replica{on("z", "4"), since(on("d", "3"), 0), on("x", "1"),
			on("y", "1")}, flapped, Balancing{}, "x"},
		{"the fullest node, not the fullest disk, goes before the one that was away", []Replica{
			{Name: "z", NodeID: "n4", DiskID: "same"}, {Name: "y", NodeID: "n4", DiskID: "same"}, since(on("d", "3"), 0),
			{Name: "u", NodeID: "n1", DiskID: "1"}, {Name: "v", NodeID: "n1", DiskID: "2"},
			{Name: "w", NodeID: "n1", DiskID: "3"}}, flapped, Balancing{}, "u"},
		{"two nodes were away", []Replica{on("a", "1"), since(on("d", "3"), 0), since(on("e", "4"), 0)},
			func(n []Node) { flapped(n); n[3].ReadySince = n[2].ReadySince }, Balancing{}, "a"},
		{"nobody was away", []Replica{on("z", "4"), since(on("d", "3"), -time.Hour), on("x", "1")}, nil, Balancing{}, "d"},
		{"best effort: of the fullest zone", []Replica{on("a", "3"), on("b", "1"), on("c", "2")}, nil,
			Balancing{Best: true}, "b"},
		{"the disk with the least space", []Replica{on("b", "1"), on("c", "2"), on("d", "3")},
			func(n []Node) { n[1].Disks[0].Available = 90 * gib }, Balancing{Best: true}, "c"},
		{"a disk under pressure before one with less space", []Replica{on("b", "1"), on("c", "2"), on("d", "3")},
			func(n []Node) {
				n[0].Disks[0].Maximum, n[0].Disks[0].Available = 1000*gib, 400*gib
				n[1].Disks[0].Available = 90 * gib
			}, Balancing{Best: true}, "b"},
		{"all are local", []Replica{on("b", "1")}, nil, Balancing{Local: "n1"}, ""},
		{"one of several local ones", []Replica{on("b", "1"), on("c", "1")}, nil, Balancing{Local: "n1"}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy()
			p.BalancePressurePercent = 50
			if got := Extra(tt.replicas, nodes(tt.nodes), p, tt.b); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestCalmDisksFirst: a replica that is bound to a node goes to a disk that stays below the
// threshold, if the node has one; others to the disk that evens out the fill most, here the
// largest.
func TestCalmDisksFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(r *Request)
		want string
	}{
		{"bound", func(*Request) {}, "small"},
		{"not bound", func(r *Request) { r.Replica.HardNode = "" }, "large"},
		{"the threshold is off", func(r *Request) { r.Policy.BalancePressurePercent = 0 }, "large"},
		{"at the threshold", func(r *Request) { r.Nodes[0].Disks[0].Available = 500 * gib }, "large"},
		{"the other one would be at the threshold", func(r *Request) {
			r.Volume.ActualSize, r.Nodes[0].Disks[1].Scheduled, r.Nodes[0].Disks[1].Reserved = 5*gib, 25*gib, 20*gib
		}, "large"},
		{"the other one would be just below", func(r *Request) {
			r.Volume.ActualSize, r.Nodes[0].Disks[1].Scheduled, r.Nodes[0].Disks[1].Reserved = 5*gib, 25*gib, 20*gib-1
		}, "small"},
		{"the other one is under pressure too", func(r *Request) { r.Nodes[0].Disks[1].Available = 40 * gib }, "large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := node(1, "")
			large, small := disk("large"), disk("small")
			large.Maximum, large.Available = 1000*gib, 400*gib
			small.Available = 90 * gib
			n.Disks = []Disk{large, small}
			req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new", HardNode: "n1"},
				Nodes: []Node{n}}
			req.Policy.BalancePressurePercent = 50
			tt.edit(&req)
			if where, why := Place(req); where.DiskID != tt.want {
				t.Errorf("%+v (%v), want %s", where, why, tt.want)
			}
		})
	}
}

// A failed replica is rebuilt on its disk although that is under pressure and another one is not.
func TestReuseUnderPressure(t *testing.T) {
	n := node(1, "")
	calm := disk("calm")
	n.Disks[0].Available = 30 * gib
	n.Disks = append(n.Disks, calm)
	failed := func(name, disk string, at int) Replica {
		return Replica{Name: name, NodeID: "n1", DiskID: disk, Failed: true, Reusable: true,
			FailedAt: time.Date(2026, 1, 2, at, 0, 0, 0, time.UTC)}
	}
	req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{HardNode: "n1"},
		Existing: []Replica{failed("a", "calm", 1), failed("b", n.Disks[0].UUID, 2)}, Nodes: []Node{n}}
	req.Policy.BalancePressurePercent = 50
	if got := Reuse(req); got != "b" {
		t.Errorf("%q, want b, which failed last", got)
	}
}

// A cluster of one node is stable.
func TestOneNodeIsNotLate(t *testing.T) {
	n := node(1, "")
	n.ReadySince = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	b := on("b", "1")
	b.HealthySince = n.ReadySince.Add(-time.Hour)
	a := on("a", "1")
	a.HealthySince = n.ReadySince.Add(time.Hour)
	if got := Extra([]Replica{b, a}, []Node{n}, policy(), Balancing{}); got != "a" {
		t.Errorf("%q goes, want the first by name", got)
	}
}

// With best effort a volume comes onto more nodes by the scheduler's choice, as with least effort.
func TestBestEffortWidensFirst(t *testing.T) {
	nodes := []Node{node(1, ""), node(2, ""), node(3, "")}
	nodes[1].Disks[0].Available = 50 * gib
	req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
		Existing: []Replica{on("a", "1"), on("b", "1")}, Nodes: nodes}
	req.Policy.SoftNode = true
	if where, ok := Balance(req, Balancing{Wanted: 2, Best: true}); !ok || where.NodeID != "n3" {
		t.Errorf("%+v, %v, want n3, which has more room than n2", where, ok)
	}
}

// TestEvenness: what counts, and in which order.
func TestEvenness(t *testing.T) {
	all := []Node{node(1, "z1"), node(2, "z1"), node(3, "z2")}
	all[2].Disks[0].Available = 10 * gib
	p := policy()
	p.BalancePressurePercent = 50
	if got := evenness([]Replica{on("a", "1"), on("b", "1"), on("c", "2"), on("d", "3")}, all, p); got != (even{
		zones: 2, nodes: 3, byNode: 6, byZone: 10, pressed: 1}) {
		t.Errorf("%+v", got)
	}
	// Each is better than the next one.
	order := []even{{3, 3, 9, 9, 9}, {2, 4, 9, 9, 9}, {2, 3, 5, 9, 9}, {2, 3, 6, 4, 9}, {2, 3, 6, 5, 0}, {2, 3, 6, 5, 1}}
	for i := range order {
		for k := range order {
			if got := order[i].betterThan(order[k]); got != (i < k) {
				t.Errorf("%+v better than %+v: %v", order[i], order[k], got)
			}
		}
	}
}
