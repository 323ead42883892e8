package volume_test

import (
	"maps"
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// device is the block device of a world's volume, with users that have it open. It is kept for the
// next engine of its node when an engine dies.
type device struct {
	node string
	// since is when its I/O began to wait, zero while an engine serves it.
	since time.Time
}

// ioBound is how long I/O may wait; the setting's default.
const ioBound = 5 * time.Minute

// endLost ends engines that have no replica in sync. Real ones do so at once where their device is
// kept (docs/engine.md). The lock is held.
func (w *world) endLost() {
	for _, key := range slices.Sorted(maps.Keys(w.procs)) {
		p := w.procs[key]
		if m := w.engines[w.address(p)]; m != nil && m.proc == p && !w.down[p.node] && m.source() == "" {
			w.end(key, "no replica is left")
		}
	}
}

// watchDevice follows the device: engines that serve bring it up or go on with it; while none does
// its I/O waits.
func (w *world) watchDevice() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLost()
	v := w.volume("v")
	if v == nil {
		return
	}
	for _, m := range w.engines {
		if volumeOf(m.proc.name) != "v" {
			continue
		}
		if granted, _ := w.witness(m.proc.name); granted.Epoch == m.epoch && m.source() != "" {
			w.device = &device{node: m.proc.node}
			return
		}
	}
	switch d := w.device; {
	case d == nil:
	case d.node != v.Spec.NodeID:
		w.device = nil // detached
	case d.since.IsZero():
		d.since = w.now
	}
}

// checkDevice holds that only a detachment that was asked for and the bound of the wait end the
// device of an attached volume.
func (w *world) checkDevice() {
	w.t.Helper()
	v := w.volume("v")
	if v == nil || v.DeletionTimestamp != nil || v.Status.State != v1beta2.VolumeStateAttached ||
		v.Status.Robustness != v1beta2.VolumeRobustnessFaulted || w.device == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.device; d.since.IsZero() || w.now.Sub(d.since) < ioBound-time.Second {
		w.t.Fatalf("the volume is faulted at %s although its I/O waits since %s only\n%s", w.now, d.since, w.dump())
	}
}

// checkStop holds that nobody stops a running engine where its volume is to stay: that would take
// the device down. The lock is held.
func (w *world) checkStop(p *proc) {
	v := w.volume("v")
	if v == nil || v.DeletionTimestamp != nil || p.state != v1beta2.InstanceStateRunning || !isEngine(p) ||
		volumeOf(p.name) != "v" {
		return
	}
	if v.Spec.NodeID == p.node && v.Status.State == v1beta2.VolumeStateAttached {
		w.t.Fatalf("engine %s is stopped on the node where its volume is attached\n%s", p.uuid, w.dump())
	}
}
