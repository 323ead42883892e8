package admission

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rejection is a refusal with the reason that goes to the client.
type Rejection struct {
	Reason metav1.StatusReason
	// Object is what is refused, as "node n1", where the message does not name it.
	Object  string
	Message string
}

// Error is the message, with the object that it is about.
func (r *Rejection) Error() string {
	if r.Object == "" {
		return r.Message
	}
	return r.Object + ": " + r.Message
}

// Unnamed is a refusal without its object, for callers whose own words name it. Any other error it
// returns as it is.
func Unnamed(err error) error {
	if r, ok := err.(*Rejection); ok { // a wrapped one is a part of other words
		return &Rejection{Reason: r.Reason, Message: r.Message}
	}
	return err
}

// about names the object of a refusal whose message does not.
func about(object string, err error) error {
	if r, ok := err.(*Rejection); ok {
		return &Rejection{Reason: r.Reason, Object: object, Message: r.Message}
	}
	return err
}

// Code is the HTTP status of the reason.
func (r *Rejection) Code() int32 {
	switch r.Reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonInvalid:
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// invalid refuses an object that is wrong in itself.
func invalid(format string, args ...any) error {
	return &Rejection{Reason: metav1.StatusReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

// forbidden refuses a change that the state of the cluster does not allow now.
func forbidden(format string, args ...any) error {
	return &Rejection{Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(format, args...)}
}

// asRejection makes a Rejection of any error: one that is none is our own failure.
func asRejection(err error) *Rejection {
	var r *Rejection
	if errors.As(err, &r) {
		return r
	}
	return &Rejection{Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}

// firstOf returns the first error; later checks may rely on earlier ones having passed.
func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
