package fuseloop

import "ankole.storage/dataplane/loop"

// A frontend can be left to another process: frontend.Suspender here, New with Resume there. The
// kernel does not notice: a request comes from the descriptor whole or not at all, so what nobody
// has read waits in the kernel's queue for the successor, whose journal is empty.

// suspending is the part of a Frontend that pauses it.
type suspending struct {
	suspended bool
	// released: the loop does not know the device; releasing: it is being told to forget it.
	released, releasing bool
}

// Suspend implements frontend.Suspender.
func (f *Frontend) Suspend(out *[]loop.Op) {
	f.suspended = true
	f.releaseDevice(out)
}

// releaseDevice has the loop forget the device, and so cancels the receives, once everything is
// answered. It is called again whenever that may have changed: until then a receive that was under
// way may bring another request.
func (f *Frontend) releaseDevice(out *[]loop.Op) {
	if f.suspended && !f.closing && !f.released && !f.releasing && f.pending == 0 && f.sends == 0 && len(f.left) == 0 {
		f.releasing = true
		*out = append(*out, loop.Op{Kind: loop.Release, Handle: f.cfg.Device, Tag: f.tag(tagRelease, 0)})
	}
}

// forgotten is called when the loop has forgotten the device. What was received before has been
// handled; if that has led to another operation, the loop knows the device again.
func (f *Frontend) forgotten(out *[]loop.Op) {
	f.releasing = false
	f.released = f.sends == 0 && f.waiting == 0
	if !f.suspended && !f.closing && !f.gone {
		f.receive(out)
	}
}

// Suspended implements frontend.Suspender.
func (f *Frontend) Suspended() bool {
	return f.suspended && f.released && f.pending == 0 && f.sends == 0 && f.waiting == 0 && len(f.left) == 0
}

// Continue implements frontend.Suspender.
func (f *Frontend) Continue(out *[]loop.Op) {
	f.suspended = false
	if !f.closing && !f.gone {
		f.receive(out)
	}
}
