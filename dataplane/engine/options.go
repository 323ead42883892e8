package engine

import (
	"fmt"

	"ankole.storage/block"
	"ankole.storage/dataplane/wire"
)

// Options can be changed while the volume is used.
type Options struct {
	// SnapshotMaxCount is 2 to 250, SnapshotMaxSize bytes, 0 for no limit.
	SnapshotMaxCount int
	SnapshotMaxSize  int64
	// UnmapMarkSnapChainRemoved is kept for clients that ask for it. Discard gives back only what the head holds and no
	// snapshot needs, so that there is nothing for it to switch.
	UnmapMarkSnapChainRemoved bool
}

// Bounds of SnapshotMaxCount, those of the setting.
const (
	minSnapshotCount = 2
	maxSnapshotCount = 250
)

// SetOptions changes the fields that are not nil, on every replica.
type SetOptions struct {
	SnapshotMaxCount          *int
	SnapshotMaxSize           *int64
	UnmapMarkSnapChainRemoved *bool
	Reply                     func(error)
}

// Validate returns an error that is block.Invalid for a value out of range.
func (o *Options) Validate() error {
	if o.SnapshotMaxCount < minSnapshotCount || o.SnapshotMaxCount > maxSnapshotCount {
		return fmt.Errorf("%w: snapshot-max-count %d is outside %d to %d", block.Invalid, o.SnapshotMaxCount, minSnapshotCount, maxSnapshotCount)
	}
	if o.SnapshotMaxSize < 0 {
		return fmt.Errorf("%w: snapshot-max-size %d is negative", block.Invalid, o.SnapshotMaxSize)
	}
	return nil
}

func (e *Engine) setOptions(m SetOptions) {
	o := e.options
	if m.SnapshotMaxCount != nil {
		o.SnapshotMaxCount = *m.SnapshotMaxCount
	}
	if m.SnapshotMaxSize != nil {
		o.SnapshotMaxSize = *m.SnapshotMaxSize
	}
	if m.UnmapMarkSnapChainRemoved != nil {
		o.UnmapMarkSnapChainRemoved = *m.UnmapMarkSnapChainRemoved
	}
	if err := o.Validate(); err != nil {
		m.Reply(err)
		return
	}
	e.options = o
	for _, l := range e.links {
		if l != nil && l.mode == RW {
			e.pushLimits(l)
		}
	}
	m.Reply(nil)
}

// pushLimits tells a replica the limits. They are asked of all replicas before a snapshot is taken, so one that does not
// know them yet does no harm.
func (e *Engine) pushLimits(l *link) {
	q := &wire.SnapshotLimits{MaxCount: e.options.SnapshotMaxCount, MaxSize: e.options.SnapshotMaxSize}
	e.control(l, &wire.ControlRequest{SetLimits: q}, func(code block.Code, r *wire.ControlReply) {
		if code != block.OK && code != block.Unavailable {
			e.event("limits-refused", l.addr, refusal(code, r.Error).Error())
		}
	})
}
