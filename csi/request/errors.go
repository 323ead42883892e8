package request

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/rest/client"
)

// Refuse is an error of a call that cannot succeed as it is: INVALID_ARGUMENT.
func Refuse(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// FromManager turns an error of the manager, or of waiting for it, into an answer of CSI. A refusal
// of the manager has one HTTP status whatever its cause; refusal is what it means to this call.
// What is an answer of CSI already stays.
func FromManager(err error, refusal codes.Code, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unavailable // no answer, none that can be read, no token to ask with
	var answer *client.Error
	switch {
	case errors.As(err, &answer):
		code = meaning(answer.Status, refusal)
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Errorf(code, "%s: %v", doing, err)
}

// meaning of an HTTP status. A manager that cannot say who asks, that is busy, or that cannot reach
// the leader says nothing about the call: it is to be repeated, and may have had its effect.
func meaning(httpStatus int, refusal codes.Code) codes.Code {
	switch httpStatus {
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	}
	return refusal
}

// Unfinished is an error after something was ordered: no code may say that the call has ended,
// since the caller would forget what it has ordered. What is gone has to be ordered again.
func Unfinished(err error) error {
	switch code := status.Code(err); code {
	case codes.OK, codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
		return err
	case codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted:
		return status.Errorf(codes.Aborted, "%s; retry", status.Convert(err).Message())
	default:
		return status.Errorf(codes.Unavailable, "%s; retry", status.Convert(err).Message())
	}
}

// Refused is a refusal to make something, or none. It counts if a look finds no such thing: a
// manager may have failed after it had made it, and the caller would forget what it has ordered.
func Refused(refusal error, look func() error) error {
	if told := Unfinished(refusal); told != refusal && !client.IsNotFound(look()) {
		return told
	}
	return refusal
}
