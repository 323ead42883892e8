package schedule

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ankole.storage/test/seeded"
)

// The scheduler's rules once more, as questions about one disk of one node, without sets and
// without an order of search. TestPlaceFollowsTheModel and TestReuseFollowsTheModel compare the two
// over thousands of small clusters.

// modelUses lists what the volume's replicas hold of whatever key tells, and whether all of them
// are being evicted.
func modelUses(req Request, reuse bool, key func(Replica) string) map[string]bool {
	uses := map[string]bool{}
	for _, r := range req.Existing {
		holds := !r.Failed || !reuse && r.Reusable && !req.Volume.ReplacementDue
		if r.NodeID == "" || r.Deleting || !holds {
			continue
		}
		evicting, seen := uses[key(r)]
		uses[key(r)] = r.Evicting && (evicting || !seen)
	}
	return uses
}

// modelRank is how well a node keeps replicas apart, 0 best; -1: the policy forbids it.
func modelRank(req Request, reuse bool, n *Node) int {
	zoneOf := func(r Replica) string {
		for _, n := range req.Nodes {
			if n.Name == r.NodeID {
				return n.Zone
			}
		}
		return ""
	}
	nodes, zones := modelUses(req, reuse, func(r Replica) string { return r.NodeID }), modelUses(req, reuse, zoneOf)
	nodeEvicting, nodeUsed := nodes[n.Name]
	zoneEvicting, zoneUsed := zones[n.Zone]
	balancing, p := req.Policy.BalancePressurePercent > 0, req.Policy
	full := balancing && slices.ContainsFunc(n.Disks, func(d Disk) bool {
		free := max(0, d.Available-d.Reserved)
		return d.Maximum > 0 && 100*(d.Maximum-free) > p.BalancePressurePercent*d.Maximum
	})
	switch {
	case !zoneUsed:
		return 0
	case !p.SoftZone && nodeEvicting && (zoneEvicting || balancing):
		return 1
	case !p.SoftZone:
		return -1
	case !nodeUsed || full:
		return 1
	case p.SoftNode || nodeEvicting:
		return 2
	}
	return -1
}

func modelTags(selector, tags []string, empty bool) bool {
	for _, s := range selector {
		if !slices.Contains(tags, s) {
			return false
		}
	}
	return len(selector) > 0 || len(tags) == 0 || empty
}

// modelPercent is x*p/100 without overflow, rounded down.
func modelPercent(x, p int64) *big.Int {
	if x < 0 || p < 0 {
		return new(big.Int)
	}
	product := new(big.Int).Mul(big.NewInt(x), big.NewInt(p))
	return product.Div(product, big.NewInt(100))
}

// modelFits says why a disk cannot take the replica, "" if it can.
func modelFits(req Request, reuse bool, d *Disk) Reason {
	v, p := req.Volume, req.Policy
	roomy := d.Maximum > 0 && d.Available > 0 &&
		big.NewInt(d.Available).Cmp(modelPercent(d.Maximum, p.MinimalAvailablePercent)) > 0
	limit := modelPercent(d.Maximum-d.Reserved, p.OverProvisioningPercent)
	taken := new(big.Int).Add(big.NewInt(d.Scheduled), big.NewInt(v.Size))
	left := big.NewInt(d.Available - v.ActualSize)
	fits := d.Maximum > 0 && d.Available > 0 && taken.Cmp(limit) <= 0 &&
		left.Cmp(modelPercent(d.Maximum, p.MinimalAvailablePercent)) > 0
	ext := slices.Contains([]string{"ext2/ext3", "ext2", "ext3", "ext4"}, d.Filesystem)
	unusable := d.Unsupported || !d.AllowScheduling || d.EvictionRequested || d.Hung
	tags := modelTags(v.DiskSelector, d.Tags, p.AllowEmptyDiskSelector) &&
		(v.Image == nil || modelTags(v.Image.Disk, d.Tags, p.AllowEmptyDiskSelector))
	switch {
	case d.Missing != "":
		return ReasonDiskNotFound
	case unusable, reuse && !d.Ready, !d.Schedulable && !d.Pressure:
		return ReasonDisksUnavailable
	case !d.Schedulable && !(reuse && roomy):
		return ReasonInsufficientStorage
	case !reuse && ext && v.Size >= extLimit:
		return ReasonIncompatibleSize
	case !tags:
		return ReasonTagsNotFulfilled
	case !reuse && !fits:
		return ReasonInsufficientStorage
	}
	return ""
}

// spot is a disk that could take the replica.
type spot struct {
	node   *Node
	disk   *Disk
	rank   int
	shared bool
	room   int64
}

// modelSpots are the best disks of the eligible nodes, and the reasons against the others.
func modelSpots(req Request, reuse bool, nodes []*Node) ([]spot, []Reason) {
	var all []spot
	var why []Reason
	for _, n := range nodes {
		rank := modelRank(req, reuse, n)
		if rank < 0 {
			continue
		}
		if len(n.Disks) == 0 {
			why = append(why, ReasonDisksUnavailable)
		}
		for i := range n.Disks {
			d := &n.Disks[i]
			if reason := modelFits(req, reuse, d); reason != "" {
				why = append(why, reason)
				continue
			}
			shared := slices.ContainsFunc(req.Existing, func(r Replica) bool {
				return r.NodeID != "" && !r.Deleting && r.DiskID == d.UUID && (!r.Failed || r.Reusable && !reuse)
			})
			if shared && !req.Policy.SoftDisk {
				continue
			}
			all = append(all, spot{n, d, rank, shared, max(0, d.Available-d.Reserved-d.Scheduled)})
		}
	}
	if len(all) == 0 {
		return nil, why
	}
	better := func(a, b spot) int { return cmp.Compare(a.rank, b.rank) }
	best := slices.MinFunc(all, better)
	all = slices.DeleteFunc(all, func(s spot) bool { return s.rank != best.rank })
	if slices.ContainsFunc(all, func(s spot) bool { return !s.shared }) {
		all = slices.DeleteFunc(all, func(s spot) bool { return s.shared })
	}
	if limit := req.Policy.BalancePressurePercent; limit > 0 && req.Replica.HardNode != "" && !reuse {
		pressed := func(s spot) bool {
			d := s.disk
			free := max(0, d.Available-d.Reserved)
			return d.Maximum > 0 && 100*(d.Maximum-free) > limit*d.Maximum ||
				100*(req.Volume.ActualSize+d.Scheduled+d.Reserved) >= limit*d.Maximum
		}
		if !slices.ContainsFunc(all, func(s spot) bool { return !pressed(s) }) {
			return all, nil
		}
		all = slices.DeleteFunc(all, pressed)
	}
	return all, nil
}

// modelNodes are the nodes that may hold the replica, or the reason why there are none.
func modelNodes(req Request) ([]*Node, Reason) {
	v, p := req.Volume, req.Policy
	rules := []struct {
		why Reason
		ok  func(*Node) bool
	}{
		{ReasonNodesUnavailable, func(n *Node) bool { return n.Ready && n.Schedulable && n.AllowScheduling && !n.Deleting }},
		{ReasonHardAffinity, func(n *Node) bool { return req.Replica.HardNode == "" || req.Replica.HardNode == n.Name }},
		{ReasonTopology, func(n *Node) bool {
			for _, t := range v.Topology {
				if (t.Zone == n.Zone || t.Zone == "") && (t.Region == n.Region || t.Region == "") {
					return true
				}
			}
			return v.Topology == nil
		}},
		{ReasonNoEngineImage, func(n *Node) bool { return n.HasImage && n.RunsInstances }},
		{ReasonTagsNotFulfilled, func(n *Node) bool {
			return modelTags(v.NodeSelector, n.Tags, p.AllowEmptyNodeSelector) &&
				(v.Image == nil || modelTags(v.Image.Node, n.Tags, true))
		}},
	}
	var left []*Node
	for i := range req.Nodes {
		left = append(left, &req.Nodes[i])
	}
	for _, rule := range rules {
		left = slices.DeleteFunc(left, func(n *Node) bool { return !rule.ok(n) })
		if len(left) == 0 && rule.why == ReasonNodesUnavailable && req.Replica.HardNode != "" {
			rule.why = ReasonHardAffinity
		}
		known := slices.ContainsFunc(req.Nodes, func(n Node) bool { return n.Name == req.Replica.HardNode })
		if len(left) == 0 && rule.why == ReasonHardAffinity && !known {
			return nil, ReasonHardAffinity + "; " + ReasonNodeNotFound
		}
		if len(left) == 0 {
			return nil, rule.why
		}
	}
	return left, ""
}

// modelPick returns the disks among which the scheduler has to choose the first by node and disk:
// those on the local node, of the node and then of the disks whose filling leaves the rest most
// even.
func modelPick(spots []spot, v Volume) spot {
	if local := keepSpots(spots, func(s spot) bool { return s.node.Name == v.LocalNode }); len(local) > 0 {
		spots = local
	}
	slices.SortFunc(spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.disk.UUID, b.disk.UUID))
	})
	byNode := modelEven(spots, v.Size, func(s spot) string { return s.node.Name })
	if byNode == "" {
		return modelRoomiest(spots)
	}
	spots = keepSpots(spots, func(s spot) bool { return s.node.Name == byNode })
	byDisk := modelEven(spots, v.Size, func(s spot) string { return s.disk.UUID })
	if byDisk == "" {
		return modelRoomiest(spots)
	}
	return keepSpots(spots, func(s spot) bool { return s.disk.UUID == byDisk })[0]
}

func keepSpots(spots []spot, ok func(spot) bool) (kept []spot) {
	for _, s := range spots {
		if ok(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// modelEven is the group with room whose filling leaves the smallest difference, in proportion to
// what is left in all.
func modelEven(spots []spot, size int64, key func(spot) string) string {
	best, bestSpread := "", (*big.Rat)(nil)
	rooms := map[string]int64{}
	for _, s := range spots {
		rooms[key(s)] += s.room
	}
	for _, s := range spots {
		group := key(s)
		if rooms[group] < size || rooms[group] == 0 {
			continue
		}
		lowest, highest, sum := int64(1<<62), int64(0), int64(0)
		for k, room := range rooms {
			if k == group {
				room -= size
			}
			lowest, highest, sum = min(lowest, room), max(highest, room), sum+room
		}
		spread := new(big.Rat)
		if sum > 0 {
			spread = big.NewRat(highest-lowest, sum)
		}
		if bestSpread == nil || spread.Cmp(bestSpread) < 0 {
			best, bestSpread = group, spread
		}
	}
	return best
}

func modelRoomiest(spots []spot) spot {
	return slices.MinFunc(spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(b.disk.Available, a.disk.Available),
			cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.disk.UUID, b.disk.UUID))
	})
}

func modelPlace(req Request) (Placement, string) {
	if req.Replica.NodeID != "" {
		return Placement{}, string(ReasonAlreadyScheduled)
	}
	nodes, reason := modelNodes(req)
	if reason != "" {
		return Placement{}, string(reason)
	}
	spots, why := modelSpots(req, false, nodes)
	if len(spots) == 0 {
		return Placement{}, failure(why...).String()
	}
	s := modelPick(spots, req.Volume)
	return Placement{NodeID: s.node.Name, DiskID: s.disk.UUID, DiskPath: s.disk.Path}, ""
}

func modelReuse(req Request) string {
	usable := func(r Replica) bool { return r.Failed && r.Reusable && !r.Backoff && !r.Deleting && !r.Evicting }
	holds := func(d Disk) bool {
		return slices.ContainsFunc(req.Existing, func(r Replica) bool { return usable(r) && r.DiskID == d.UUID })
	}
	var nodes []*Node
	for _, n := range req.Nodes {
		n.Disks = slices.DeleteFunc(slices.Clone(n.Disks), func(d Disk) bool { return !holds(d) })
		up := n.Ready && n.Schedulable && n.AllowScheduling && !n.Deleting && n.RunsInstances && n.HasImage
		if up && len(n.Disks) > 0 && (req.Replica.HardNode == "" || req.Replica.HardNode == n.Name) {
			nodes = append(nodes, &n)
		}
	}
	spots, _ := modelSpots(req, true, nodes)
	best := Replica{}
	for _, r := range req.Existing {
		ok := usable(r) && slices.ContainsFunc(spots, func(s spot) bool { return s.disk.UUID == r.DiskID })
		newer := r.FailedAt.After(best.FailedAt) || r.FailedAt.Equal(best.FailedAt) && r.Name < best.Name
		if ok && (best.Name == "" || newer) {
			best = r
		}
	}
	return best.Name
}

// chance draws small clusters in which every rule matters now and then.
type chance struct{ *rand.Rand }

// one tells, once in n times.
func (c chance) one(n int) bool { return c.IntN(n) == 0 }

func (c chance) of(choices ...int64) int64 { return choices[c.IntN(len(choices))] }

func (c chance) tags() []string {
	return [][]string{nil, nil, nil, {"a"}, {"b"}, {"a", "b"}}[c.IntN(6)]
}

func (c chance) disk(name string) Disk {
	maximum := c.of(0, 100, 101, 107, 200, 300)
	if c.one(16) {
		return Disk{Path: "/data/" + name, Missing: "no status"}
	}
	return Disk{
		UUID: name, Path: "/data/" + name, Filesystem: []string{"ext4", "ext2/ext3", "ext2", "ext3", "xfs", ""}[c.IntN(6)],
		Unsupported: c.one(12), Tags: c.tags(), AllowScheduling: !c.one(12), EvictionRequested: c.one(12),
		Hung:  c.one(20),
		Ready: !c.one(12), Schedulable: !c.one(5), Pressure: c.one(2),
		Maximum: maximum, Available: c.of(0, 25, 26, 50, 75, 100, 100, maximum), Reserved: c.of(0, 0, 10, 30, 60),
		Scheduled: c.of(0, 0, 20, 50, 90),
	}
}

func (c chance) node(i int) Node {
	n := Node{
		Name: fmt.Sprintf("n%d", i), Zone: []string{"", "z1", "z2"}[c.IntN(3)], Region: []string{"", "r1"}[c.IntN(2)],
		Ready:       !c.one(12),
		Schedulable: !c.one(12), AllowScheduling: !c.one(12), Deleting: c.one(12), Tags: c.tags(), RunsInstances: !c.one(12),
		HasImage: !c.one(12),
	}
	for k := range c.IntN(4) {
		n.Disks = append(n.Disks, c.disk(fmt.Sprintf("d%d-%d", (i*7+3)%5, 9-k)))
	}
	return n
}

func (c chance) request() Request {
	req := Request{
		Policy: Policy{
			SoftNode: c.one(2), SoftZone: !c.one(3), SoftDisk: c.one(2),
			OverProvisioningPercent: c.of(0, 100, 150, 200, 1000, 1<<40),
			MinimalAvailablePercent: c.of(0, 0, 25, 26), AllowEmptyNodeSelector: !c.one(3), AllowEmptyDiskSelector: !c.one(3),
			BalancePressurePercent: c.of(0, 0, 50, 75, 90),
		},
		Volume: Volume{
			Name: "v", Size: c.of(0, 1, 10, 25, 50, 100, 100, extLimit-1, extLimit), ActualSize: c.of(0, 0, 1, 25),
			ReplacementDue: c.one(2),
		},
		Replica: Replica{Name: "new"},
	}
	if c.one(4) {
		req.Volume.NodeSelector = c.tags()
	}
	if c.one(4) {
		req.Volume.DiskSelector = c.tags()
	}
	if c.one(4) {
		req.Volume.Image = &Selectors{}
		if c.one(4) {
			req.Volume.Image.Node = c.tags()
		}
		if c.one(2) {
			req.Volume.Image.Disk = c.tags()
		}
	}
	for range c.IntN(3) * c.IntN(2) {
		req.Volume.Topology = append(req.Volume.Topology,
			Term{Zone: []string{"", "z1"}[c.IntN(2)], Region: []string{"", "r1"}[c.IntN(2)]})
	}
	if c.one(5) {
		req.Volume.LocalNode = fmt.Sprintf("n%d", c.IntN(6))
	}
	if c.one(8) {
		req.Replica.HardNode = fmt.Sprintf("n%d", c.IntN(6))
	}
	for i := range 1 + c.IntN(5) {
		req.Nodes = append(req.Nodes, c.node(4-i))
	}
	for i := range c.IntN(4) {
		req.Existing = append(req.Existing, c.replica(i, req.Nodes))
	}
	c.Shuffle(len(req.Existing), func(i, k int) {
		req.Existing[i], req.Existing[k] = req.Existing[k], req.Existing[i]
	})
	return req
}

func (c chance) replica(i int, nodes []Node) Replica {
	n := nodes[c.IntN(len(nodes))]
	r := Replica{
		Name: fmt.Sprintf("r%d", i), NodeID: n.Name, Deleting: c.one(5), Evicting: c.one(3), Failed: c.one(2),
		Reusable: !c.one(5),
		Backoff:  c.one(8), FailedAt: time.Unix(c.of(1, 2, 3), 0),
	}
	if len(n.Disks) > 0 {
		r.DiskID = n.Disks[c.IntN(len(n.Disks))].UUID
	}
	if c.one(12) {
		r.NodeID = "gone"
	}
	if c.one(12) {
		r.NodeID = ""
	}
	return r
}

// modelled is how many clusters are drawn; the same ones every time.
const modelled = 40000

func TestPlaceFollowsTheModel(t *testing.T) {
	placed, reasons := 0, map[string]bool{}
	src := seeded.New(t, "a replica is placed where the rules of docs/design/volume.md say")
	for seed := range src.Seeds(modelled) {
		req := chance{src.Rand(1)}.request()
		want, wantWhy := modelPlace(req)
		got, failed := Place(req)
		why := ""
		if len(failed) > 0 {
			why = failed.String()
		}
		if got != want || why != wantWhy {
			t.Fatalf("seed %d: Place = %v %q, the rules say %v %q\n%+v", seed, got, why, want, wantWhy, req)
		}
		if why == "" {
			placed++
		}
		for _, r := range failed {
			reasons[string(r)] = true
		}
	}
	if placed < modelled/10 || len(reasons) < 8 {
		t.Errorf("%d of %d were placed, and %d reasons given: the clusters are too poor", placed, modelled, len(reasons))
	}
}

func TestReuseFollowsTheModel(t *testing.T) {
	reused := 0
	src := seeded.New(t, "a failed replica is reused where the rules of docs/design/volume.md say")
	for seed := range src.Seeds(modelled) {
		req := chance{src.Rand(2)}.request()
		want, got := modelReuse(req), Reuse(req)
		if got != want {
			t.Fatalf("seed %d: Reuse = %q, the rules say %q\n%+v", seed, got, want, req)
		}
		if got != "" {
			reused++
		}
	}
	if reused < modelled/50 {
		t.Errorf("%d of %d had a replica to reuse: the clusters are too poor", reused, modelled)
	}
}
