package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
)

// orders is a witness that carries out swaps of one order.
type orders struct {
	witnessv1.UnimplementedWitnessServer
	newest string
	silent bool // as an instance manager of before: refuses without a reason
}

func (o *orders) CompareAndSwap(_ context.Context, q *witnessv1.CompareAndSwapRequest) (
	*witnessv1.CompareAndSwapResponse, error) {
	if o.silent {
		return &witnessv1.CompareAndSwapResponse{}, nil
	}
	if q.GetOrder() != o.newest {
		return nil, status.Errorf(codes.OutOfRange, "made for order %s, the newest is %s", q.GetOrder(), o.newest)
	}
	return &witnessv1.CompareAndSwapResponse{Swapped: true, Current: q.GetNext()}, nil
}

// TestWitnessIsToldTheOrder: a swap names the order of the process; that another one is the newest
// is told apart from a witness that cannot answer.
func TestWitnessIsToldTheOrder(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	o := &orders{newest: "uid/7"}
	witnessv1.RegisterWitnessServer(s, o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	swap := func(order string) (bool, error) {
		w, err := DialWitness("unix:"+socket, WitnessCaller{Volume: "v", VolumeUUID: "u", Engine: "e", Order: order})
		if err != nil {
			t.Fatal(err)
		}
		defer w.(*witness).conn.Close()
		_, swapped, err := w.Swap(quorum.WitnessRecord{}, quorum.WitnessRecord{Epoch: 1000, Engine: "e"})
		return swapped, err
	}
	if swapped, err := swap("uid/7"); err != nil || !swapped {
		t.Errorf("the newest order: %v, %v", swapped, err)
	}
	swapped, err := swap("uid/6")
	if swapped || !errors.Is(err, engine.ErrSuperseded) || !strings.Contains(err.Error(), "the newest is uid/7") {
		t.Errorf("an older order: %v, %v", swapped, err)
	}
	o.silent = true
	if _, err := swap("uid/6"); err == nil || errors.Is(err, engine.ErrSuperseded) {
		t.Errorf("nothing is there, nothing was expected, and it is not taken: %v", err)
	}
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := swap("uid/6"); err == nil || errors.Is(err, engine.ErrSuperseded) {
		t.Errorf("without a witness: %v", err)
	}
}
