package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// What passes by itself has a code of its own: a caller that takes it for a refusal gives a replica
// up that has done nothing wrong.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{fmt.Errorf("%w: snapshot s is under way; try again", engine.ErrBusy), codes.Unavailable},
		{errBetween, codes.Unavailable},
		{fmt.Errorf("%w: the last replica with all data", engine.ErrState), codes.FailedPrecondition},
		{errors.New("replica x:1 is of another volume"), codes.FailedPrecondition},
		{fmt.Errorf("%w: s", engine.ErrNotFound), codes.NotFound},
		{block.Exists, codes.AlreadyExists},
		{block.NoSpace, codes.ResourceExhausted},
		{block.Invalid, codes.InvalidArgument},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if got := status.Code(statusOf(c.err)); got != c.want {
			t.Errorf("%v has code %v, want %v", c.err, got, c.want)
		}
	}
}
