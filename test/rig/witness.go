package rig

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

// Witness is a witness in memory.
type Witness struct {
	mu     sync.Mutex
	record *witnessv1.Membership
	swaps  int
	relays []*Relay
	onSwap func(*witnessv1.Membership)
}

// Relay is one host's way to the witness, as an instance manager is.
type Relay struct {
	witnessv1.UnimplementedWitnessServer
	w       *Witness
	offline bool // guarded by w.mu
}

// Witness returns the volume's witness.
func (v *Volume) Witness() *Witness { return v.witness }

// Relay returns a way to the witness for whoever speaks to it without a socket of ours.
func (w *Witness) Relay() *Relay {
	r := &Relay{w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relays = append(w.relays, r)
	return r
}

// relay serves the witness on a unix socket.
func (w *Witness) relay(t testing.TB, path string) *Relay {
	t.Helper()
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := w.Relay()
	s := grpc.NewServer()
	witnessv1.RegisterWitnessServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return r
}

// SetOffline makes the witness answer UNAVAILABLE to everybody.
func (w *Witness) SetOffline(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.relays {
		r.offline = off
	}
}

// SetOffline makes the witness answer UNAVAILABLE to this host.
func (r *Relay) SetOffline(off bool) {
	r.w.mu.Lock()
	r.offline = off
	r.w.mu.Unlock()
}

// OnSwap has f called with every new record before anybody else learns of it. f must not call the
// witness.
func (w *Witness) OnSwap(f func(*witnessv1.Membership)) {
	w.mu.Lock()
	w.onSwap = f
	w.mu.Unlock()
}

// Record returns what is recorded, nil if nothing.
func (w *Witness) Record() *witnessv1.Membership {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record
}

// Swaps returns how often the record was changed.
func (w *Witness) Swaps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.swaps
}

var errOffline = status.Error(codes.Unavailable, "no manager answers")

// Get implements witnessv1.WitnessServer.
func (r *Relay) Get(context.Context, *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	switch {
	case r.offline:
		return nil, errOffline
	case r.w.record == nil:
		return nil, status.Error(codes.NotFound, "no record")
	}
	return r.w.record, nil
}

// CompareAndSwap implements witnessv1.WitnessServer.
func (r *Relay) CompareAndSwap(_ context.Context,
	q *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.offline {
		return nil, errOffline
	}
	e := q.Expected
	same := (e == nil) == (w.record == nil) &&
		(e == nil || (e.VolumeUuid == w.record.VolumeUuid && e.Epoch == w.record.Epoch &&
			e.Generation == w.record.Generation))
	if same {
		w.record = q.Next
		w.swaps++
		if w.onSwap != nil {
			w.onSwap(w.record)
		}
	}
	return &witnessv1.CompareAndSwapResponse{Swapped: same, Current: w.record}, nil
}
