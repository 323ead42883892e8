package request

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/client"
)

// TestErrorsOfTheManager: what each means to a caller.
func TestErrorsOfTheManager(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK}, {&client.Error{Status: http.StatusNotFound}, codes.NotFound},
		{client.ErrUnreachable, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, {context.Canceled, codes.Canceled},
		{&client.Error{Status: http.StatusInternalServerError, Message: "no"}, codes.FailedPrecondition},
		{status.Error(codes.OutOfRange, "x"), codes.OutOfRange},
	} {
		csitest.Wants(t, FromManager(tc.err, codes.FailedPrecondition, "doing"), tc.code)
	}
}
