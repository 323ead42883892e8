package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Refusal says of a node, or of one of its disks, why it does not take the replica of a request.
type Refusal struct {
	// Node is the node's name, Path the disk's; Path is empty where the whole node is refused.
	Node, Path string
	// Why is the reason in plain words.
	Why string
}

// mostRefusals is how many refusals a text names.
const mostRefusals = 8

// Explain says of every node why it does not take the replica of a request that Place has refused:
// a node that is refused whole has one entry, any other one for each of its disks. With HardNode
// set only that node is named. Nobody is named where the replica itself is at fault. Ordered by
// node and path.
func Explain(req Request) []Refusal {
	if req.Replica.NodeID != "" || unused(req.Replica) {
		return nil
	}
	s := newSearch(req, false)
	if hard := req.Replica.HardNode; hard != "" && s.nodes[hard] == nil {
		return []Refusal{{Node: hard, Why: "there is no such node"}}
	}
	var out []Refusal
	for i := range req.Nodes {
		n := &req.Nodes[i]
		if hard := req.Replica.HardNode; hard != "" && hard != n.Name {
			continue
		}
		if why := s.nodeRefusal(n); why != "" {
			out = append(out, Refusal{Node: n.Name, Why: why})
			continue
		}
		for k := range n.Disks {
			out = append(out, Refusal{Node: n.Name, Path: n.Disks[k].Path, Why: s.diskRefusal(&n.Disks[k])})
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// Describe writes refusals as one text, of at most 8 of them; empty if there are none.
//
// Example: "n1 /data: DiskPressure: 24.8 % free, more than 25 % wanted; n2: the node is not ready".
func Describe(refusals []Refusal) string {
	var parts []string
	for i, r := range refusals {
		if i == mostRefusals {
			parts = append(parts, fmt.Sprintf("and %d more", len(refusals)-i))
			break
		}
		where := r.Node
		if r.Path != "" {
			where += " " + r.Path
		}
		parts = append(parts, where+": "+r.Why)
	}
	return strings.Join(parts, "; ")
}

// nodeRefusal is empty for a node whose disks are looked at.
func (s *search) nodeRefusal(n *Node) string {
	switch {
	case n.Deleting:
		return "the node is being deleted"
	case !n.Ready:
		return "the node is not ready"
	case !n.Schedulable:
		return "the node is not schedulable"
	case !n.AllowScheduling:
		return "scheduling is switched off"
	case !s.matchesTopology(n):
		return fmt.Sprintf("zone %q, region %q: outside of the volume's topology", n.Zone, n.Region)
	case !n.RunsInstances:
		return "no instance manager runs"
	case !n.HasImage:
		return "the engine image is not ready"
	case !s.nodeTagsMatch(n):
		return s.nodeTagsRefusal(n)
	case !slices.ContainsFunc(s.order(), func(set nodeSet) bool { return len(s.members(set, []*Node{n})) > 0 }):
		if s.usedNodes[n.Name] != nil {
			return "the node has a replica of the volume"
		}
		return fmt.Sprintf("zone %q has a replica of the volume", n.Zone)
	case len(n.Disks) == 0:
		return "the node has no disk"
	}
	return ""
}

// nodeTagsRefusal and diskTagsRefusal are of a node or a disk whose tags do not match.
func (s *search) nodeTagsRefusal(n *Node) string {
	v := &s.req.Volume
	if TagsMatch(v.NodeSelector, n.Tags, s.req.Policy.AllowEmptyNodeSelector) {
		return tagsRefusal("backing image", v.Image.Node, n.Tags)
	}
	return tagsRefusal("volume", v.NodeSelector, n.Tags)
}

func (s *search) diskTagsRefusal(d *Disk) string {
	v := &s.req.Volume
	if TagsMatch(v.DiskSelector, d.Tags, s.req.Policy.AllowEmptyDiskSelector) {
		return tagsRefusal("backing image", v.Image.Disk, d.Tags)
	}
	return tagsRefusal("volume", v.DiskSelector, d.Tags)
}

// tagsRefusal says what a volume, or its backing image, asks for.
func tagsRefusal(of string, selectors, tags []string) string {
	if len(selectors) == 0 {
		return fmt.Sprintf("tags %q, and the %s asks for none", tags, of)
	}
	return fmt.Sprintf("tags %q, all of %q wanted by the %s", tags, selectors, of)
}

// diskRefusal follows diskFits.
func (s *search) diskRefusal(d *Disk) string {
	v, p := s.req.Volume, s.req.Policy
	switch {
	case d.Missing != "":
		return d.Missing
	case d.Unsupported:
		return "the disk's type is not supported"
	case !d.AllowScheduling:
		return "scheduling is switched off"
	case d.EvictionRequested:
		return "the disk is being evicted"
	case d.Hung:
		return "a process of the volume there does not end"
	case !d.Schedulable && d.Pressure:
		return "DiskPressure: " + d.spaceRefusal(0, 0, p)
	case !d.Schedulable:
		return "the disk is not ready"
	case !HoldsFile(d.Filesystem, v.Size):
		return fmt.Sprintf("it cannot hold a file of %d bytes: %s", v.Size, LargestVolume(d.Filesystem))
	case !s.diskTagsMatch(d):
		return s.diskTagsRefusal(d)
	case !d.Fits(v.Size, v.ActualSize, p):
		return "DiskPressure: " + d.spaceRefusal(v.Size, v.ActualSize, p)
	}
	return "the disk has a replica of the volume"
}

// spaceRefusal says which part of the space rule a volume of `size` with `actual` bytes breaks.
func (d *Disk) spaceRefusal(size, actual int64, p Policy) string {
	switch {
	case d.Maximum <= 0:
		return "the disk has no space"
	case d.Available-actual <= percent(d.Maximum, p.MinimalAvailablePercent):
		tenths := max(0, d.Available-actual) / max(1, d.Maximum/1000)
		after := ""
		if actual > 0 {
			after = " once the volume's data is there"
		}
		return fmt.Sprintf("%d.%d %% free%s, more than %d %% wanted", tenths/10, tenths%10, after, p.MinimalAvailablePercent)
	case d.Scheduled > percent(d.Maximum-d.Reserved, p.OverProvisioningPercent)-size:
		return fmt.Sprintf("%s promised of at most %s, %s wanted", inGiB(d.Scheduled),
			inGiB(percent(d.Maximum-d.Reserved, p.OverProvisioningPercent)), inGiB(size))
	}
	return "too little space when the node was last looked at"
}

func inGiB(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
