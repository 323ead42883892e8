package daemon

import (
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/window"
)

// newWindow makes memory that the engine shares with a replica on this machine.
func newWindow() (*engine.Window, error) {
	w, err := window.New()
	if err != nil {
		return nil, err
	}
	return &engine.Window{Mem: w.Mem, Offer: w.Offer, Free: func() { _ = w.Free() }}, nil
}

// freeWindow unmaps what a replica has mapped.
func freeWindow(mem []byte) { _ = window.Free(mem) }
