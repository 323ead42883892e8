// Package copies judges which copies of a volume may be given up. The recorded member set decides:
// its members hold every acknowledged write, whatever the marks on the Replica objects say, and
// nothing else is known to. One whose node or disk is gone stands for no other, unless an engine
// that runs has it in sync. The same rules are asked by the webhook and by REST (is this deletion
// allowed?), by the volume controller (does a deleted replica still have to serve?) and by those
// who remove a deleted replica's data or its finalizer.
//
// A directory may have two Replica objects for a while: a live upgrade starts a second process on
// it, the duplicate (spec.active false). A duplicate is no copy of its own, and may always go.
//
// The package is pure: whoever is about to destroy something reads the facts live.
package copies

import (
	"fmt"
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
)

// Set is what is known about the copies of one volume.
type Set struct {
	volume   *v1beta2.Volume
	replicas []*v1beta2.Replica
	// engine has the newest record of this volume; nil before the first start of an engine.
	engine *v1beta2.Engine
	nodes  map[string]*v1beta2.Node
}

// Of collects the copies of a volume (nil if it is gone): all its engines, all its replicas, and at
// least the nodes that those are on. A node that is not among them is gone.
func Of(volume *v1beta2.Volume, engines []v1beta2.Engine, replicas []v1beta2.Replica, nodes []v1beta2.Node) Set {
	s := Set{volume: volume, nodes: map[string]*v1beta2.Node{}}
	for i := range nodes {
		s.nodes[nodes[i].Name] = &nodes[i]
	}
	for i := range replicas {
		s.replicas = append(s.replicas, &replicas[i])
	}
	if volume == nil {
		return s
	}
	for i := range engines {
		m := engines[i].Status.Membership
		if !m.Founded(volume.UID) {
			continue
		}
		if s.engine == nil || m.Epoch > s.engine.Status.Membership.Epoch {
			s.engine = &engines[i]
		}
	}
	return s
}

// Serves says why a copy must go on serving although it was deleted, and why its deletion is
// refused; empty if the volume can do without it.
func (s Set) Serves(r *v1beta2.Replica) string {
	if s.volume == nil || s.volume.DeletionTimestamp != nil || s.Duplicate(r) {
		return ""
	}
	if s.engine == nil {
		return s.unrecorded(r)
	}
	members := len(s.engine.Status.Membership.Members)
	if !s.member(r) {
		if r.Spec.HealthyAt == "" || slices.ContainsFunc(s.replicas, func(o *v1beta2.Replica) bool {
			return o.DeletionTimestamp == nil && s.member(o)
		}) {
			return ""
		}
		return fmt.Sprintf("no recorded member of volume %s is left, and replica %s may hold its last data",
			s.volume.Name, r.Name)
	}
	others, why := s.others(r)
	switch {
	case others == 0 && len(why) == 0:
		return fmt.Sprintf("no other healthy replica available: replica %s is the last copy of volume %s, the only one "+
			"that its record of members has now", r.Name, s.volume.Name)
	case others == 0:
		return fmt.Sprintf("no other healthy replica available: none of the other recorded members of volume %s can "+
			"take the place of replica %s now: %s", s.volume.Name, r.Name, strings.Join(why, ", "))
	case !s.engineWanted() && others*2 < members:
		return fmt.Sprintf("volume %s is detached and was last served by %d replicas, of which %d would be left, "+
			"too few to start from: attach it first", s.volume.Name, members, others)
	}
	return ""
}

// Holds says why the data and the object of a deleted copy must stay for now; empty if they may go.
// A running engine drops a member from the record before the member's data may go.
func (s Set) Holds(r *v1beta2.Replica) string {
	if why := s.Serves(r); why != "" || s.Duplicate(r) {
		return why
	}
	if s.volume != nil && s.volume.DeletionTimestamp == nil && s.engine != nil && s.engineWanted() && s.member(r) {
		return fmt.Sprintf("the engine of volume %s still counts replica %s as a member", s.volume.Name, r.Name)
	}
	return ""
}

// Duplicate says whether r is not in use while another object has the same directory and stays.
func (s Set) Duplicate(r *v1beta2.Replica) bool {
	return !r.Spec.Active && slices.ContainsFunc(s.replicas, func(o *v1beta2.Replica) bool {
		return o.Spec.Active && o.DeletionTimestamp == nil && SameDirectory(r, o)
	})
}

// SameDirectory says whether two Replica objects are about one directory.
func SameDirectory(a, b *v1beta2.Replica) bool {
	return a.Name != b.Name && a.Spec.DataDirectoryName != "" && a.Spec.DataDirectoryName == b.Spec.DataDirectoryName &&
		a.Spec.DiskID == b.Spec.DiskID
}

// others counts the members besides r that can take its place, and says of each that cannot why.
func (s Set) others(r *v1beta2.Replica) (n int, why []string) {
	for _, o := range s.replicas {
		if o.Name == r.Name || !s.member(o) || SameDirectory(o, r) || s.Duplicate(o) {
			continue
		}
		if not := s.lack(o, r); not != "" {
			why = append(why, o.Name+" "+not)
			continue
		}
		n++
	}
	return n, why
}

// lack says why a member cannot take the place of r; empty if it can.
func (s Set) lack(o, r *v1beta2.Replica) string {
	switch mode := s.engine.Status.ReplicaModeMap[o.Name]; {
	case o.DeletionTimestamp != nil:
		return "is being deleted"
	case o.Spec.FailedAt != "":
		return "has failed"
	case o.Spec.EvictionRequested && !r.Spec.EvictionRequested:
		return "is being evicted"
	case s.engineWanted() && mode == "":
		return "is not known to be in sync (the engine does not tell of it yet)"
	case s.engineWanted() && mode != v1beta2.ReplicaModeRW:
		return "is not in sync (mode " + string(mode) + ")"
	case s.engine.Status.CurrentState != v1beta2.InstanceStateRunning && !s.there(o):
		return "is away"
	}
	return ""
}

// unrecorded judges by the marks alone, before there is a record.
func (s Set) unrecorded(r *v1beta2.Replica) string {
	if r.Spec.HealthyAt == "" {
		return ""
	}
	leaving := r.Spec.FailedAt != "" || r.Spec.EvictionRequested
	for _, o := range s.replicas {
		if o.Name == r.Name || o.DeletionTimestamp != nil || o.Spec.HealthyAt == "" || SameDirectory(o, r) {
			continue
		}
		if r.Spec.FailedAt == "" && !s.there(o) {
			continue
		}
		// A replica that has failed or leaves is no loss while any other copy exists.
		if leaving || o.Spec.FailedAt == "" && !o.Spec.EvictionRequested {
			return ""
		}
	}
	return fmt.Sprintf("no other healthy replica available: replica %s is the last copy of volume %s", r.Name,
		s.volume.Name)
}

// Lacks says why no engine could serve the volume from what is there: fewer than half of the
// recorded members, or of a volume without a record no replica that has a place. Empty if one
// could. It is for those who attach a volume for work that can wait; users have theirs tried.
func (s Set) Lacks() string {
	if s.volume == nil {
		return ""
	}
	var there int
	var away []string
	for _, r := range s.replicas {
		switch {
		case !r.Spec.Active, r.Spec.NodeID == "", s.engine != nil && !s.member(r):
		case s.there(r):
			there++
		default:
			away = append(away, r.Name+" on node "+r.Spec.NodeID)
		}
	}
	need := 1
	if s.engine != nil {
		need = (len(s.engine.Status.Membership.Members) + 1) / 2
	} else if there+len(away) == 0 {
		return "" // they get their place where the volume is attached
	}
	if there >= need {
		return ""
	}
	slices.Sort(away)
	text := fmt.Sprintf("of the copies of volume %s %d are there, and %d are needed", s.volume.Name, there, need)
	if len(away) > 0 {
		text += "; away: " + strings.Join(away, ", ")
	}
	return text
}

// there says whether a copy's node and disk are. Nobody marks a copy whose machine has died while
// no engine runs; of those of an engine that runs it knows itself.
func (s Set) there(r *v1beta2.Replica) bool {
	return condition.CopyThere(s.nodes[r.Spec.NodeID], r)
}

func (s Set) member(r *v1beta2.Replica) bool {
	return r.Spec.DataDirectoryName != "" &&
		slices.Contains(s.engine.Status.Membership.Members, r.Spec.DataDirectoryName)
}

// engineWanted says whether an engine runs or is to run: the record may change at any moment.
func (s Set) engineWanted() bool {
	return s.engine.Spec.DesireState == v1beta2.InstanceStateRunning || !s.engine.Status.Off()
}
