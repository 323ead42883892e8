package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// Options can be changed while the volume is used.
type Options struct {
	// SnapshotMaxCount is 2 to 250, SnapshotMaxSize bytes, 0 for no limit.
	SnapshotMaxCount int
	SnapshotMaxSize  int64
	// UnmapMarkSnapChainRemoved: a discard gives the snapshots up that stand between the head and
	// the nearest branch, see trimmark.go.
	UnmapMarkSnapChainRemoved bool
	// RebuildConcurrency is how many of a rebuild's steps go on at once, 1 to 5; 0 means 1.
	RebuildConcurrency int
}

// Bounds of SnapshotMaxCount, those of the setting.
const (
	minSnapshotCount = 2
	maxSnapshotCount = 250
)

// maxRebuildConcurrency is that of the setting replica-rebuild-concurrent-sync-limit.
const maxRebuildConcurrency = 5

// SetOptions changes the fields that are not nil, on every replica.
type SetOptions struct {
	SnapshotMaxCount          *int
	SnapshotMaxSize           *int64
	UnmapMarkSnapChainRemoved *bool
	RebuildConcurrency        *int
	// RebuildBudget bounds what rebuilds send, in bytes per second; 0 means no bound.
	RebuildBudget *int64
	Reply         func(error)
}

// Validate returns an error that is block.Invalid for a value out of range.
func (o *Options) Validate() error {
	if o.SnapshotMaxCount < minSnapshotCount || o.SnapshotMaxCount > maxSnapshotCount {
		return fmt.Errorf("%w: snapshot-max-count %d is outside %d to %d", block.Invalid, o.SnapshotMaxCount,
			minSnapshotCount, maxSnapshotCount)
	}
	if o.SnapshotMaxSize < 0 {
		return fmt.Errorf("%w: snapshot-max-size %d is negative", block.Invalid, o.SnapshotMaxSize)
	}
	if o.RebuildConcurrency < 0 || o.RebuildConcurrency > maxRebuildConcurrency {
		return fmt.Errorf("%w: rebuild concurrency %d is outside 1 to %d", block.Invalid, o.RebuildConcurrency,
			maxRebuildConcurrency)
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
	if m.RebuildConcurrency != nil {
		o.RebuildConcurrency = *m.RebuildConcurrency
	}
	err := o.Validate()
	if e.passing.leaving != nil && e.passing.released() {
		err = e.passing.reason() // the new engine has been told the options already
	}
	if m.RebuildBudget != nil && *m.RebuildBudget < 0 {
		err = fmt.Errorf("%w: rebuild bandwidth %d is negative; 0 means no bound", block.Invalid, *m.RebuildBudget)
	}
	if err != nil {
		m.Reply(err)
		return
	}
	e.options = o
	if m.RebuildBudget != nil {
		e.rebuilds.setBudget(*m.RebuildBudget)
	}
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			e.pushLimits(l)
		}
	}
	m.Reply(nil)
}

// pushLimits tells a replica the limits. They are asked of all replicas before a snapshot is taken,
// so one that does not know them yet does no harm.
func (e *Engine) pushLimits(l *link) {
	q := &wire.SnapshotLimits{MaxCount: e.options.SnapshotMaxCount, MaxSize: e.options.SnapshotMaxSize}
	l.control(&wire.ControlRequest{SetLimits: q}, func(code block.Code, r *wire.ControlReply) {
		if code != block.OK && code != block.Unavailable {
			e.event("limits-refused", l.addr, refusal(code, r.Error).Error())
		}
	})
}
