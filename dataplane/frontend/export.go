package frontend

import (
	"encoding/json"

	"ankole.storage/dataplane/loop"
)

// Exporter is implemented by frontends whose users can be given to another process without
// noticing: a live upgrade. The core calls, in this order:
//
//	Suspend    nothing more is taken in; what was taken in goes on and is answered
//	Suspended  at the end of every step, until it is true
//	Export     or Continue, if the upgrade does not come about
//
// A frontend of the same kind that was made from the Export, here or in another process, goes on
// where this one stopped: no request is lost, none is carried out twice, none is answered twice.
type Exporter interface {
	Frontend
	// Suspend takes no more requests in. What the kernel or a peer has not been asked for yet stays
	// there.
	Suspend(out *[]loop.Op)
	// Suspended reports that every request taken in is answered, every answer is sent, and no
	// operation is outstanding on any descriptor. Nothing of the frontend changes from then on.
	Suspended() bool
	// Continue undoes Suspend.
	Continue(out *[]loop.Op)
	// Export gives everything away: the frontend is Stopped afterwards and has closed nothing. The
	// descriptors belong to the caller. It may only be called while Suspended.
	Export() Export
}

// Export is what a frontend gives away: open descriptors, and what was received on them and is no
// whole request yet.
type Export struct {
	// Transport names the kind of frontend, and so who can import it: "nbd-unix", "fuse-loop".
	Transport string `json:"transport"`
	// State is the frontend's own: what was negotiated for all descriptors. Its decoder must stand
	// any bytes.
	State       json.RawMessage `json:"state,omitempty"`
	Descriptors []Descriptor    `json:"descriptors"`
}

// Descriptor is one of them.
type Descriptor struct {
	// Kind is what it is, in the frontend's words: "listener", "client", "device", "lock".
	Kind string `json:"kind"`
	// FD is the number in this process; it travels beside the message, not in it.
	FD int `json:"-"`
	// State is the frontend's own: what was negotiated on this one.
	State json.RawMessage `json:"state,omitempty"`
	// Unread was received and not understood yet: less than a whole request.
	Unread []byte `json:"unread,omitempty"`
}
