// Package schedule decides where a replica goes.
//
// A replica is placed on a disk of a node. The choice is made in three steps, each in a file of its
// own:
//
//  1. eligible.go: which nodes and which of their disks could hold the replica at all (state, tags,
//     topology, space);
//  2. affinity.go: which of those keep the replicas of the volume apart as the three anti-affinity
//     levels ask (zone, node, disk; each hard or soft);
//  3. choose.go: which of the rest leaves the fill of nodes and disks most even.
//
// Everything here is a pure function of its arguments: no cluster, clock or randomness, and the
// order of the input makes no difference to the answer. When nothing fits, the answer is the set of
// reasons, in the words that users of the Longhorn system know from the volume's condition
// Scheduled.
//
// Sizes are bytes throughout.
package schedule

import "time"

// Policy is the scheduling policy in force for one volume: the settings, after the volume's own
// overrides.
type Policy struct {
	// SoftNode, SoftZone and SoftDisk allow replicas of the volume to share a node, a zone, a disk.
	// Hard zones imply hard nodes.
	SoftNode, SoftZone, SoftDisk bool
	// OverProvisioningPercent limits the sum of volume sizes on a disk, in percent of what is not
	// reserved.
	OverProvisioningPercent int64
	// MinimalAvailablePercent of the disk's maximum must stay free.
	MinimalAvailablePercent int64
	// AllowEmptyNodeSelector and AllowEmptyDiskSelector let a volume without selectors use tagged
	// nodes and disks.
	AllowEmptyNodeSelector, AllowEmptyDiskSelector bool
	// BalancePressurePercent is the used share of a disk from which best-effort balancing may use
	// another disk of the same node; 0 turns that off. It is non-zero only where the volume
	// balances with best effort.
	BalancePressurePercent int64
}

// Term is one alternative of a topology requirement. An empty field matches anything.
type Term struct{ Zone, Region string }

// Selectors are the tags that a node and a disk must have.
type Selectors struct{ Node, Disk []string }

// Volume is what the scheduler must know of a volume.
type Volume struct {
	Name string
	// Size is the full size, ActualSize what it occupies now (0 for a new volume).
	Size, ActualSize           int64
	NodeSelector, DiskSelector []string
	// Image is what the backing image asks for, whose copy lies beside each replica; nil: the volume
	// has none.
	Image    *Selectors
	Topology []Term
	// LocalNode is the node whose disks come first: the attached node of a best-effort local volume
	// that has no replica there. Empty otherwise.
	LocalNode string
	// ReplacementDue: the volume is degraded and the replenishment wait is over, so failed replicas
	// that might still be reused no longer keep their node to themselves.
	ReplacementDue bool
}

// Node is a storage node with its disks.
type Node struct {
	Name, Zone, Region string
	// Ready and Schedulable are the node's conditions, AllowScheduling its switch.
	Ready, Schedulable, AllowScheduling bool
	Deleting                            bool
	Tags                                []string
	// RunsInstances: a default instance manager is running there. HasImage: the replica's engine
	// image is ready there.
	RunsInstances, HasImage bool
	// ReadySince is when it became ready last; zero if that is not known.
	ReadySince time.Time
	Disks      []Disk
}

// Disk is one data directory of a node.
type Disk struct {
	UUID, Path string
	// Missing says what there is not of the disk, its part in the node's spec or in its status; empty
	// for a disk that has both. Of a disk that has not, only Path is known.
	Missing string
	// Filesystem is the type the kernel reports (ext2/ext3, ext4, xfs, …).
	Filesystem string
	// Unsupported: the disk is not of type filesystem.
	Unsupported                        bool
	Tags                               []string
	AllowScheduling, EvictionRequested bool
	// Hung: a process of the volume that was to be rebuilt there does not end.
	Hung bool
	// Ready and Schedulable are its conditions; Pressure: Schedulable is False for lack of space only.
	Ready, Schedulable, Pressure bool
	// Maximum and Available describe the file system, Reserved is what the administrator keeps
	// back, Scheduled the full size of everything assigned to the disk, this volume's other replicas
	// included.
	Maximum, Available, Reserved, Scheduled int64
}

// Replica is a replica of the volume being placed.
type Replica struct {
	Name           string
	NodeID, DiskID string
	// HardNode is the only node allowed, empty for any.
	HardNode string
	Deleting bool
	Evicting bool
	Failed   bool
	// Reusable says of a failed replica that it may still be rebuilt from what it has.
	Reusable bool
	// Backoff says of a failed replica that its last rebuild failed too recently to try again.
	Backoff  bool
	FailedAt time.Time
	// Down: its node is lost, or its instance manager does not run.
	Down bool
	// HealthySince is when it came into sync; zero if it is not.
	HealthySince time.Time
}

// Request asks for one placement.
type Request struct {
	Policy Policy
	Volume Volume
	// Replica is the one to place; it is not in Existing.
	Replica Replica
	// Existing are the volume's other replicas.
	Existing []Replica
	Nodes    []Node
}

// Placement is where a replica goes. The zero value means nowhere.
type Placement struct {
	NodeID, DiskID, DiskPath string
}

// Place finds the disk for the request's replica. When there is none, the second result says why
// and is not empty.
func Place(req Request) (Placement, Failure) {
	if req.Replica.NodeID != "" {
		return Placement{}, failure(ReasonAlreadyScheduled)
	}
	if unused(req.Replica) {
		return Placement{}, failure(ReasonUnusedFailed)
	}
	s := newSearch(req, false)
	nodes, why := s.eligibleNodes()
	if len(why) > 0 {
		return Placement{}, why
	}
	candidates, why := s.byAffinity(nodes)
	if len(candidates) == 0 {
		if len(why) == 0 {
			// Anti-affinity alone left nothing: no node or disk is at fault.
			why = failure(ReasonGeneric)
		}
		return Placement{}, why
	}
	c := choose(candidates, req.Volume)
	return Placement{NodeID: c.node.Name, DiskID: c.disk.UUID, DiskPath: c.disk.Path}, nil
}

// unused says of a replica that it has failed before it ever held data: it is given up, and not
// placed.
func unused(r Replica) bool { return r.Failed && r.HealthySince.IsZero() }

// Reuse picks, among the failed replicas in Existing, the one to rebuild instead of making a new
// one: the most recently failed whose node and disk work and whose place the anti-affinity rules
// still allow. Space is not asked for: it is counted already. Empty when there is none. The
// request's Replica only carries HardNode here.
func Reuse(req Request) string {
	s := newSearch(req, true)
	var best *Replica
	allowed := s.reusableDisks()
	for i := range req.Existing {
		r := &req.Existing[i]
		if !r.Failed || !r.Reusable || r.Backoff || r.Deleting || r.Evicting || !allowed[r.DiskID] {
			continue
		}
		if best == nil || r.FailedAt.After(best.FailedAt) || (r.FailedAt.Equal(best.FailedAt) && r.Name < best.Name) {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

// candidate is a disk that may be chosen.
type candidate struct {
	node *Node
	disk *Disk
	// usable is the room left for full volume sizes.
	usable int64
}

// search is one question with the facts derived from it.
type search struct {
	req Request
	// reuse: the search looks for failed replicas to rebuild, not for a new place.
	reuse bool
	nodes map[string]*Node
	// used are the nodes and zones that hold replicas of this volume.
	usedNodes, usedZones map[string]*occupancy
	// usedDisks hold a replica of this volume.
	usedDisks map[string]bool
}

// occupancy says how a node or zone is used.
type occupancy struct{ evictingOnly bool }

func newSearch(req Request, reuse bool) *search {
	s := &search{
		req: req, reuse: reuse,
		nodes:     make(map[string]*Node, len(req.Nodes)),
		usedNodes: map[string]*occupancy{}, usedZones: map[string]*occupancy{},
		usedDisks: map[string]bool{},
	}
	for i := range req.Nodes {
		n := &req.Nodes[i]
		s.nodes[n.Name] = n
	}
	for i := range req.Existing {
		r := &req.Existing[i]
		if r.NodeID == "" || r.Deleting {
			continue
		}
		if !r.Failed || (r.Reusable && !reuse) {
			s.usedDisks[r.DiskID] = true
		}
		if s.occupies(r) {
			s.occupy(r)
		}
	}
	return s
}

// occupies says whether an existing replica keeps its node and zone to itself.
func (s *search) occupies(r *Replica) bool {
	if !r.Failed {
		return true
	}
	return !s.reuse && r.Reusable && !s.req.Volume.ReplacementDue
}

func (s *search) occupy(r *Replica) {
	mark := func(m map[string]*occupancy, key string) {
		if o, ok := m[key]; ok {
			o.evictingOnly = o.evictingOnly && r.Evicting
			return
		}
		m[key] = &occupancy{evictingOnly: r.Evicting}
	}
	mark(s.usedNodes, r.NodeID)
	zone := ""
	if n := s.nodes[r.NodeID]; n != nil {
		zone = n.Zone
	}
	mark(s.usedZones, zone)
}
