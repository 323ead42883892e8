package engine

import (
	"fmt"
	"reflect"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// State is what can be told about an engine. It is a snapshot: nothing in it is shared with the
// core.
type State struct {
	Size      int64
	Serving   bool
	Epoch     uint64
	Record    quorum.Record
	Replicas  []Replica
	Snapshots []Snapshot
	Counters  Counters
	// Scrub is the scrub under way or the last one, nil if there was none.
	Scrub *Scrubbing
	// Hashes are the checksums of single snapshots: those asked for, and the last ones that have
	// ended.
	Hashes []Hashing
	// Import is the import under way or the last one, nil if there was none. After a start only its
	// end is known.
	Import    *Importing
	Expansion Expansion
	Options   Options
	// RebuildBudget bounds what rebuilds send, in bytes per second, 0 for no bound.
	RebuildBudget int64
	// Log tells how often the dirty log was too small.
	Log LogUse
	// Torn counts regions of the dirty log in which a write has failed, so that replicas may differ
	// until they are repaired.
	Torn int
	// Reason says why nothing is served, or why requests wait; empty otherwise.
	Reason string
	// Fatal: the engine will not serve (again); Fenced: because a newer one does.
	Fatal  bool
	Fenced bool
}

// Replica is the state of one replica.
type Replica struct {
	// Address is "ip:port" as given.
	Address string
	Member  string
	Mode    Mode
	Error   string
	// Lost says which of the files that the replica uses have lost their names, so that their content
	// goes with its process; empty for none.
	Lost    string
	Rebuild *Rebuild
	Purge   *Purge
}

// Purge is the progress of a replica's purge, kept after its end.
type Purge struct {
	Running bool
	// State is "in_progress", "complete" or "error".
	State    string
	Progress int
	Error    string
	// asked: it works on a piece.
	asked bool
}

// Rebuild is the progress of a rebuild, kept after its end.
type Rebuild struct {
	Running bool
	// State is "in_progress", "complete" or "error".
	State    string
	Progress int
	// Done and Total count bytes copied or compared and those to copy or compare; Sent those that
	// were sent to the replica.
	Done, Total, Sent int64
	// Delta: only what has changed while the replica was away is looked at.
	Delta bool
	Error string
	// From is the source's address.
	From string
}

// Snapshot is one entry of the chain, the head included under its own name.
type Snapshot struct {
	Name, Parent string
	Children     []string
	Removed      bool
	UserCreated  bool
	Created      string
	// Size is the number of allocated bytes.
	Size   int64
	Labels map[string]string
}

// HeadName is how the head is listed among the snapshots.
const HeadName = "volume-head"

func (e *Engine) state() State {
	s := State{Size: e.agreedSize, Expansion: e.changes.expansion, Options: e.options, RebuildBudget: e.rebuilds.budget,
		Serving: e.serving, Epoch: e.quorum.Epoch(), Record: e.quorum.Record(),
		Counters: e.requests.counters, Snapshots: e.sizes.all, Reason: e.why(), Fatal: e.fatal != "", Fenced: e.fenced}
	s.Log = e.dirty.use
	s.Torn = len(e.dirty.tornRegions())
	s.Scrub = e.scrubs.last.clone()
	for _, h := range e.scrubs.hashes {
		s.Hashes = append(s.Hashes, h.clone())
	}
	if e.imports.last != nil {
		i := *e.imports.last
		i.Incomplete = e.imports.incomplete != nil
		s.Import = &i
	}
	for _, l := range e.links.all {
		if l == nil {
			continue
		}
		r := Replica{Address: l.addr, Member: l.member, Mode: l.mode, Error: l.err, Lost: l.lost}
		if l.rebuild != nil {
			rb := *l.rebuild
			r.Rebuild = &rb
		}
		if e.purges.again && l.purge == nil && l.mode == RW {
			r.Purge = &Purge{Running: true, State: "in_progress"}
		}
		if l.purge != nil {
			p := *l.purge
			r.Purge = &p
		}
		s.Replicas = append(s.Replicas, r)
	}
	return s
}

// why explains what the engine waits for.
func (e *Engine) why() string {
	switch {
	case e.fatal != "":
		return e.fatal
	case e.serving && e.links.count(RW) == 0:
		return "no replica left"
	case e.serving && e.quorum.Holding():
		return "waiting for the new set of replicas to be agreed"
	case e.lease.awaited():
		return e.lease.text()
	case e.serving:
		return ""
	case e.resync != nil:
		return fmt.Sprintf("comparing replicas after an unclean end: %d of %d pieces left",
			e.resync.left+e.resync.running, e.resync.total)
	case e.quorum.Reason() != "":
		return e.quorum.Reason()
	}
	return e.quorum.Phase().String()
}

// snapshotList is what the state tells of the chain.
type snapshotList struct {
	e   *Engine
	all []Snapshot
	// at and writes are when the sizes were asked for last, and how many writes there were by then.
	at     clock.Ticks
	writes uint64
}

// due is when the sizes should be asked for again: not at all while nothing was written since.
func (k *snapshotList) due() clock.Ticks {
	if !k.e.serving || k.e.requests.counters.Writes == k.writes {
		return clock.Never
	}
	return k.at.Add(sizesEvery)
}

// step asks for the sizes when it is time.
func (k *snapshotList) step() {
	if k.due() <= k.e.now {
		k.refresh()
	}
}

// refresh asks an RW replica for its chain.
func (k *snapshotList) refresh() { k.refreshThen(func(error) {}) }

// refreshThen does so and replies when the state has the answer.
func (k *snapshotList) refreshThen(reply func(error)) {
	e := k.e
	k.at, k.writes = e.now, e.requests.counters.Writes
	if e.passing.leaving != nil && e.passing.leaving.stage != leaveWaiting {
		reply(e.passing.reason())
		return
	}
	for _, l := range e.links.all {
		if l == nil || l.mode != RW || l.phase != sessionReady {
			continue
		}
		l.control(&wire.ControlRequest{Describe: &wire.DescribeRequest{}}, func(code block.Code, r *wire.ControlReply) {
			if code != block.OK {
				if l.mode != RW {
					k.refreshThen(reply) // it was lost: another one can tell
					return
				}
				reply(fmt.Errorf("%w: replica %s cannot describe its chain: %s", code, l.addr, r.Error))
				return
			}
			if s := snapshotsOf(r.Snapshots); !reflect.DeepEqual(s, k.all) {
				k.all, e.changed = s, true
			}
			e.scrubs.cancelGone()
			reply(nil)
		})
		return
	}
	reply(e.nobodyToAsk())
}

// snapshotsOf is the list for users: without what the engine keeps for its own safety, and with
// whatever stands on that where it would stand otherwise.
func snapshotsOf(all []wire.Layer) []Snapshot {
	hidden := map[string]string{}
	for _, l := range all {
		if _, own := l.Labels[revertLabel]; own && l.Name != "" {
			hidden[l.Name] = l.Parent
		}
	}
	var layers []wire.Layer
	for _, l := range all {
		if _, own := hidden[l.Name]; own {
			continue
		}
		for range hidden {
			if parent, own := hidden[l.Parent]; own {
				l.Parent = parent
			}
		}
		layers = append(layers, l)
	}
	children := map[string][]string{}
	for _, l := range layers {
		name := l.Name
		if name == "" {
			name = HeadName
		}
		children[l.Parent] = append(children[l.Parent], name)
	}
	var out []Snapshot
	for _, l := range layers {
		s := Snapshot{Name: l.Name, Parent: l.Parent, Children: children[l.Name], Removed: l.Removed,
			UserCreated: l.UserCreated, Created: l.Created, Size: l.Allocated, Labels: l.Labels}
		if l.Name == "" {
			s.Name, s.Children = HeadName, nil
		}
		out = append(out, s)
	}
	return out
}
