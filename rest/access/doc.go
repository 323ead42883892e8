// Package access decides who may ask the API for what.
//
// A caller shows a Kubernetes bearer token, or a session cookie that holds one, or nothing. The API
// server says whose token it is (TokenReview) and whether that user has the right to do the same to
// the objects that a request is about (SubjectAccessReview): whoever may change a Volume with
// kubectl may change it here, nobody else. Nothing about users is kept here.
//
// Four rules bound what a stranger can cause:
//
//   - Answers of the API server are kept for seconds and in bounded number; equal questions at the
//     same time are one.
//   - Every caller may have only so many questions put to the API server, and all of them together
//     only so many at a time.
//   - When the API server does not answer, nobody is let in: ErrUnavailable.
//   - A token that is not good is refused, never taken for no token.
//
// docs/guide/authentication.md has the states, the table of rights and the attacks that were tried.
package access

import "errors"

// Errors of Judge and Sessions, for errors.Is. Their messages are for the caller.
var (
	// ErrUnauthenticated: it is not known who the caller is.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden: it is known, and it lacks a right.
	ErrForbidden = errors.New("forbidden")
	// ErrBusy: the caller asks too much; later the same question may be answered.
	ErrBusy = errors.New("too many questions")
	// ErrUnavailable: nobody can say now, since the API server does not answer.
	ErrUnavailable = errors.New("cannot be decided now")
)
