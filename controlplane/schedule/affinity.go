package schedule

// The candidate sets, by what holds of a node (see byAffinity for their order).
type nodeSet int

const (
	unusedZone   nodeSet = iota // no replica in its zone
	unusedNode                  // no replica on it (or, balancing with best effort, one of its disks is under pressure)
	evictingZone                // all its replicas, and all of its zone, are being evicted
	evictingNode                // all its replicas are being evicted
	anyUsedNode                 // used
)

// byAffinity walks the candidate sets that the policy allows, best first, and returns the disks of
// the first set that has any. Without one the reasons of every attempt are collected.
func (s *search) byAffinity(nodes []*Node) ([]candidate, Failure) {
	var why Failure
	for _, set := range s.order() {
		found, reasons := s.disksOf(s.members(set, nodes))
		if len(found) > 0 {
			return found, nil
		}
		why = Join(why, reasons)
	}
	return nil, why
}

// order lists the sets to try. Hard zones imply hard nodes.
func (s *search) order() []nodeSet {
	switch p := s.req.Policy; {
	case !p.SoftZone:
		return []nodeSet{unusedZone, evictingZone}
	case !p.SoftNode:
		return []nodeSet{unusedZone, unusedNode, evictingNode}
	default:
		return []nodeSet{unusedZone, unusedNode, anyUsedNode}
	}
}

func (s *search) members(set nodeSet, nodes []*Node) []*Node {
	return keep(nodes, func(n *Node) bool {
		node, zone := s.usedNodes[n.Name], s.usedZones[n.Zone]
		balancing := s.req.Policy.BalancePressurePercent > 0
		switch set {
		case unusedZone:
			return zone == nil
		case unusedNode:
			return node == nil || (balancing && s.hasPressure(n))
		case evictingZone:
			return node != nil && node.evictingOnly && (zone.evictingOnly || balancing)
		case evictingNode:
			return node != nil && node.evictingOnly
		case anyUsedNode:
			return node != nil
		}
		return false
	})
}

func (s *search) hasPressure(n *Node) bool {
	for i := range n.Disks {
		if n.Disks[i].UnderPressure(s.req.Policy.BalancePressurePercent) {
			return true
		}
	}
	return false
}

// disksOf returns the fitting disks of the nodes. Disks without a replica of this volume come
// first; the others are taken only when there is none of those and the policy lets replicas share a
// disk.
func (s *search) disksOf(nodes []*Node) ([]candidate, Failure) {
	var free, shared []candidate
	var why Failure
	for _, n := range nodes {
		if len(n.Disks) == 0 {
			why = why.with(ReasonDisksUnavailable)
		}
		for i := range n.Disks {
			d := &n.Disks[i]
			if reason := s.diskFits(d); reason != "" {
				why = why.with(reason)
				continue
			}
			c := candidate{node: n, disk: d, usable: d.usable()}
			if s.usedDisks[d.UUID] {
				shared = append(shared, c)
			} else {
				free = append(free, c)
			}
		}
	}
	if len(free) == 0 && s.req.Policy.SoftDisk {
		free = shared
	}
	return s.preferCalm(free), why
}

// preferCalm leaves out disks under pressure for a replica that is bound to a node, as balancing
// with best effort makes them, if another disk of that node stays below the threshold with it.
func (s *search) preferCalm(found []candidate) []candidate {
	if s.reuse || s.req.Replica.HardNode == "" {
		return found
	}
	var calm []candidate
	for _, c := range found {
		if c.disk.staysCalm(s.req.Volume.ActualSize, s.req.Policy.BalancePressurePercent) {
			calm = append(calm, c)
		}
	}
	if len(calm) > 0 {
		return calm
	}
	return found
}

// reusableDisks are the disks whose failed replica of this volume may be rebuilt in place: the
// search is made over the nodes and disks of those replicas only.
func (s *search) reusableDisks() map[string]bool {
	wanted := map[string]bool{}
	for i := range s.req.Existing {
		if r := &s.req.Existing[i]; r.Failed && r.Reusable && !r.Deleting && !r.Evicting && !r.Backoff {
			wanted[r.DiskID] = true
		}
	}
	var nodes []*Node
	for i := range s.req.Nodes {
		n := s.req.Nodes[i]
		if hard := s.req.Replica.HardNode; hard != "" && hard != n.Name {
			continue
		}
		if n.Deleting || !n.Ready || !n.Schedulable || !n.AllowScheduling || !n.RunsInstances || !n.HasImage {
			continue
		}
		var disks []Disk
		for _, d := range n.Disks {
			if wanted[d.UUID] {
				disks = append(disks, d)
			}
		}
		if len(disks) == 0 {
			continue
		}
		n.Disks = disks
		nodes = append(nodes, &n)
	}
	found, _ := s.byAffinity(nodes)
	out := map[string]bool{}
	for _, c := range found {
		out[c.disk.UUID] = true
	}
	return out
}
