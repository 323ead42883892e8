package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// Decision is what decide asks for, besides the status it left in the object. The zero value means:
// nothing to do, wait for the next event.
type Decision struct {
	// Do is the one change to carry out; nil for none. It is postponed while the status still has
	// to be written.
	Do Change
	// Events are recorded on the object once Do succeeded, or, when Do is nil, once the status was
	// written (never if neither happened, so a settled object stays quiet).
	Events []Event
	// FailureReason, if set, is the reason of the Warning event recorded when Do fails, but for
	// ErrTold.
	FailureReason string
	// Lacks says that what Gather has read does not suffice: Controller.GatherAll reads more, and it
	// is decided anew. Nothing else of this decision counts, nor what it left in the object.
	Lacks bool
	// Note is what the controller is to remember of the object (Controller.Note), as plain data.
	Note any
	// After asks to look again after this time even without an event; 0 waits for events only.
	After time.Duration
}

// Event is a Kubernetes event. Reasons come from package naming.
type Event struct {
	// On is the object it is about; nil means the reconciled one.
	On client.Object
	// Warning selects the type Warning instead of Normal.
	Warning bool
	Reason  string
	Message string
}

func (e Event) kind() string {
	if e.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Change is one write: to the API server, or (Call) to anything else.
type Change interface {
	// String names the change for logs, errors and tests, e.g. "create *v1.Pod longhorn-system/im-1".
	fmt.Stringer
	// apply carries it out and returns what to wait for in the cache (nil for nothing).
	apply(ctx context.Context, c client.Client) (*expectation, error)
}

// Create creates Object. An object of that name that exists already is not an error: the loop looks
// again.
type Create struct{ Object client.Object }

// Update writes metadata and spec of Object, which must be a modified deep copy of a read object
// (its resource version guards against lost updates). The status of a kind with a status
// subresource is not written.
type Update struct{ Object client.Object }

// UpdateStatus writes the status of an object other than the reconciled one. Prefer one writer per
// status.
type UpdateStatus struct{ Object client.Object }

// Delete deletes Object, only if it is still the one that was read (UID). If that one is deleted
// already the step has nothing to do, as without a change.
type Delete struct{ Object client.Object }

// Call is a change outside the API server, e.g. starting a process. Its effect is seen by a later
// gather, so the loop looks again after Decision.After or callSettle, not at once.
type Call struct {
	// What names the call, e.g. "start engine demo-e-0".
	What string
	// Order is what is to be done, as plain data; the controller carries it out (Controller.Carry).
	Order any
}

// Reserving is a change that needs something limited, which somebody else counts. It is carried out
// once the controller has reserved that (Controller.Reserve).
type Reserving struct{ Change }

// ErrTold marks a failure of which a condition of another object tells, and which passes by itself,
// such as that an instance manager does not answer while its Pod is replaced.
var ErrTold = errors.New("told of elsewhere")

// errNotReserved says that what a change needs is not there any more; errInterrupted is what Done
// is told if the change did not return.
var (
	errNotReserved = errors.New("what the change needs is not there any more")
	errInterrupted = errors.New("the change was interrupted")
)

func describe(verb string, o client.Object) string {
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName() + "*"
	}
	if ns := o.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s %T %s", verb, o, name)
}

func (c Create) String() string       { return describe("create", c.Object) }
func (c Update) String() string       { return describe("update", c.Object) }
func (c UpdateStatus) String() string { return describe("update status of", c.Object) }
func (c Delete) String() string       { return describe("delete", c.Object) }
func (c Call) String() string         { return c.What }

func (c Create) apply(ctx context.Context, cl client.Client) (*expectation, error) {
	if err := cl.Create(ctx, c.Object); err != nil {
		return nil, err
	}
	return expectVersion(c.Object), nil
}

func (c Update) apply(ctx context.Context, cl client.Client) (*expectation, error) {
	dropManagers(c.Object)
	if err := cl.Update(ctx, c.Object); err != nil {
		return nil, err
	}
	return expectVersion(c.Object), nil
}

func (c UpdateStatus) apply(ctx context.Context, cl client.Client) (*expectation, error) {
	if im, ok := c.Object.(*v1beta2.InstanceManager); ok {
		if err := forgetManagers(ctx, cl, im); err != nil {
			return nil, err
		}
	}
	if err := cl.Status().Update(ctx, c.Object); err != nil {
		return nil, err
	}
	return expectVersion(c.Object), nil
}

func (c Delete) apply(ctx context.Context, cl client.Client) (*expectation, error) {
	uid := c.Object.GetUID()
	opts := &client.DeleteOptions{}
	if uid != "" {
		opts.Preconditions = preconditionUID(uid)
	}
	if err := cl.Delete(ctx, c.Object, opts); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	return expectGone(c.Object), nil
}

func (c Call) apply(context.Context, client.Client) (*expectation, error) {
	return nil, errors.New("the controller carries it out")
}
