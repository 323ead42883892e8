package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

// A replica tells by itself when files that it has in use have lost their names: what is in them
// goes with its process. One of several is dropped at once, since it does not keep what it
// acknowledges; the only one is kept, and writes them anew.

// noticed takes in what a replica tells by itself.
func (l *link) noticed(p []byte) error {
	var m wire.NoticeMessage
	if err := wire.Unmarshal(p, &m); err != nil {
		return err
	}
	if l.lost == m.Lost {
		return nil
	}
	if l.lost == "" {
		l.e.event("replica-files-lost", l.addr, m.Lost)
	}
	l.lost, l.e.changed = m.Lost, true
	return nil
}

// dropLost drops the replicas that have lost files, the last one that has everything excepted.
func (k *links) dropLost() {
	for _, l := range k.all {
		if l != nil && l.lost != "" && k.e.serving && (l.mode == RW || l.mode == WO) && k.spare(l) {
			why := l.lost
			l.lost = ""
			l.fail(why)
		}
	}
}

func (k *links) drop(mask uint32, reason string) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 {
			l.fail(reason)
		}
	}
}

// dropFailed is drop for a request that was answered with code. Mostly there is nobody to drop.
func (k *links) dropFailed(mask uint32, what string, code block.Code) {
	if mask != 0 {
		k.drop(mask, what+": "+code.String())
	}
}

// dropSpare is drop but for the last replica that has everything.
func (k *links) dropSpare(mask uint32, reason string) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 && k.spare(l) {
			l.fail(reason)
		}
	}
}

// noReplica is an engine without any replica left.
type noReplica struct {
	e *Engine
	// since is when the last one was lost, Never otherwise.
	since clock.Ticks
}

// due is when an engine without a replica ends: when its users have waited long enough, or at
// once where they wait for the next engine anyway.
func (n *noReplica) due() clock.Ticks {
	e := n.e
	switch {
	case n.since == clock.Never:
		return clock.Never
	case e.users.kept || e.users.continues:
		return n.since
	}
	return n.since.Add(e.cfg.NoReplicaTimeout)
}

// step ends the engine then.
func (n *noReplica) step() {
	e := n.e
	if e.now < n.due() {
		return
	}
	waited := e.now.Sub(n.since)
	// The replicas may be well again, each after a restart of its own. This engine cannot take
	// them back: it does not know what became of its last writes there. The next one compares
	// them.
	e.stop(fmt.Sprintf("no replica left for %s; another engine can start when enough of them are back", waited), false)
}
