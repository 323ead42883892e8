package schedule

import (
	"fmt"
	"strings"
	"testing"

	"ankole.storage/test/seeded"
)

// TestExplain is the table of what is said of a node or a disk that is refused.
func TestExplain(t *testing.T) {
	const tooLarge = "n1 /data/d1: it cannot hold a file of 17592186044416 bytes: ext4 has files of less than 16384 GiB; " +
		"16777214 MiB work"
	for _, tt := range []struct {
		name string
		edit func(r *Request, n *Node, d *Disk)
		want string
	}{
		{"being deleted", func(_ *Request, n *Node, _ *Disk) { n.Deleting = true }, "n1: the node is being deleted"},
		{"not ready", func(_ *Request, n *Node, _ *Disk) { n.Ready = false }, "n1: the node is not ready"},
		{"cordoned", func(_ *Request, n *Node, _ *Disk) { n.Schedulable = false }, "n1: the node is not schedulable"},
		{"node switched off", func(_ *Request, n *Node, _ *Disk) { n.AllowScheduling = false },
			"n1: scheduling is switched off"},
		{"topology", func(r *Request, _ *Node, _ *Disk) { r.Volume.Topology = []Term{{Zone: "z2"}} },
			`n1: zone "z1", region "": outside of the volume's topology`},
		{"no instance manager", func(_ *Request, n *Node, _ *Disk) { n.RunsInstances = false },
			"n1: no instance manager runs"},
		{"no image", func(_ *Request, n *Node, _ *Disk) { n.HasImage = false }, "n1: the engine image is not ready"},
		{"node tags", func(r *Request, n *Node, _ *Disk) {
			r.Volume.NodeSelector, n.Tags = []string{"a", "b"}, []string{"a"}
		}, `n1: tags ["a"], all of ["a" "b"] wanted by the volume`},
		{"tags of a volume without", func(r *Request, n *Node, _ *Disk) {
			r.Policy.AllowEmptyNodeSelector, n.Tags = false, []string{"a"}
		}, `n1: tags ["a"], and the volume asks for none`},
		{"node in use", func(r *Request, _ *Node, _ *Disk) { r.Existing = []Replica{on("a", "1")} },
			"n1: the node has a replica of the volume"},
		{"zone in use", func(r *Request, _ *Node, _ *Disk) {
			r.Policy.SoftZone, r.Existing = false, []Replica{on("a", "2")}
			other := node(2, "z1")
			other.Ready = false
			r.Nodes = append(r.Nodes, other)
		}, `n1: zone "z1" has a replica of the volume; n2: the node is not ready`},
		{"no such node", func(r *Request, _ *Node, _ *Disk) { r.Replica.HardNode = "n9" }, "n9: there is no such node"},
		{"bound to a node that is not ready", func(r *Request, n *Node, _ *Disk) {
			r.Replica.HardNode, n.Ready = "n1", false
		}, "n1: the node is not ready"},
		{"placed already", func(r *Request, n *Node, _ *Disk) { r.Replica.NodeID, n.Ready = "n1", false }, ""},
		{"disks in order", func(_ *Request, n *Node, _ *Disk) {
			second, first := n.Disks[0], n.Disks[0]
			second.Path, first.Path, second.AllowScheduling, first.AllowScheduling = "/b", "/a", false, false
			n.Disks = []Disk{second, first}
		}, "n1 /a: scheduling is switched off; n1 /b: scheduling is switched off"},
		{"nodes in order", func(r *Request, n *Node, _ *Disk) {
			n.Ready = false
			other := node(0, "z2")
			other.Ready = false
			r.Nodes = append(r.Nodes, other)
		}, "n0: the node is not ready; n1: the node is not ready"},
		{"no such disk", func(_ *Request, _ *Node, d *Disk) { *d = Disk{Path: "/x", Missing: "the disk has no status yet"} },
			"n1 /x: the disk has no status yet"},
		{"the replica is at fault", func(r *Request, _ *Node, _ *Disk) { r.Replica.Failed = true }, ""},
		{"no disks", func(_ *Request, n *Node, _ *Disk) { n.Disks = nil }, "n1: the node has no disk"},
		{"disk's type", func(_ *Request, _ *Node, d *Disk) { d.Unsupported = true },
			"n1 /data/d1: the disk's type is not supported"},
		{"disk switched off", func(_ *Request, _ *Node, d *Disk) { d.AllowScheduling = false },
			"n1 /data/d1: scheduling is switched off"},
		{"disk hangs", func(_ *Request, _ *Node, d *Disk) { d.Hung = true },
			"n1 /data/d1: a process of the volume there does not end"},
		{"disk evicted", func(_ *Request, _ *Node, d *Disk) { d.EvictionRequested = true },
			"n1 /data/d1: the disk is being evicted"},
		{"disk not ready", func(_ *Request, _ *Node, d *Disk) { d.Schedulable = false },
			"n1 /data/d1: the disk is not ready"},
		{"pressure", func(_ *Request, _ *Node, d *Disk) {
			d.Schedulable, d.Pressure, d.Available = false, true, 24*gib+gib*85/100
		}, "n1 /data/d1: DiskPressure: 24.8 % free, more than 25 % wanted"},
		{"at the limit", func(_ *Request, _ *Node, d *Disk) { d.Available = 25 * gib },
			"n1 /data/d1: DiskPressure: 25.0 % free, more than 25 % wanted"},
		{"with the data", func(r *Request, _ *Node, _ *Disk) { r.Volume.ActualSize, r.Volume.Size = 80*gib, 90*gib },
			"n1 /data/d1: DiskPressure: 20.0 % free once the volume's data is there, more than 25 % wanted"},
		{"full beyond measure", func(r *Request, _ *Node, _ *Disk) { r.Volume.ActualSize, r.Volume.Size = 180*gib, 200*gib },
			"n1 /data/d1: DiskPressure: 0.0 % free once the volume's data is there, more than 25 % wanted"},
		{"promised", func(_ *Request, _ *Node, d *Disk) { d.Scheduled, d.Reserved = 70*gib, 29*gib+gib/2 },
			"n1 /data/d1: DiskPressure: 70.0 GiB promised of at most 70.5 GiB, 1.0 GiB wanted"},
		{"pressure that is over", func(_ *Request, _ *Node, d *Disk) { d.Schedulable, d.Pressure = false, true },
			"n1 /data/d1: DiskPressure: too little space when the node was last looked at"},
		{"pressure that is over, at both limits", func(_ *Request, _ *Node, d *Disk) {
			d.Schedulable, d.Pressure, d.Available, d.Scheduled = false, true, 25*gib+1, 100*gib
		}, "n1 /data/d1: DiskPressure: too little space when the node was last looked at"},
		{"pressure of a disk that is schedulable", func(r *Request, _ *Node, d *Disk) {
			r.Volume.DiskSelector, d.Pressure = []string{"ssd"}, true
		}, `n1 /data/d1: tags [], all of ["ssd"] wanted by the volume`},
		{"a small disk", func(_ *Request, _ *Node, d *Disk) { d.Maximum, d.Available = 1000, 240 },
			"n1 /data/d1: DiskPressure: 24.0 % free, more than 25 % wanted"},
		{"a small disk that the data would fill", func(r *Request, _ *Node, d *Disk) {
			d.Maximum, d.Available, r.Volume.ActualSize = 1000, 240, 240
		}, "n1 /data/d1: DiskPressure: 0.0 % free once the volume's data is there, more than 25 % wanted"},
		{"tenths of the disk's size", func(_ *Request, _ *Node, d *Disk) { d.Maximum, d.Available = 1e6, 240_800 },
			"n1 /data/d1: DiskPressure: 24.0 % free, more than 25 % wanted"},
		{"a failed replica that can be used again", func(r *Request, _ *Node, _ *Disk) {
			failed := on("a", "1")
			failed.Failed, failed.Reusable = true, true
			r.Existing = []Replica{failed}
		}, "n1: the node has a replica of the volume"},
		{"no figures", func(_ *Request, _ *Node, d *Disk) { d.Maximum = 0 },
			"n1 /data/d1: DiskPressure: the disk has no space"},
		{"file too large", func(r *Request, _ *Node, _ *Disk) { r.Volume.Size = extLimit },
			tooLarge},
		{"file too large, by the name that nodes report", func(r *Request, _ *Node, d *Disk) {
			r.Volume.Size, d.Filesystem = extLimit, "ext2/ext3"
		}, tooLarge},
		{"disk tags", func(r *Request, _ *Node, _ *Disk) { r.Volume.DiskSelector = []string{"ssd"} },
			`n1 /data/d1: tags [], all of ["ssd"] wanted by the volume`},
		{"node tags, for the backing image", func(r *Request, _ *Node, _ *Disk) {
			r.Volume.Image = &Selectors{Node: []string{"a"}}
		}, `n1: tags [], all of ["a"] wanted by the backing image`},
		{"disk tags, for the backing image", func(r *Request, _ *Node, _ *Disk) {
			r.Volume.Image = &Selectors{Disk: []string{"ssd"}}
		}, `n1 /data/d1: tags [], all of ["ssd"] wanted by the backing image`},
		{"tags of a backing image without", func(r *Request, _ *Node, d *Disk) {
			r.Volume.DiskSelector, r.Volume.Image, d.Tags = []string{"ssd"}, &Selectors{}, []string{"ssd"}
			r.Policy.AllowEmptyDiskSelector = false
		}, `n1 /data/d1: tags ["ssd"], and the backing image asks for none`},
		{"disk in use", func(r *Request, _ *Node, _ *Disk) {
			r.Policy.SoftNode, r.Policy.SoftDisk, r.Existing = true, false, []Replica{on("a", "1")}
		}, "n1 /data/d1: the disk has a replica of the volume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Policy: policy(), Volume: Volume{Name: "v", Size: gib}, Replica: Replica{Name: "new"},
				Nodes: []Node{node(1, "z1")}}
			tt.edit(&req, &req.Nodes[0], &req.Nodes[0].Disks[0])
			if at, why := Place(req); len(why) == 0 {
				t.Fatalf("placed at %v", at)
			}
			if got := Describe(Explain(req)); got != tt.want {
				t.Errorf("says %q, want %q", got, tt.want)
			}
		})
	}
}

// TestExplainNamesEveryPlace: of drawn requests that are refused, each node is named, or each of
// its disks; of a replica that is bound to a node, only that one.
func TestExplainNamesEveryPlace(t *testing.T) {
	refused := 0
	src := seeded.New(t, "a refused replica is told why by every node")
	for seed := range src.Seeds(modelled / 8) {
		req := chance{src.Rand(1)}.request()
		if _, why := Place(req); len(why) == 0 {
			continue
		}
		refused++
		named := map[string]int{}
		for _, r := range Explain(req) {
			if r.Why == "" {
				t.Fatalf("seed %d: nothing is said of %v", seed, r)
			}
			if named[r.Node]++; r.Path == "" {
				named[r.Node] = -1
			}
		}
		for _, n := range req.Nodes {
			bound := req.Replica.HardNode != "" && req.Replica.HardNode != n.Name
			if want := map[bool]int{true: 0, false: len(n.Disks)}[bound]; named[n.Name] != want &&
				(bound || named[n.Name] != -1) {
				t.Fatalf("seed %d: node %s is named %d times, want %d\n%+v", seed, n.Name, named[n.Name], want, req)
			}
		}
	}
	if refused < modelled/80 {
		t.Errorf("%d requests were refused: the clusters are too friendly", refused)
	}
}

func TestDescribeIsShort(t *testing.T) {
	var all []Refusal
	for i := range 20 {
		all = append(all, Refusal{Node: fmt.Sprintf("n%02d", i), Why: "the node is not ready"})
	}
	got := Describe(all)
	if !strings.HasSuffix(got, "; and 12 more") || strings.Count(got, "not ready") != mostRefusals {
		t.Errorf("says %q", got)
	}
	if got := Describe(nil); got != "" {
		t.Errorf("says %q of nothing", got)
	}
}
