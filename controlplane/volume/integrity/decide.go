package integrity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engineclient"
)

const (
	// askAgain is the pause between two questions for the result of a check under way.
	askAgain = 2 * time.Second
	// nodeBusy is the pause while a check of another volume runs on the node.
	nodeBusy = 10 * time.Second
	// tryAgain is the pause after a check of a snapshot that came to no result.
	tryAgain = time.Minute
)

// decide is the decision table of docs/design/snapshots.md, section Integrity.
func decide(now time.Time, v *v1beta2.Volume, g seen) loop.Decision {
	if v.DeletionTimestamp != nil || !g.Reachable || v.Spec.MigrationNodeID != "" {
		return loop.Decision{} // gather has forgotten a check under way; events of these objects wake
	}
	if g.Check != nil {
		return g.judge(now)
	}
	due, pause := g.next(now, v)
	switch {
	case due == nil && pause == 0 && pendingWish(now, v):
		v.Status.LastOnDemandSnapshotHashingCompleteAt = v.Spec.SnapshotHashingRequestedAt
		return loop.Decision{}
	case due == nil:
		return loop.Decision{After: untilNext(now, v, g, pause)}
	case g.NodeBusy:
		return loop.Decision{After: nodeBusy}
	}
	return loop.Decision{After: askAgain, Do: loop.Call{What: "check the data of snapshot " + due.Name,
		Order: startOrder{due, regular(g.slot(now), due), now}}}
}

// pendingWish: somebody has asked for the checksums of all snapshots of users, and not got them.
// A wish that is dated in the future waits until then.
func pendingWish(now time.Time, v *v1beta2.Volume) bool {
	return v.Spec.SnapshotHashingRequestedAt != v.Status.LastOnDemandSnapshotHashingCompleteAt &&
		!stamp(v.Spec.SnapshotHashingRequestedAt).IsZero() && !stamp(v.Spec.SnapshotHashingRequestedAt).After(now)
}

// stamp reads a time, zero if it is none.
func stamp(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// untilNext is when a look is due though nothing changes, 0 for never.
func untilNext(now time.Time, v *v1beta2.Volume, g seen, pause time.Duration) time.Duration {
	sooner := func(d time.Duration) {
		if d > 0 && (pause == 0 || d < pause) {
			pause = d
		}
	}
	if g.Mode != v1beta2.SnapshotDataIntegrityDisabled && len(g.Snapshots) > 0 {
		if next := g.Schedule.Next(now); !next.IsZero() {
			sooner(next.Sub(now))
		}
	}
	sooner(stamp(v.Spec.SnapshotHashingRequestedAt).Sub(now))
	return pause
}

// next is the snapshot to check: of those that are due the oldest, those that were tried in vain
// last. pause is set when the only ones due were tried a moment ago.
func (g seen) next(now time.Time, v *v1beta2.Volume) (due *v1beta2.Snapshot, pause time.Duration) {
	all := slices.Clone(g.Snapshots)
	slices.SortStableFunc(all, func(a, b *v1beta2.Snapshot) int {
		if c := g.Tried[a.UID].Compare(g.Tried[b.UID]); c != 0 {
			return c
		}
		if c := strings.Compare(a.Status.CreationTime, b.Status.CreationTime); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	slot := g.slot(now)
	for _, s := range all {
		info, there := g.Engine.Status.Snapshots[s.Name]
		if s.DeletionTimestamp != nil || !there || info.Removed || s.Status.CreationTime == "" || !g.isDue(now, slot, v, s) {
			continue
		}
		tried := g.Tried[s.UID]
		if left := tryAgain - now.Sub(tried); !tried.IsZero() && left > 0 {
			return nil, left
		}
		return s, 0
	}
	return nil, 0
}

// isDue says whether a snapshot's checksum is to be computed or compared now; slot is that of the
// schedule.
func (g seen) isDue(now, slot time.Time, v *v1beta2.Volume, s *v1beta2.Snapshot) bool {
	taken, checked := stamp(s.Status.CreationTime), stamp(s.Status.ChecksumCalculatedAt)
	// Times are whole seconds: a check in the second of the wish may have ended before it.
	asked := stamp(v.Spec.SnapshotHashingRequestedAt)
	if pendingWish(now, v) && s.Status.UserCreated && !taken.After(asked) && !checked.After(asked) {
		return true
	}
	if g.Mode == v1beta2.SnapshotDataIntegrityDisabled {
		return false
	}
	return g.Immediate && checked.IsZero() || regular(slot, s)
}

// slot is the newest time of the schedule, zero if there is none.
func (g seen) slot(now time.Time) time.Time {
	if g.Mode == v1beta2.SnapshotDataIntegrityDisabled {
		return time.Time{}
	}
	return g.Schedule.Last(now)
}

// regular says whether a snapshot is due by the schedule, whose newest time is slot.
func regular(slot time.Time, s *v1beta2.Snapshot) bool {
	return !slot.IsZero() && !stamp(s.Status.CreationTime).After(slot) && stamp(s.Status.ChecksumCalculatedAt).Before(slot)
}

// judge looks at a check that was begun.
func (g seen) judge(now time.Time) loop.Decision {
	c := g.Check
	i := slices.IndexFunc(g.Snapshots, func(s *v1beta2.Snapshot) bool { return s.UID == c.Snapshot })
	verdict, sum := result(c.Hashes)
	switch {
	case i < 0 || verdict == void || verdict != running && g.Snapshots[i].Status.Parent != c.Parent:
		return loop.Decision{After: askAgain, Do: loop.Call{What: "give up the check of snapshot " + c.Name,
			Order: endOrder{now}}}
	case verdict == running:
		return loop.Decision{After: askAgain, Do: loop.Call{What: "ask for the checksum of snapshot " + c.Name,
			Order: askOrder{now}}}
	}
	if n := g.Node; n != nil && n.Status.SnapshotCheckStatus.LastPeriodicCheckedAt.Time.Before(c.Begun) {
		// Crash window: without the write that follows, the snapshot is checked again, and the node
		// gets another time.
		n = n.DeepCopy()
		n.Status.SnapshotCheckStatus.LastPeriodicCheckedAt = metav1.NewTime(now.UTC().Truncate(time.Second))
		return loop.Decision{Do: loop.UpdateStatus{Object: n}}
	}
	s := g.Snapshots[i].DeepCopy()
	s.Status.Checksum, s.Status.ChecksumCalculatedAt = sum, now.UTC().Format(time.RFC3339)
	d := loop.Decision{Do: loop.Reserving{Change: loop.UpdateStatus{Object: s}}}
	if why := findings(c.Hashes, verdict); why != "" {
		d.Events = []loop.Event{{On: g.Engine, Warning: true, Reason: naming.EventFailedSnapshotDataIntegrityCheck,
			Message: "Snapshot " + s.Name + " of volume " + s.Spec.Volume + ": " + why}}
	}
	return d
}

// verdict is what the replicas' parts of a check say together.
type verdict int

const (
	running verdict = iota
	// void: some replica has told nothing of its copy.
	void
	// damaged: a copy is not what was written, or copies differ, and the engine could not mend it.
	damaged
	good
)

// result joins the replicas' parts; the checksum is that of all copies, empty where they are not
// the same.
func result(parts map[string]engineclient.Hash) (verdict, string) {
	if len(parts) == 0 {
		return running, ""
	}
	out, sum, corrupted := good, "", false
	for _, address := range slices.Sorted(maps.Keys(parts)) {
		h := parts[address]
		switch {
		case h.State == v1beta2.ProcessStateInProgress:
			return running, ""
		case h.SilentlyCorrupted:
			corrupted = true
		case h.State != v1beta2.ProcessStateComplete:
			out = void
		case h.Checksum == "" || sum != "" && sum != h.Checksum:
			out = min(out, damaged)
		default:
			sum = h.Checksum
		}
	}
	switch {
	case corrupted: // whatever the others say
		return damaged, ""
	case out != good:
		return out, ""
	}
	return good, sum
}

// findings tells what the check has found, empty if nothing was wrong.
func findings(parts map[string]engineclient.Hash, v verdict) string {
	var out []string
	for _, address := range slices.Sorted(maps.Keys(parts)) {
		switch h := parts[address]; {
		case h.SilentlyCorrupted:
			out = append(out, "the copy of replica "+address+" is not what was written, and no other copy could mend it")
		case h.Repaired > 0:
			out = append(out, fmt.Sprintf("the copy of replica %s was not what was written; %d pieces were mended from other "+
				"replicas", address, h.Repaired))
		}
	}
	if len(out) == 0 && v == damaged {
		out = append(out, "the copies of its replicas differ, and nobody can tell which one is right")
	}
	return strings.Join(out, "; ")
}
