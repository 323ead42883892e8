package schedule

import (
	"fmt"
	"testing"
	"time"
)

const gib = int64(1) << 30

// policy is the default of the settings.
func policy() Policy {
	return Policy{
		SoftZone: true, SoftDisk: true, OverProvisioningPercent: 100, MinimalAvailablePercent: 25,
		AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true,
	}
}

// node makes a node "n<i>" in the zone with one free 100 GiB disk "d<i>".
func node(i int, zone string) Node {
	return Node{
		Name: fmt.Sprintf("n%d", i), Zone: zone, Ready: true, Schedulable: true, AllowScheduling: true,
		RunsInstances: true, HasImage: true, Disks: []Disk{disk(fmt.Sprintf("d%d", i))},
	}
}

func disk(uuid string) Disk {
	return Disk{
		UUID: uuid, Path: "/data/" + uuid, Filesystem: "ext4", AllowScheduling: true, Ready: true, Schedulable: true,
		Maximum: 100 * gib, Available: 100 * gib,
	}
}

func on(name, node string) Replica {
	return Replica{Name: name, NodeID: "n" + node, DiskID: "d" + node}
}

func TestPlace(t *testing.T) {
	three := func() []Node { return []Node{node(1, ""), node(2, ""), node(3, "")} }
	edit := func(nodes []Node, i int, f func(*Node)) []Node { f(&nodes[i]); return nodes }
	all := func(nodes []Node, f func(*Node)) []Node {
		for i := range nodes {
			f(&nodes[i])
		}
		return nodes
	}
	failed := func(r Replica) Replica { r.Failed, r.Reusable = true, true; return r }
	evicting := func(r Replica) Replica { r.Evicting = true; return r }
	tests := []struct {
		name     string
		nodes    []Node
		existing []Replica
		edit     func(*Request)
		want     string // node, or the failure's text
	}{
		{name: "empty cluster", want: "nodes are unavailable"},
		{name: "first of equals", nodes: three(), want: "n1"},
		{name: "hard node anti-affinity", nodes: three(), existing: []Replica{on("a", "1"), on("b", "2")}, want: "n3"},
		{name: "no node left", nodes: three(), existing: []Replica{on("a", "1"), on("b", "2"), on("c", "3")},
			want: "replica scheduling failed"},
		{name: "soft node anti-affinity", nodes: three()[:1], existing: []Replica{on("a", "1")},
			edit: func(r *Request) { r.Policy.SoftNode = true }, want: "n1"},
		{name: "soft nodes, hard disks", nodes: three()[:1], existing: []Replica{on("a", "1")},
			edit: func(r *Request) { r.Policy.SoftNode, r.Policy.SoftDisk = true, false }, want: "replica scheduling failed"},
		{name: "unused zone first", nodes: []Node{node(1, "z1"), node(2, "z1"), node(3, "z2")},
			existing: []Replica{on("a", "1")}, want: "n3"},
		{name: "soft zone", nodes: []Node{node(1, "z1"), node(2, "z1")}, existing: []Replica{on("a", "1")}, want: "n2"},
		{name: "hard zone", nodes: []Node{node(1, "z1"), node(2, "z1")}, existing: []Replica{on("a", "1")},
			edit: func(r *Request) { r.Policy.SoftZone = false }, want: "replica scheduling failed"},
		{name: "hard zone implies hard node", nodes: []Node{node(1, "z1")}, existing: []Replica{on("a", "1")},
			edit: func(r *Request) { r.Policy.SoftZone, r.Policy.SoftNode = false, true }, want: "replica scheduling failed"},
		{name: "nodes without a zone share one", nodes: three(), existing: []Replica{on("a", "1")},
			edit: func(r *Request) { r.Policy.SoftZone = false }, want: "replica scheduling failed"},
		{name: "evicting replica lets its node be used", nodes: three()[:1],
			existing: []Replica{evicting(on("a", "1"))}, want: "n1"},
		{name: "evicting and staying replicas on one node", nodes: three()[:1],
			existing: []Replica{evicting(on("a", "1")), on("b", "1")}, want: "replica scheduling failed"},
		{name: "failed reusable replica keeps its node", nodes: three()[:1], existing: []Replica{failed(on("a", "1"))},
			want: "replica scheduling failed"},
		{name: "until a replacement is due", nodes: three()[:1], existing: []Replica{failed(on("a", "1"))},
			edit: func(r *Request) { r.Volume.ReplacementDue = true }, want: "n1"},
		{name: "node not ready", nodes: edit(three(), 0, func(n *Node) { n.Ready = false }), want: "n2"},
		{name: "node not schedulable", nodes: edit(three(), 0, func(n *Node) { n.Schedulable = false }), want: "n2"},
		{name: "node switched off", nodes: edit(three(), 0, func(n *Node) { n.AllowScheduling = false }), want: "n2"},
		{name: "node being deleted", nodes: edit(three(), 0, func(n *Node) { n.Deleting = true }), want: "n2"},
		{name: "no instance manager", nodes: edit(three(), 0, func(n *Node) { n.RunsInstances = false }), want: "n2"},
		{name: "no image anywhere", nodes: all(three(), func(n *Node) { n.HasImage = false }),
			want: "none of the node candidates contains a ready engine image"},
		{name: "hard affinity", nodes: three(), edit: func(r *Request) { r.Replica.HardNode = "n2" }, want: "n2"},
		{name: "hard affinity to a node that is down", nodes: edit(three(), 1, func(n *Node) { n.Ready = false }),
			edit: func(r *Request) { r.Replica.HardNode = "n2" }, want: "hard affinity cannot be satisfied"},
		{name: "hard affinity to a node that does not exist", nodes: three(),
			edit: func(r *Request) { r.Replica.HardNode = "n9" }, want: "hard affinity cannot be satisfied; node not found"},
		{name: "topology", nodes: []Node{node(1, "z1"), node(2, "z2")},
			edit: func(r *Request) { r.Volume.Topology = []Term{{Zone: "z2"}} }, want: "n2"},
		{name: "topology without a match", nodes: three(),
			edit: func(r *Request) {
				r.Volume.Topology = []Term{{Zone: "z2"}}
			}, want: "topology requirement cannot be satisfied"},
		{name: "node selector", nodes: edit(three(), 2, func(n *Node) { n.Tags = []string{"fast", "big"} }),
			edit: func(r *Request) { r.Volume.NodeSelector = []string{"big", "fast"} }, want: "n3"},
		{name: "node selector unmatched", nodes: three(),
			edit: func(r *Request) { r.Volume.NodeSelector = []string{"big"} }, want: "tags not fulfilled"},
		{name: "empty selector and a tagged node", nodes: edit(three(), 0, func(n *Node) { n.Tags = []string{"x"} }),
			edit: func(r *Request) { r.Policy.AllowEmptyNodeSelector = false }, want: "n2"},
		{name: "disk selector", nodes: edit(three(), 1, func(n *Node) { n.Disks[0].Tags = []string{"ssd"} }),
			edit: func(r *Request) { r.Volume.DiskSelector = []string{"ssd"} }, want: "n2"},
		{name: "disk selector unmatched", nodes: three(),
			edit: func(r *Request) { r.Volume.DiskSelector = []string{"ssd"} }, want: "tags not fulfilled"},
		{name: "node selector of the backing image", nodes: edit(three(), 2, func(n *Node) { n.Tags = []string{"fast"} }),
			edit: func(r *Request) { r.Volume.Image = &Selectors{Node: []string{"fast"}} }, want: "n3"},
		{name: "disk selector of the backing image",
			nodes: edit(three(), 1, func(n *Node) { n.Disks[0].Tags = []string{"ssd", "big"} }),
			edit: func(r *Request) {
				r.Volume.DiskSelector, r.Volume.Image = []string{"big"}, &Selectors{Disk: []string{"ssd"}}
			}, want: "n2"},
		{name: "disk selector of the backing image unmatched", nodes: three(),
			edit: func(r *Request) { r.Volume.Image = &Selectors{Disk: []string{"ssd"}} }, want: "tags not fulfilled"},
		{name: "a backing image without selectors, and tagged things",
			nodes: edit(three(), 1, func(n *Node) { n.Tags, n.Disks[0].Tags = []string{"x"}, []string{"ssd"} }),
			edit: func(r *Request) {
				r.Volume.NodeSelector, r.Volume.DiskSelector = []string{"x"}, []string{"ssd"}
				r.Volume.Image, r.Policy.AllowEmptyNodeSelector = &Selectors{}, false
			}, want: "n2"},
		{name: "a backing image without selectors, and disks that such may not have",
			nodes: edit(three(), 1, func(n *Node) { n.Disks[0].Tags = []string{"ssd"} }),
			edit: func(r *Request) {
				r.Volume.DiskSelector, r.Volume.Image = []string{"ssd"}, &Selectors{}
				r.Policy.AllowEmptyDiskSelector = false
			}, want: "tags not fulfilled"},
		{name: "disks switched off", nodes: all(three(), func(n *Node) {
			n.Disks[0].AllowScheduling = false
		}), want: "disks are unavailable"},
		{name: "disks being evicted", nodes: all(three(), func(n *Node) {
			n.Disks[0].EvictionRequested = true
		}), want: "disks are unavailable"},
		{name: "no disks", nodes: all(three(), func(n *Node) { n.Disks = nil }), want: "disks are unavailable"},
		{name: "disks without spec or status", nodes: all(three(), func(n *Node) {
			n.Disks = []Disk{{Path: "/data", Missing: "the disk has no status yet"}}
		}), want: "disk not found"},
		{name: "disk under pressure", nodes: all(three(), func(n *Node) {
			n.Disks[0].Schedulable, n.Disks[0].Pressure = false, true
		}),
			want: "insufficient storage"},
		{name: "larger than any disk", nodes: three(), edit: func(r *Request) {
			r.Volume.Size = 101 * gib
		}, want: "insufficient storage"},
		{name: "over the file system's limit", nodes: three(),
			edit: func(r *Request) {
				r.Volume.Size = 16 << 40
				r.Policy.OverProvisioningPercent = 1 << 40
			}, want: "incompatible volume size"},
		{name: "several reasons, sorted", nodes: edit(edit(three(), 0, func(n *Node) { n.Disks[0].Available = gib }),
			1, func(n *Node) { n.Disks = nil })[:2], want: "disks are unavailable; insufficient storage"},
		{name: "emptiest node", nodes: edit(edit(three(), 0, func(n *Node) { n.Disks[0].Scheduled = 20 * gib }),
			1, func(n *Node) { n.Disks[0].Scheduled = 10 * gib }), want: "n3"},
		{name: "local node first", nodes: edit(three(), 2, func(n *Node) { n.Disks[0].Scheduled = 50 * gib }),
			edit: func(r *Request) { r.Volume.LocalNode = "n3" }, want: "n3"},
		{name: "failed and never used", nodes: three(), edit: func(r *Request) {
			r.Replica.Failed = true
		}, want: "unused failed replica is not supported"},
		{name: "failed, with data once", nodes: three(), edit: func(r *Request) {
			r.Replica.Failed, r.Replica.HealthySince = true, time.Unix(1, 0)
		}, want: "n1"},
		{name: "already placed", nodes: three(), edit: func(r *Request) {
			r.Replica.NodeID = "n1"
		}, want: "replica already scheduled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
				Existing: tt.existing, Nodes: tt.nodes}
			if tt.edit != nil {
				tt.edit(&req)
			}
			place, why := Place(req)
			got := place.NodeID
			if got == "" {
				got = why.String()
			}
			if got != tt.want {
				t.Errorf("Place = %q (%v), want %q", got, place, tt.want)
			}
			if (place == Placement{}) == (len(why) == 0) {
				t.Errorf("placement %v with reasons %v", place, why)
			}
		})
	}
}

func TestFitsAtTheEdges(t *testing.T) {
	p := Policy{OverProvisioningPercent: 100, MinimalAvailablePercent: 25}
	d := Disk{Maximum: 100, Available: 60, Reserved: 30, Scheduled: 40}
	tests := []struct {
		name         string
		edit         func(*Disk, *Policy)
		size, actual int64
		want         bool
	}{
		{"exactly the rest of the provisioned limit", nil, 30, 0, true},
		{"one byte over it", nil, 31, 0, false},
		{"physical: one above the minimum", nil, 1, 34, true},
		{"physical: at the minimum is too little", nil, 1, 35, false},
		{"minimum is rounded down", func(d *Disk, _ *Policy) {
			d.Maximum, d.Available, d.Scheduled = 103, 26, 0
		}, 1, 0, true},
		{"nothing available", func(d *Disk, _ *Policy) { d.Available = 0 }, 0, 0, false},
		{"unknown maximum", func(d *Disk, _ *Policy) { d.Maximum = 0 }, 0, 0, false},
		{"over-provisioning doubles the limit", func(_ *Disk, p *Policy) { p.OverProvisioningPercent = 200 }, 100, 0, true},
		{"no provisioning at all", func(_ *Disk, p *Policy) { p.OverProvisioningPercent = 0 }, 1, 0, false},
		{"huge percentages do not overflow", func(_ *Disk, p *Policy) {
			p.OverProvisioningPercent = 1<<63 - 1
		}, 1 << 62, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, p := d, p
			if tt.edit != nil {
				tt.edit(&d, &p)
			}
			if got := d.Fits(tt.size, tt.actual, p); got != tt.want {
				t.Errorf("Fits(%d, %d) = %v, want %v", tt.size, tt.actual, got, tt.want)
			}
		})
	}
}

func TestScheduledIsCounted(t *testing.T) {
	n := node(1, "")
	n.Disks[0].Maximum, n.Disks[0].Available, n.Disks[0].Scheduled = 10*gib, 10*gib, 6*gib
	p := policy()
	p.SoftNode = true
	req := Request{Policy: p, Volume: Volume{Size: 6 * gib}, Nodes: []Node{n}, Existing: []Replica{on("a", "1")}}
	if place, why := Place(req); why.String() != "insufficient storage" {
		t.Errorf("second replica on a disk with room for one: %v, %v", place, why)
	}
	n.Disks[0].Scheduled = 4 * gib
	if place, why := Place(req); place.NodeID != "n1" {
		t.Errorf("a replica already in Scheduled was counted twice: %v, %v", place, why)
	}
}

func TestReuse(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	failed := func(name, node string, minute int) Replica {
		r := on(name, node)
		r.Failed, r.Reusable, r.FailedAt = true, true, at(minute)
		return r
	}
	three := func() []Node { return []Node{node(1, ""), node(2, ""), node(3, "")} }
	tests := []struct {
		name     string
		existing []Replica
		edit     func(*Request)
		want     string
	}{
		{name: "nothing failed", existing: []Replica{on("a", "1")}},
		{name: "the failed one", existing: []Replica{on("a", "1"), failed("b", "2", 1)}, want: "b"},
		{name: "the last to fail", existing: []Replica{failed("a", "1", 1), failed("b", "2", 2)}, want: "b"},
		{name: "not beside a working one", existing: []Replica{on("a", "1"), failed("b", "1", 1)}},
		{name: "not when used up", existing: []Replica{{Name: "b", NodeID: "n2", DiskID: "d2", Failed: true}}},
		{name: "not on a dead node", existing: []Replica{failed("b", "2", 1)}, edit: func(r *Request) {
			r.Nodes[1].Ready = false
		}},
		{name: "not without an instance manager", existing: []Replica{failed("b", "2", 1)}, edit: func(r *Request) {
			r.Nodes[1].RunsInstances = false
		}},
		{name: "not elsewhere than asked", existing: []Replica{failed("b", "2", 1)}, edit: func(r *Request) {
			r.Replica.HardNode = "n1"
		}},
		{name: "not in backoff", existing: []Replica{failed("a", "1", 1), failed("b", "2", 2)}, edit: func(r *Request) {
			r.Existing[1].Backoff = true
		}, want: "a"},
		{name: "under pressure but not full", existing: []Replica{failed("b", "2", 1)},
			edit: func(r *Request) { r.Nodes[1].Disks[0].Schedulable, r.Nodes[1].Disks[0].Pressure = false, true }, want: "b"},
		{name: "full", existing: []Replica{failed("b", "2", 1)},
			edit: func(r *Request) {
				d := &r.Nodes[1].Disks[0]
				d.Schedulable, d.Pressure, d.Available = false, true, gib
			}},
		{name: "nowhere better for one that is being deleted",
			existing: []Replica{on("w", "1"), failed("a", "1", 1), failed("b", "2", 2)},
			edit:     func(r *Request) { r.Policy.SoftNode, r.Existing[2].Deleting = true, true }, want: "a"},
		{name: "nowhere better for one that is being evicted",
			existing: []Replica{on("w", "1"), failed("a", "1", 1), failed("b", "2", 2)},
			edit:     func(r *Request) { r.Policy.SoftNode, r.Existing[2].Evicting = true, true }, want: "a"},
		{name: "space is counted already", existing: []Replica{failed("b", "2", 1)},
			edit: func(r *Request) { r.Nodes[1].Disks[0].Scheduled = 100 * gib }, want: "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Policy: policy(), Volume: Volume{Size: gib}, Existing: tt.existing, Nodes: three()}
			if tt.edit != nil {
				tt.edit(&req)
			}
			if got := Reuse(req); got != tt.want {
				t.Errorf("Reuse = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSurplus(t *testing.T) {
	nodes := []Node{node(1, "z1"), node(2, "z1"), node(3, "z2"), node(4, "z3")}
	tests := []struct {
		name     string
		replicas []Replica
		want     string
	}{
		{"same disk before same node", []Replica{on("l", "4"), {Name: "x", NodeID: "n1", DiskID: "d1b"}, on("c", "1"),
			on("b", "1")}, "b"},
		{"same node before same zone", []Replica{on("l", "4"), on("a", "3"), {Name: "z", NodeID: "n1", DiskID: "d1b"},
			on("x", "1"), on("c", "2")}, "x"},
		{"same zone", []Replica{on("l", "4"), on("a", "3"), on("y", "2"), on("x", "1")}, "x"},
		{"the fullest disk of two", []Replica{on("l", "4"), on("a", "1"), on("b", "1"), on("x", "3"), on("y", "3"),
			on("z", "3")}, "x"},
		{"else by name", []Replica{on("l", "4"), on("c", "3"), on("b", "1")}, "b"},
		{"never the local one", []Replica{on("l", "4"), {Name: "m", NodeID: "n4", DiskID: "d4b"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Surplus(tt.replicas, nodes, "n4"); got != tt.want {
				t.Errorf("Surplus = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestChoiceKeepsTheFillEven(t *testing.T) {
	n := node(1, "")
	n.Disks = []Disk{disk("a"), disk("b")}
	n.Disks[0].Scheduled = 5 * gib
	place, _ := Place(Request{Policy: policy(), Volume: Volume{Size: gib}, Nodes: []Node{n}})
	if place.DiskID != "b" || place.DiskPath != "/data/b" {
		t.Errorf("placed on %v, want the emptier disk b", place)
	}
	p := policy()
	p.OverProvisioningPercent = 1000
	n.Disks[0].Scheduled, n.Disks[1].Scheduled = 200*gib, 100*gib
	if place, why := Place(Request{Policy: p, Volume: Volume{Size: gib}, Nodes: []Node{n}}); place.NodeID != "n1" {
		t.Errorf("over-provisioned disks were refused: %v", why)
	}
}
