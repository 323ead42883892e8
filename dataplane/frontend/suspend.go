package frontend

import "ankole.storage/dataplane/loop"

// Suspender is implemented by frontends whose users can wait for another process, in a live
// upgrade. The core calls, in this order:
//
//	Suspend    nothing more is taken in; what was taken in goes on and is answered
//	Suspended  at the end of every step, until it is true
//	Continue   if the upgrade does not come about
//
// While it is suspended the frontend can be dropped as it is: whoever has its descriptors, here or
// in another process, goes on where it stopped.
type Suspender interface {
	Frontend
	// Suspend takes no more requests in. What the kernel or a peer has not been asked for yet stays
	// there.
	Suspend(out *[]loop.Op)
	// Suspended reports that every request taken in is answered, every answer is sent, and no
	// operation is outstanding on any descriptor. Nothing of the frontend changes from then on.
	Suspended() bool
	// Continue undoes Suspend.
	Continue(out *[]loop.Op)
}
