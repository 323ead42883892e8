package schedule

import (
	"fmt"
	"slices"
)

// extLimit is the largest file of an ext4 file system with 4 KiB blocks, exclusive; xfsLimit that
// of XFS.
const (
	extLimit int64 = 16 << 40
	xfsLimit int64 = 1<<63 - 1
)

// eligibleNodes applies the node rules that look at one node alone.
func (s *search) eligibleNodes() ([]*Node, Failure) {
	var up []*Node
	for i := range s.req.Nodes {
		n := &s.req.Nodes[i]
		if !n.Deleting && n.Ready && n.Schedulable && n.AllowScheduling {
			up = append(up, n)
		}
	}
	if hard := s.req.Replica.HardNode; hard != "" {
		up = keep(up, func(n *Node) bool { return n.Name == hard })
		if s.nodes[hard] == nil {
			return nil, failure(ReasonHardAffinity, ReasonNodeNotFound)
		}
		if len(up) == 0 {
			return nil, failure(ReasonHardAffinity)
		}
	}
	if len(up) == 0 {
		return nil, failure(ReasonNodesUnavailable)
	}
	if up = keep(up, s.matchesTopology); len(up) == 0 {
		return nil, failure(ReasonTopology)
	}
	if up = keep(up, func(n *Node) bool { return n.RunsInstances && n.HasImage }); len(up) == 0 {
		return nil, failure(ReasonNoEngineImage)
	}
	if up = keep(up, s.nodeTagsMatch); len(up) == 0 {
		return nil, failure(ReasonTagsNotFulfilled)
	}
	return up, nil
}

func (s *search) matchesTopology(n *Node) bool {
	terms := s.req.Volume.Topology
	if len(terms) == 0 {
		return true
	}
	return slices.ContainsFunc(terms, func(t Term) bool {
		return (t.Zone == "" || t.Zone == n.Zone) && (t.Region == "" || t.Region == n.Region)
	})
}

func (s *search) nodeTagsMatch(n *Node) bool {
	v := &s.req.Volume
	return TagsMatch(v.NodeSelector, n.Tags, s.req.Policy.AllowEmptyNodeSelector) &&
		(v.Image == nil || TagsMatch(v.Image.Node, n.Tags, true))
}

func (s *search) diskTagsMatch(d *Disk) bool {
	v, empty := &s.req.Volume, s.req.Policy.AllowEmptyDiskSelector
	return TagsMatch(v.DiskSelector, d.Tags, empty) && (v.Image == nil || TagsMatch(v.Image.Disk, d.Tags, empty))
}

// TagsMatch: every selector must be among the tags; without selectors tagged things are taken only
// if allowed.
func TagsMatch(selectors, tags []string, allowEmpty bool) bool {
	if len(selectors) == 0 {
		return allowEmpty || len(tags) == 0
	}
	for _, want := range selectors {
		if !slices.Contains(tags, want) {
			return false
		}
	}
	return true
}

// diskFits applies the disk rules that look at one disk alone. An empty reason means it fits.
func (s *search) diskFits(d *Disk) Reason {
	v, p := s.req.Volume, s.req.Policy
	if d.Missing != "" {
		return ReasonDiskNotFound
	}
	if d.Unsupported || !d.AllowScheduling || d.EvictionRequested || d.Hung {
		return ReasonDisksUnavailable
	}
	if s.reuse {
		return s.reuseFits(d)
	}
	if !d.Schedulable {
		// A disk that only lacks space says so: "insufficient storage" tells the user what to mend.
		if d.Pressure {
			return ReasonInsufficientStorage
		}
		return ReasonDisksUnavailable
	}
	if !HoldsFile(d.Filesystem, v.Size) {
		return ReasonIncompatibleSize
	}
	if !s.diskTagsMatch(d) {
		return ReasonTagsNotFulfilled
	}
	if !d.Fits(v.Size, v.ActualSize, p) {
		return ReasonInsufficientStorage
	}
	return ""
}

// reuseFits is the weaker test for the disk of a replica that is there already.
func (s *search) reuseFits(d *Disk) Reason {
	if !d.Ready || (!d.Schedulable && !d.Pressure) {
		return ReasonDisksUnavailable
	}
	if !d.Schedulable && !d.notFull(s.req.Policy) {
		return ReasonInsufficientStorage
	}
	if !s.diskTagsMatch(d) {
		return ReasonTagsNotFulfilled
	}
	return ""
}

// Fits is the space rule: after taking a volume of `size` that occupies `actual` bytes now, more
// than the minimum stays physically free, and the sum of full sizes stays within the
// over-provisioning limit. With 0 and 0 it is the rule of the disk condition Schedulable.
func (d Disk) Fits(size, actual int64, p Policy) bool {
	if d.Maximum <= 0 || size < 0 || actual < 0 {
		return false
	}
	physical := d.Available-actual > percent(d.Maximum, p.MinimalAvailablePercent)
	limit := percent(d.Maximum-d.Reserved, p.OverProvisioningPercent)
	provisioned := d.Scheduled <= limit-size
	return physical && provisioned
}

// Room is the largest size that Fits takes of a replica that occupies nothing yet, 0 for none.
func (d Disk) Room(p Policy) int64 {
	room := percent(d.Maximum-d.Reserved, p.OverProvisioningPercent) - d.Scheduled
	if !d.Fits(room, 0, p) { // nor does anything below 0
		return 0
	}
	return room
}

// notFull accepts a disk for a replica that is there already although the disk is under pressure.
func (d Disk) notFull(p Policy) bool {
	return d.Maximum > 0 && d.Available > percent(d.Maximum, p.MinimalAvailablePercent)
}

// UnderPressure says whether the disk is fuller than `thresholdPercent`; 0 turns the question off.
func (d Disk) UnderPressure(thresholdPercent int64) bool {
	if thresholdPercent <= 0 || d.Maximum <= 0 {
		return false
	}
	free := max(0, d.Available-d.Reserved)
	return float64(free)*100/float64(d.Maximum) < float64(100-thresholdPercent)
}

// staysCalm says whether a disk that is not under pressure stays below the threshold with a replica
// that occupies `actual` bytes, everything that is promised on the disk counted in full.
func (d Disk) staysCalm(actual, thresholdPercent int64) bool {
	promised := float64(actual) + float64(d.Scheduled) + float64(d.Reserved)
	return !d.UnderPressure(thresholdPercent) && promised*100/float64(d.Maximum) < float64(thresholdPercent)
}

// extName is what nodes report for every extended file system, as clients expect.
const extName = "ext2/ext3"

// HoldsFile says whether a sparse file of that size can exist on the file system.
func HoldsFile(filesystem string, size int64) bool {
	limit, known := fileLimit(filesystem)
	return !known || size < limit
}

// fileLimit is the size that no file of a file system has.
func fileLimit(filesystem string) (bytes int64, known bool) {
	switch filesystem {
	case extName, "ext2", "ext3", "ext4":
		return extLimit, true
	case "xfs":
		return xfsLimit, true
	}
	return 0, false
}

// LargestVolume says which size works of a device of a volume that HoldsFile refuses, in units that
// a client can name.
func LargestVolume(filesystem string) string {
	const grain = 2 << 20 // sizes are multiples of it
	limit, _ := fileLimit(filesystem)
	return fmt.Sprintf("%s has files of less than %d GiB; %d MiB work", FilesystemText(filesystem), limit>>30,
		(limit-grain)>>20)
}

// FilesystemText names a file system for people. Clients know extended file systems of all
// generations by the name of the older ones; what is made today is ext4.
func FilesystemText(filesystem string) string {
	if filesystem == extName {
		return "ext4"
	}
	return filesystem
}

// percent is x*p/100 rounded down, without overflow in between; saturates at the largest integer.
func percent(x, p int64) int64 {
	if x <= 0 || p <= 0 {
		return 0
	}
	const largest = 1<<63 - 1
	if x/100 >= largest/p-1 {
		return largest
	}
	return x/100*p + x%100*p/100
}

func saturatingAdd(a, b int64) int64 {
	if a > 1<<63-1-b {
		return 1<<63 - 1
	}
	return a + b
}

func keep(nodes []*Node, ok func(*Node) bool) []*Node {
	var out []*Node
	for _, n := range nodes {
		if ok(n) {
			out = append(out, n)
		}
	}
	return out
}
