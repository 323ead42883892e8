package schedule

import (
	"cmp"
	"maps"
	"slices"
)

// Balancing says how a complete volume is balanced.
type Balancing struct {
	// Wanted is how many replicas the volume is to have.
	Wanted int
	// Best: with best effort, so that nodes and zones become even and disks under pressure are left.
	Best bool
	// Local is the node whose only replica stays; empty for none.
	Local string
	// MayLeave are the replicas, by name, whose turn it is to leave a disk under pressure.
	MayLeave map[string]bool
}

// Balance finds a place for one more replica of a volume that has all of its replicas: in a zone
// without one while they are in fewer zones than there are replicas, else on a node without one
// while they are on fewer nodes. With best effort then also on the node that makes nodes, else
// zones, most even, else on another disk of the node for a replica that is to leave a disk under
// pressure. False if there is none.
//
// Each round, one replica more by Balance and one less by Extra, leaves the volume better by the
// order of evenness, so that it comes to rest.
//
// Example: of two replicas both are on node a; node b joins: node b.
func Balance(req Request, b Balancing) (Placement, bool) {
	have := placed(req.Existing)
	spread := req
	spread.Policy.BalancePressurePercent = 0 // pressure alone makes a volume no better spread
	if where, ok := widen(spread, have, b.Wanted); ok || !b.Best {
		return where, ok
	}
	after := func(where Placement, p Policy) even {
		more := append(slices.Clone(have), Replica{NodeID: where.NodeID})
		gone := Extra(more, req.Nodes, req.Policy, b)
		return evenness(slices.DeleteFunc(more, func(r Replica) bool { return r.Name == gone }), req.Nodes, p)
	}
	var best Placement
	found, most := false, evenness(have, req.Nodes, spread.Policy)
	for _, n := range slices.Sorted(maps.Keys(zonesOf(req.Nodes))) {
		if hard := req.Replica.HardNode; hard != "" && hard != n {
			continue
		}
		bound := spread
		bound.Replica.HardNode = n
		where, why := Place(bound)
		if len(why) > 0 {
			continue
		}
		if e := after(where, spread.Policy); e.betterThan(most) {
			best, found, most = where, true, e
		}
	}
	if found {
		return best, true
	}
	return relieve(req, have, b, func(where Placement) bool {
		return after(where, req.Policy).betterThan(evenness(have, req.Nodes, req.Policy))
	})
}

// placed are the replicas that have a place and keep it.
func placed(replicas []Replica) []Replica {
	return slices.DeleteFunc(slices.Clone(replicas), func(r Replica) bool { return r.NodeID == "" || r.Deleting })
}

// widen finds a place in a zone, else on a node, without a replica of the volume.
func widen(req Request, have []Replica, wanted int) (Placement, bool) {
	where, why := Place(req)
	if len(why) > 0 {
		return Placement{}, false
	}
	zoneOf := zonesOf(req.Nodes)
	nodes, zones := map[string]bool{}, map[string]bool{}
	for _, r := range have {
		nodes[r.NodeID], zones[zoneOf[r.NodeID]] = true, true
	}
	newZone := !zones[zoneOf[where.NodeID]] && len(zones) < wanted
	newNode := !nodes[where.NodeID] && len(nodes) < wanted
	return where, newZone || newNode
}

// relieve finds another disk of its node for the first replica, by name, that is to leave a disk
// under pressure.
func relieve(req Request, have []Replica, b Balancing, better func(Placement) bool) (Placement, bool) {
	leaving := slices.DeleteFunc(slices.Clone(have), func(r Replica) bool { return !b.MayLeave[r.Name] })
	slices.SortFunc(leaving, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range leaving {
		bound := req
		bound.Replica.HardNode = r.NodeID
		where, _ := Place(bound)
		calm := slices.ContainsFunc(req.Nodes, func(n Node) bool {
			return slices.ContainsFunc(n.Disks, func(d Disk) bool {
				return d.UUID == where.DiskID && d.staysCalm(req.Volume.ActualSize, req.Policy.BalancePressurePercent)
			})
		})
		if calm && better(where) {
			return where, true
		}
	}
	return Placement{}, false
}

// Extra names the replica to give up of a volume that balances and has one too many; never the only
// one on b.Local. All have a place. The candidates are, in this order: replicas that are down;
// those on a node that is not stable; with best effort those on the fullest node, else in the
// fullest zone; those that Surplus chooses from. Of these one on a disk under pressure goes, else
// one on the disk with the least available space, else the first by name. Empty if there is none.
func Extra(replicas []Replica, nodes []Node, p Policy, b Balancing) string {
	local, here := b.Local, 0
	for _, r := range replicas {
		if r.NodeID == local {
			here++
		}
	}
	if here > 1 {
		local = "" // one of several may go
	}
	remote := func(rs []Replica) []Replica {
		return slices.DeleteFunc(slices.Clone(rs), func(r Replica) bool { return r.NodeID == local })
	}
	zoneOf := zonesOf(nodes)
	disk := func(r Replica) string { return r.DiskID }
	node := func(r Replica) string { return r.NodeID }
	zone := func(r Replica) string { return zoneOf[r.NodeID] }
	sets := [][]Replica{
		slices.DeleteFunc(slices.Clone(replicas), func(r Replica) bool { return !r.Down }),
		unstable(replicas, nodes),
	}
	if b.Best {
		sets = append(sets, largestGroups(replicas, node), largestGroups(replicas, zone))
	}
	sets = append(sets, largestGroups(replicas, disk), largestGroups(replicas, node), largestGroups(replicas, zone),
		replicas)
	for _, set := range sets {
		if found := remote(set); len(found) > 0 {
			return leastNeeded(found, nodes, p)
		}
	}
	return ""
}

// leastNeeded is the one to go, of replicas of which each may.
func leastNeeded(replicas []Replica, nodes []Node, p Policy) string {
	pressed, available := PressedDisks(nodes, p), map[string]int64{}
	for i := range nodes {
		for _, d := range nodes[i].Disks {
			available[d.UUID] = d.Available
		}
	}
	rank := func(r Replica) int {
		if pressed[r.DiskID] {
			return 0
		}
		return 1
	}
	return slices.MinFunc(replicas, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(available[a.DiskID], available[b.DiskID]),
			cmp.Compare(a.Name, b.Name))
	}).Name
}
