package witness_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/instancemanager/witness"
)

// TestRefusalOfASwap: what a manager refuses reaches the engine with its code and its text, and
// what a manager of before says of a record that is not the expected one is no refusal.
func TestRefusalOfASwap(t *testing.T) {
	for _, tt := range []struct {
		answer  codes.Code
		current *witnessv1.Membership
		want    codes.Code
	}{
		{codes.OutOfRange, nil, codes.OutOfRange},
		{codes.InvalidArgument, nil, codes.InvalidArgument},
		{codes.FailedPrecondition, nil, codes.FailedPrecondition},
		{codes.Aborted, record(2, 1), codes.OK},
		{codes.Aborted, nil, codes.OK},
	} {
		r := newRig(t, witness.TotalWait, witness.AttemptWait)
		r.attach(t, "m1", handler(func(context.Context) (*witnessv1.Membership, error) {
			return tt.current, status.Error(tt.answer, "because of that")
		}))
		a, err := r.engine.CompareAndSwap(t.Context(), &witnessv1.CompareAndSwapRequest{
			VolumeName: "demo", EngineName: "demo-e-0", Next: record(3, 1)})
		if status.Code(err) != tt.want || err != nil && !strings.Contains(err.Error(), "because of that") ||
			a.GetSwapped() || !proto.Equal(a.GetCurrent(), tt.current) {
			t.Errorf("%s: %v, %v; want %s", tt.answer, a, err, tt.want)
		}
	}
}
