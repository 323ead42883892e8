package schedule

// Balance finds a place for one more replica of a volume that has all of its `wanted` replicas: in
// a zone without one while they are in fewer zones than there are replicas, else on a node without
// one while they are on fewer nodes. False if there is none. It takes no disk on account of
// pressure: pressure alone makes a volume no better spread.
//
// Example: of two replicas both are on node a; node b joins: node b.
func Balance(req Request, wanted int) (Placement, bool) {
	req.Policy.BalancePressurePercent = 0
	where, why := Place(req)
	if len(why) > 0 {
		return Placement{}, false
	}
	zoneOf := map[string]string{}
	for _, n := range req.Nodes {
		zoneOf[n.Name] = n.Zone
	}
	nodes, zones := map[string]bool{}, map[string]bool{}
	for i := range req.Existing {
		if r := &req.Existing[i]; r.NodeID != "" && !r.Deleting {
			nodes[r.NodeID], zones[zoneOf[r.NodeID]] = true, true
		}
	}
	newZone := !zones[zoneOf[where.NodeID]] && len(zones) < wanted
	newNode := !nodes[where.NodeID] && len(nodes) < wanted
	return where, newZone || newNode
}
