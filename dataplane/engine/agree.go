package engine

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/wire"
)

// An engine can end while a change of the chain has reached some replicas and not the others.
// Nobody was told that it succeeded, so the next start may finish it or undo it, but must leave
// every replica with the same snapshots. What has to agree is what a user can see: the size, and
// the snapshots of the live chain that are not marked removed, in order. Removed ones are merged by
// each replica for itself and count for nothing.
//
//	found                                               made the same by
//	a head is marked as incomplete here, and not there  marking it there; if an import has just ended there, ending it here
//	a head stands on the snapshot that a revert made    reverting it too
//	for itself, elsewhere the head has left it
//	a snapshot is removed here and not there            marking it removed there
//	a snapshot below the head is unknown elsewhere      marking it removed: nobody was told of it
//	sizes differ                                        expanding the smaller ones
//	anything else                                       dropping what differs from most: no interrupted change does that
//	a snapshot that a revert made for itself            marking it removed
//
// The first rule that finds something decides, and what it asks for is carried out before anything
// else is looked at. Two of the places in this order matter. A removal could hide that the head
// below it was not reverted, so reverts are finished first. And what an expansion froze at one
// replica can differ from what it would freeze now at another, which may have lost what was never
// flushed: so its snapshot is given up, as any that nobody was told of, before the others are
// expanded. What is read at the head is compared afterwards (resync.go).

// view is a replica's chain as it describes it.
type view struct {
	size      int64
	headEmpty bool
	// reverting is the snapshot to revert to, if the one below the head was made by a revert that
	// has not come further here.
	reverting string
	// live are the snapshots of the live chain that are not removed, bottom-up.
	live []string
	// below is the snapshot directly below the head, removed or not; empty without one.
	below string
	// known says of every snapshot, of other branches too, whether it is marked removed.
	known map[string]bool
	// reverts are snapshots that reverts have made for themselves and not taken away again.
	reverts []string
	// created is when the head was made; expansions repeated elsewhere take the time over.
	created string
	// mark says that the head is a part of an import; label is that of last, the snapshot below the
	// head.
	mark, label string
	last        wire.Layer
}

func viewOf(r *wire.ControlReply) view {
	v := view{size: r.Chain.Size, headEmpty: r.Chain.HeadEmpty, known: map[string]bool{}}
	for _, l := range r.Snapshots {
		if l.Name != "" {
			v.known[l.Name] = l.Removed
			if _, ok := l.Labels[revertLabel]; ok && !l.Removed {
				v.reverts = append(v.reverts, l.Name)
			}
		}
	}
	for _, l := range r.Chain.Layers {
		if l.Name == "" {
			v.created, v.mark = l.Created, l.Labels[importLabel]
			continue
		}
		v.below, v.label, v.last = l.Name, l.Labels[importLabel], l
		v.reverting = ""
		if !l.Removed {
			v.live = append(v.live, l.Name)
			v.reverting = l.Labels[revertLabel]
		}
	}
	return v
}

// top is the snapshot the volume's content stands on, "" for none.
func (v view) top() string {
	if len(v.live) == 0 {
		return ""
	}
	return v.live[len(v.live)-1]
}

// repair is what one replica has to do to agree with the others. At most one field is set; the zero
// repair is nothing.
type repair struct {
	request *wire.ControlRequest
	// drop says why the replica cannot be made to agree.
	drop string
}

// repairs returns what each replica has to do next, nil when all agree. It is asked again with what
// they describe afterwards.
func repairs(views []view) []repair {
	out := make([]repair, len(views))
	for _, rule := range []func([]view, []repair) bool{endImports, spreadMarks, finishReverts, spreadRemovals,
		forgetUnknown,
		expandSmaller, dropOthers, clearReverts} {
		if rule(views, out) {
			return out
		}
	}
	return nil
}

// endImports ends an import that has ended at some replicas: it was compared and durable everywhere
// before it ended anywhere.
func endImports(views []view, out []repair) bool {
	for _, done := range views {
		if done.mark != "" || done.label == "" {
			continue
		}
		found := false
		for i, v := range views {
			if _, has := v.known[done.below]; v.mark == done.label && !has {
				out[i].request = &wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: done.below,
					UserCreated: done.last.UserCreated,
					Created:     done.last.Created, Labels: done.last.Labels}}
				found = true
			}
		}
		if found {
			return true
		}
	}
	return false
}

// spreadMarks marks every head if one is: the import had begun at some only.
func spreadMarks(views []view, out []repair) bool {
	mark := ""
	for _, v := range views {
		if mark == "" {
			mark = v.mark
		}
	}
	found := false
	for i, v := range views {
		if v.mark != mark {
			out[i].request = &wire.ControlRequest{ImportMark: &wire.ImportMark{What: mark}}
			found = true
		}
	}
	return found
}

func expandSmaller(views []view, out []repair) bool {
	largest := slices.MaxFunc(views, func(a, b view) int { return int(min(max(a.size-b.size, -1), 1)) })
	found := false
	for i, v := range views {
		if v.size < largest.size {
			out[i].request = &wire.ControlRequest{Expand: &wire.ExpandRequest{Size: largest.size, Created: largest.created}}
			found = true
		}
	}
	return found
}

// remove asks replica i to mark a snapshot removed.
func (r *repair) remove(name string) {
	r.request = &wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: name}}
}

// spreadRemovals marks what is removed somewhere, one snapshot at a time.
func spreadRemovals(views []view, out []repair) bool {
	found := false
	for i := range views {
		for _, name := range sortedNames(views[i].known) {
			if !views[i].known[name] && slices.ContainsFunc(views, func(o view) bool { return o.known[name] }) {
				out[i].remove(name)
				found = true
				break
			}
		}
	}
	return found
}

// forgetUnknown gives up a snapshot that was being taken: it lies directly below the head, and
// another replica does not have it.
func forgetUnknown(views []view, out []repair) bool {
	found := false
	for i := range views {
		name := views[i].top()
		if name == "" || name != views[i].below {
			continue
		}
		if slices.ContainsFunc(views, func(o view) bool { _, ok := o.known[name]; return !ok }) {
			out[i].remove(name)
			found = true
		}
	}
	return found
}

// finishReverts reverts who has not, where another one has: its head has left the snapshot that the
// revert made before.
func finishReverts(views []view, out []repair) bool {
	found := false
	for i, v := range views {
		if v.reverting == "" {
			continue
		}
		for _, o := range views {
			if _, known := o.known[v.below]; known && o.below != v.below {
				out[i].request = &wire.ControlRequest{Revert: &wire.RevertRequest{Name: v.reverting, Created: o.created}}
				found = true
				break
			}
		}
	}
	return found
}

// dropOthers drops what differs from most, or from the first of them.
func dropOthers(views []view, out []repair) bool {
	found := false
	alike := func(v view) (n int) {
		for _, o := range views {
			if slices.Equal(o.live, v.live) {
				n++
			}
		}
		return n
	}
	most := views[0]
	for _, v := range views[1:] {
		if alike(v) > alike(most) {
			most = v
		}
	}
	for i := range views {
		if !slices.Equal(views[i].live, most.live) {
			out[i].drop = fmt.Sprintf("its snapshots %v differ from %v of other members", views[i].live, most.live)
			found = true
		}
	}
	return found
}

// clearReverts takes away what an interrupted revert has left, when all agree on what came of it.
func clearReverts(views []view, out []repair) bool {
	found := false
	for i := range views {
		if len(views[i].reverts) > 0 {
			out[i].request = &wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: views[i].reverts[0], Now: true}}
			found = true
		}
	}
	return found
}

func sortedNames(m map[string]bool) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
