package engine

import (
	"fmt"

	"ankole.storage/block"
	"ankole.storage/dataplane/wire"
)

// Messages that change what the volume is, posted to the core.
type (
	// Expand grows the volume to Size bytes, between two writes. Created is when it was asked for, RFC 3339.
	Expand struct {
		Size    int64
		Created string
		Reply   func(error)
	}
	// Revert makes the volume's content what it was at a snapshot. The frontend must be down, since whoever uses the volume
	// would see it change under what it has cached.
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

func (e *Engine) expand(m Expand) {
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
	}
	e.expansion = Expansion{Running: true}
	end := func(err error) {
		e.expansion, e.changed = Expansion{}, true
		if err != nil {
			e.expansion = Expansion{Error: err.Error(), FailedAt: m.Created}
			e.event("expansion-failed", "", err.Error())
		}
		m.Reply(err)
	}
	e.change(&change{what: fmt.Sprintf("expansion to %d bytes", m.Size), between: true, check: true,
		request: &wire.ControlRequest{Expand: &wire.ExpandRequest{Size: m.Size, Created: m.Created}},
		made: func() {
			e.setSize(m.Size)
			e.refreshSnapshots()
		},
		done: func(err error) {
			e.whenAgreed(func(err error) {
				if err == nil {
					e.announceSize()
				}
				end(err)
			}, err)
		}})
}

// announceSize tells everybody the size of the volume. Users may write to what was added from here on, so the set of replicas
// that have it is agreed.
func (e *Engine) announceSize() {
	e.agreedSize, e.changed = e.size, true
	if e.fe != nil {
		e.fe.SetSize(e.agreedSize, e.out)
	}
}

func (e *Engine) revert(m Revert) {
	switch {
	case e.fe != nil:
		m.Reply(fmt.Errorf("%w: the volume is in use; take its frontend away first", ErrState))
		return
	case e.purge != nil:
		m.Reply(fmt.Errorf("%w: a purge is under way; revert when it has ended", ErrState))
		return
	}
	e.change(&change{what: "revert to snapshot " + m.Name, between: true, check: true,
		request: &wire.ControlRequest{Revert: &wire.RevertRequest{Name: m.Name, Created: m.Created}},
		made:    e.refreshSnapshots, done: func(err error) { e.whenAgreed(m.Reply, err) }})
}
