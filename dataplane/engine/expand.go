package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// Messages that change what the volume is, posted to the core.
type (
	// Expand grows the volume to Size bytes, between two writes. Created is when it was asked for,
	// RFC 3339.
	Expand struct {
		Size    int64
		Created string
		Reply   func(error)
	}
	// Revert makes the volume's content what it was at a snapshot. The frontend must be down, since
	// whoever uses the volume would see it change under what it has cached.
	Revert struct {
		Name    string
		Created string
		Reply   func(error)
	}
)

// Expansion is how the last expansion went.
type Expansion struct {
	Running bool
	// Error and FailedAt tell of the last one if it failed.
	Error, FailedAt string
}

func (k *changes) expand(m Expand) {
	e := k.e
	switch {
	case m.Size <= 0 || m.Size%block.Size != 0:
		m.Reply(fmt.Errorf("%w: size %d is no multiple of %d", block.Invalid, m.Size, block.Size))
		return
	case m.Size < e.size:
		m.Reply(fmt.Errorf("%w: the volume has %d bytes and cannot shrink to %d", block.Invalid, e.size, m.Size))
		return
	case m.Size == e.size && m.Size == e.agreedSize:
		m.Reply(nil)
		return
	case k.expansion.Running: // and is told as such
		m.Reply(fmt.Errorf("%w: the volume is being expanded; try again", ErrState))
		return
	}
	k.expansion = Expansion{Running: true}
	end := func(err error) {
		k.expansion, e.changed = Expansion{}, true
		if err != nil {
			k.expansion = Expansion{Error: err.Error(), FailedAt: m.Created}
			e.event("expansion-failed", "", err.Error())
		}
		m.Reply(err)
	}
	k.make(&change{what: fmt.Sprintf("expansion to %d bytes", m.Size), between: true, check: true, repairs: true,
		request: &wire.ControlRequest{Expand: &wire.ExpandRequest{Size: m.Size, Created: m.Created}},
		made: func() {
			e.setSize(m.Size)
			e.sizes.refresh()
		},
		done: func(err error) {
			e.held.whenAgreed(func(err error) {
				if err == nil {
					e.announceSize()
				}
				end(err)
			}, err)
		}})
}

// announceSize tells everybody the size of the volume. Users may write to what was added from here
// on, so the set of replicas that have it is agreed.
func (e *Engine) announceSize() {
	e.agreedSize, e.changed = e.size, true
	if e.users.fe != nil {
		e.users.fe.SetSize(e.agreedSize, e.out)
	}
}

func (k *changes) revert(m Revert) {
	err := k.e.users.mayReplace()
	if err == nil && k.e.purges.job != nil {
		err = fmt.Errorf("%w: a purge is under way; revert when it has ended", ErrState)
	}
	if err != nil {
		m.Reply(err)
		return
	}
	k.checkRevert(m)
}

// revertLabel marks the snapshot that a revert makes for itself; its value is the snapshot reverted
// to.
const revertLabel = "ankole-revert"

// A revert could be interrupted when some heads are new and empty and others still hold what was to
// be given up, without any sign of which is which: the snapshot to revert to may be the one below
// the head already. So it begins with a snapshot of its own, after which every head is empty, and
// whether a replica has reverted shows in what its head stands on (agree.go). That snapshot goes at
// the end, with what was given up, and is never listed.
func (k *changes) checkRevert(m Revert) {
	e := k.e
	if err := k.may(); err != nil {
		m.Reply(err)
		return
	}
	before := fmt.Sprintf("revert-%x", e.cfg.Nonce()[:8])
	k.current = "revert to snapshot " + m.Name
	e.users.replacing++
	end := func(err error) {
		k.current = ""
		e.writes.thaw()
		e.sizes.refresh()
		e.users.replaced()
		e.held.whenAgreed(m.Reply, err)
	}
	revert := &wire.ControlRequest{Revert: &wire.RevertRequest{Name: m.Name, Created: m.Created}}
	steps := []*change{
		{request: &wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: before, Created: m.Created,
			Labels: map[string]string{revertLabel: m.Name}}}, check: true},
		{request: revert},
		{request: &wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: before, Now: true}}},
	}
	e.writes.freeze(func() {
		k.checkAll(&change{request: revert, checkOnly: true, done: func(err error) {
			if err != nil {
				end(err)
				return
			}
			k.steps(m, steps, end)
		}})
	})
}

// steps makes one change after the other. Where one fails the last one still has to be made:
// it takes away what the first one has left.
func (k *changes) steps(m Revert, steps []*change, end func(error)) {
	var first error
	var next func(i int)
	next = func(i int) {
		if i == len(steps) {
			end(first)
			return
		}
		c := steps[i]
		c.what = "revert to snapshot " + m.Name
		c.done = func(err error) {
			k.current = c.what
			if err != nil && first == nil {
				first = err
			}
			switch {
			case err == nil:
				next(i + 1)
			case i == 1:
				next(len(steps) - 1)
			default:
				end(first)
			}
		}
		k.checkAll(c)
	}
	next(0)
}
