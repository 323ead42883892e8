package schedule

import (
	"cmp"
	"time"
)

// steadyAfter is how much newer than those of all other nodes the readiness of a node is that does
// not count as stable.
const steadyAfter = 30 * time.Minute

// even says how well a volume's replicas are spread.
type even struct {
	// zones and nodes with a replica.
	zones, nodes int
	// byNode and byZone are the sums of the squares of how many each one has: the more even the
	// smaller.
	byNode, byZone int
	// pressed are replicas on disks under pressure.
	pressed int
}

func (e even) betterThan(o even) bool {
	return cmp.Or(cmp.Compare(e.zones, o.zones), cmp.Compare(e.nodes, o.nodes), cmp.Compare(o.byNode, e.byNode),
		cmp.Compare(o.byZone, e.byZone), cmp.Compare(o.pressed, e.pressed)) > 0
}

func evenness(replicas []Replica, all []Node, p Policy) even {
	zoneOf, pressed := zonesOf(all), PressedDisks(all, p)
	onNode, inZone := map[string]int{}, map[string]int{}
	var e even
	for _, r := range replicas {
		onNode[r.NodeID]++
		inZone[zoneOf[r.NodeID]]++
		if pressed[r.DiskID] {
			e.pressed++
		}
	}
	e.zones, e.nodes = len(inZone), len(onNode)
	for _, n := range onNode {
		e.byNode += n * n
	}
	for _, n := range inZone {
		e.byZone += n * n
	}
	return e
}

func zonesOf(nodes []Node) map[string]string {
	zones := map[string]string{}
	for i := range nodes {
		zones[nodes[i].Name] = nodes[i].Zone
	}
	return zones
}

// PressedDisks are the UUIDs of the disks under pressure.
func PressedDisks(nodes []Node, p Policy) map[string]bool {
	pressed := map[string]bool{}
	for i := range nodes {
		for _, d := range nodes[i].Disks {
			if d.UnderPressure(p.BalancePressurePercent) {
				pressed[d.UUID] = true
			}
		}
	}
	return pressed
}

// unstable are the replicas on nodes that are not ready; else those on the node that became ready
// 30 minutes after every other one, if they were in sync before that. Where that node has fewer
// than the fullest one, those of the fullest one.
func unstable(replicas []Replica, nodes []Node) (out []Replica) {
	known := map[string]*Node{}
	for i := range nodes {
		known[nodes[i].Name] = &nodes[i]
	}
	for _, r := range replicas {
		if n := known[r.NodeID]; n == nil || !n.Ready {
			out = append(out, r)
		}
	}
	if len(out) > 0 {
		return out
	}
	late := lateNode(nodes)
	count := map[string]int{}
	for _, r := range replicas {
		count[r.NodeID]++
		if r.NodeID == late.Name && r.HealthySince.Before(late.ReadySince) {
			out = append(out, r)
		}
	}
	most := count[late.Name]
	for _, n := range count {
		most = max(most, n)
	}
	if len(out) > 0 && count[late.Name] < most {
		return largestGroups(replicas, func(r Replica) string { return r.NodeID })
	}
	return out
}

// lateNode is the node that became ready 30 minutes after every other one, zero if there is none.
func lateNode(nodes []Node) Node {
	for i := range nodes {
		others := 0
		for k := range nodes {
			if nodes[i].ReadySince.Sub(nodes[k].ReadySince) > steadyAfter {
				others++
			}
		}
		if others > 0 && others == len(nodes)-1 {
			return nodes[i]
		}
	}
	return Node{}
}
