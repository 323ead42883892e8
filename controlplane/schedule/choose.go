package schedule

import (
	"cmp"
	"slices"
)

// usable is the room of a disk for full volume sizes.
func (d Disk) usable() int64 { return max(0, d.Available-d.Reserved-d.Scheduled) }

// choose picks among candidates (at least one): the local node if it is among them, then the node,
// then the disk of that node, whose taking leaves the fill most even.
func choose(candidates []candidate, v Volume) candidate {
	var local []candidate
	for _, c := range candidates {
		if c.node.Name == v.LocalNode {
			local = append(local, c)
		}
	}
	if len(local) > 0 {
		candidates = local
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.disk.UUID, b.disk.UUID))
	})
	var names []string
	room := map[string]int64{}
	for _, c := range candidates {
		if _, ok := room[c.node.Name]; !ok {
			names = append(names, c.node.Name)
		}
		room[c.node.Name] = saturatingAdd(room[c.node.Name], c.usable)
	}
	values := make([]int64, len(names))
	for i, n := range names {
		values[i] = room[n]
	}
	node := mostEven(values, v.Size)
	if node < 0 {
		return withMostSpace(candidates)
	}
	var disks []candidate
	var usable []int64
	for _, c := range candidates {
		if c.node.Name == names[node] {
			disks, usable = append(disks, c), append(usable, c.usable)
		}
	}
	disk := mostEven(usable, v.Size)
	if disk < 0 {
		// The node has the room only as the sum of its disks (over-provisioning): take its
		// withMostSpace disk.
		return withMostSpace(disks)
	}
	return disks[disk]
}

// mostEven returns the index whose reduction by size leaves the smallest (max-min)/mean over all
// values; the first of equals. -1 when no value has the room.
func mostEven(values []int64, size int64) int {
	best, bestImbalance := -1, 0.0
	for i, v := range values {
		if v < size || v == 0 {
			continue
		}
		after := slices.Clone(values)
		after[i] -= size
		if im := imbalance(after); best < 0 || im < bestImbalance {
			best, bestImbalance = i, im
		}
	}
	return best
}

// imbalance compares choices among as many values, so that their sum stands for their mean.
func imbalance(values []int64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	if sum == 0 {
		return 0
	}
	return float64(slices.Max(values)-slices.Min(values)) / sum
}

// withMostSpace is the choice when no disk has room for the full size, which over-provisioning
// allows: most usable, then most available, then first by name.
func withMostSpace(candidates []candidate) candidate {
	return slices.MinFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.usable, a.usable), cmp.Compare(b.disk.Available, a.disk.Available),
			cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.disk.UUID, b.disk.UUID))
	})
}
