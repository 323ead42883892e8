package engine

import (
	"slices"
	"time"

	"ankole.storage/clock"
)

const (
	// markPause is the least time between two looks at the chain: a file system discards in bursts.
	markPause = clock.Ticks(time.Second)
	// markRetry is how long a chain that could not be marked, because a replica is being rebuilt
	// for example, is left alone.
	markRetry = clock.Ticks(10 * time.Second)
)

// chainMarks is the work of option UnmapMarkSnapChainRemoved: whoever discards wants space back, so
// with the option the snapshots that stand between the head and the nearest branch are given up,
// marked removed for the next purge. Those below a branch are somebody else's history too and stay,
// as does what they hold. A block device asks in one way for discards and for zeroes that may give
// space back; so there both count, but for what was never written, which mkfs zeroes.
type chainMarks struct {
	running   bool
	notBefore clock.Ticks
}

// markChain begins to mark the chain, as a discard asks for. The discard does not wait for it.
func (e *Engine) markChain() {
	if !e.options.UnmapMarkSnapChainRemoved || e.chainMarks.running || e.now < e.chainMarks.notBefore {
		return
	}
	e.chainMarks.notBefore = e.now + markPause
	e.markNext(e.chainToMark())
}

// chainToMark names the snapshots from the head down to the nearest branch that are not marked.
func (e *Engine) chainToMark() (names []string) {
	layers := make(map[string]*Snapshot, len(e.snapshots))
	for i := range e.snapshots {
		layers[e.snapshots[i].Name] = &e.snapshots[i]
	}
	for at, seen := layers[HeadName], 0; at != nil && seen < len(layers); seen++ {
		at = layers[at.Parent]
		if at == nil || len(at.Children) != 1 {
			break
		}
		if !at.Removed {
			names = append(names, at.Name)
		}
	}
	return names
}

// markNext marks the first and goes on with the others when all replicas have agreed. What is not
// done when it fails the next discard begins again. A replica is asked before each: what the state
// says can be from before a revert, after which a snapshot that was below the head is another
// branch's.
func (e *Engine) markNext(names []string) {
	e.chainMarks.running = len(names) > 0
	if !e.chainMarks.running {
		return
	}
	e.refreshThen(func(err error) {
		switch {
		case err != nil:
			e.notMarked(names[0], err)
		case !slices.Contains(e.chainToMark(), names[0]):
			e.markNext(names[1:])
		default:
			e.markFirst(names)
		}
	})
}

func (e *Engine) markFirst(names []string) {
	e.removeSnapshot(RemoveSnapshot{Name: names[0], Reply: func(err error) {
		if err != nil {
			e.notMarked(names[0], err)
			return
		}
		e.event("chain-marked", names[0], "given up because the volume was trimmed")
		e.markNext(names[1:])
	}})
}

func (e *Engine) notMarked(name string, err error) {
	e.event("chain-not-marked", name, err.Error())
	e.chainMarks.running, e.chainMarks.notBefore = false, e.now+markRetry
}
