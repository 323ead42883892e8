package schedule

import "slices"

// Surplus names the replica to give up when a volume with a replica on its attached node has one
// too many: from the disk that holds most of the volume's replicas, else from such a node, else
// from such a zone, else from all; never the one on localNode; the first by name. Empty when every
// replica is local.
//
// Example: replicas on disks a, a, b: one of those on disk a goes.
func Surplus(replicas []Replica, nodes []Node, localNode string) string {
	zones := map[string]string{}
	for _, n := range nodes {
		zones[n.Name] = n.Zone
	}
	keys := []func(Replica) string{
		func(r Replica) string { return r.DiskID },
		func(r Replica) string { return r.NodeID },
		func(r Replica) string { return zones[r.NodeID] },
	}
	for _, key := range keys {
		if name := remote(largestGroups(replicas, key), localNode); name != "" {
			return name
		}
	}
	return remote(replicas, localNode)
}

// largestGroups returns the members of the largest groups with more than one member.
func largestGroups(replicas []Replica, key func(Replica) string) []Replica {
	size, largest := map[string]int{}, 2
	for _, r := range replicas {
		size[key(r)]++
		largest = max(largest, size[key(r)])
	}
	var out []Replica
	for _, r := range replicas {
		if size[key(r)] == largest {
			out = append(out, r)
		}
	}
	return out
}

func remote(replicas []Replica, localNode string) string {
	var names []string
	for _, r := range replicas {
		if r.NodeID != localNode {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
