// Package witness answers the engines' questions to the witness from the API server.
//
// The witness record of a volume, the newest member set its engines agreed on, is field
// status.membership of the Engine object. It decides which copies of the data count, so it is read
// past every cache and written only by compare-and-swap: the record's own volume, epoch and
// generation must be what the caller expects, and the API server makes the swap atomic. It compares
// what the swap rests on, by a patch that tests it, and not the whole object: the engine controller
// writes the rest of the same status, and nobody who waits for a member set is to wait for that.
package witness

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/controlplane/process/instance"
)

// swapAttempts bounds how often a swap is tried again where the patch cannot be used and somebody
// else wrote another part of the object's status in between. The engine controller writes a few
// times a second at most.
const swapAttempts = 8

// Handler answers from the objects of one namespace. Client must read live; it implements
// relayclient.Handler.
type Handler struct {
	Client    client.Client
	Namespace string
	// Node, unless it is empty, is the one whose engines have their swaps carried out; others are told
	// PERMISSION_DENIED, and the relay asks somebody else. The API server refuses an agent more.
	Node string
}

// Get returns the record; NOT_FOUND if there is none.
func (h Handler) Get(ctx context.Context, q *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	e, err := h.engine(ctx, q.GetEngineName(), q.GetVolumeName())
	if err != nil {
		return nil, err
	}
	if e.Status.Membership == nil {
		return nil, status.Errorf(codes.NotFound, "engine %s has no membership record", e.Name)
	}
	return toWire(e.Status.Membership), nil
}

// CompareAndSwap records Next if the record is the expected one. OUT_OF_RANGE where another process
// of the engine was ordered after the one that asks. Both are compared in the object that is
// written, and the order for a process is in the object before the process is made: once an engine
// that follows can run, the one before it is granted nothing.
func (h Handler) CompareAndSwap(ctx context.Context,
	q *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	if err := valid(q); err != nil {
		return nil, err
	}
	for n := range swapAttempts {
		e, err := h.engine(ctx, q.GetEngineName(), q.GetVolumeName())
		if err != nil {
			return nil, err
		}
		if h.Node != "" && e.Spec.NodeID != h.Node {
			return nil, status.Errorf(codes.PermissionDenied, "engine %s is not to run on node %s, whose agent this is",
				e.Name, h.Node)
		}
		if instance.Superseded(string(e.UID), e.Status.Order, q.GetOrder()) {
			return nil, status.Errorf(codes.OutOfRange, "this process of engine %s was made for order %s, and order %s is the newest",
				e.Name, q.GetOrder(), e.Status.Order)
		}
		if !equal(e.Status.Membership, q.GetExpected()) {
			return &witnessv1.CompareAndSwapResponse{Current: toWire(e.Status.Membership)}, nil
		}
		patch := swapPatch(e, fromWire(q.GetNext()))
		e.Status.Membership = fromWire(q.GetNext())
		if n == 0 && patch != nil {
			if err = h.Client.Status().Patch(ctx, e, client.RawPatch(types.JSONPatchType, patch)); err != nil {
				if ctx.Err() != nil {
					return nil, unavailable(err)
				}
				slog.Debug("a patch of a membership is refused", "engine", e.Name, "err", err)
				continue // what it rests on has changed, or is stored otherwise: the next look tells
			}
		} else {
			err = h.Client.Status().Update(ctx, e)
		}
		switch {
		case err == nil:
			return &witnessv1.CompareAndSwapResponse{Swapped: true, Current: toWire(e.Status.Membership)}, nil
		case !apierrors.IsConflict(err):
			return nil, unavailable(err)
		}
	}
	return nil, status.Errorf(codes.Unavailable, "engine %s changes too fast", q.GetEngineName())
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// swapPatch replaces the record of an engine as it was read if the object, its record and its
// newest order are still those. Nil where a patch cannot tell that: it cannot test that something
// is not there, so the first record of an engine, and an engine without an order, are written
// whole.
func swapPatch(e *v1beta2.Engine, next *v1beta2.Membership) []byte {
	if e.Status.Membership == nil || e.Status.Order == "" || e.UID == "" {
		return nil
	}
	patch, err := json.Marshal([]operation{
		{"test", "/metadata/uid", e.UID},
		{"test", "/status/order", e.Status.Order},
		{"test", "/status/membership", e.Status.Membership},
		{"replace", "/status/membership", next},
	})
	if err != nil {
		return nil // plain structs always marshal
	}
	return patch
}

// valid refuses a request that no correct engine sends.
func valid(q *witnessv1.CompareAndSwapRequest) error {
	next, expected := q.GetNext(), q.GetExpected()
	switch {
	case next == nil || next.GetVolumeUuid() == "":
		return status.Error(codes.InvalidArgument, "the next record is missing or names no volume")
	case next.GetEpoch() < 0 || next.GetGeneration() < 0:
		return status.Error(codes.InvalidArgument, "epoch and generation must not be negative")
	case expected != nil && expected.GetVolumeUuid() == next.GetVolumeUuid() &&
		(next.GetEpoch() < expected.GetEpoch() || next.GetRecordEpoch() < expected.GetRecordEpoch() ||
			next.GetRecordEpoch() == expected.GetRecordEpoch() && next.GetGeneration() < expected.GetGeneration()):
		// A later epoch may begin at a lower generation than a proposal of an earlier one that was
		// never agreed.
		return status.Error(codes.InvalidArgument, "epochs must not go back, nor the generation within one")
	}
	return nil
}

// engine reads an Engine object live.
func (h Handler) engine(ctx context.Context, name, volume string) (*v1beta2.Engine, error) {
	e := &v1beta2.Engine{}
	err := h.Client.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: name}, e)
	switch {
	case apierrors.IsNotFound(err):
		// Not NOT_FOUND, which would mean: no record yet.
		return nil, status.Errorf(codes.FailedPrecondition, "there is no engine %s", name)
	case err != nil:
		return nil, unavailable(err)
	case e.Spec.VolumeName != volume:
		return nil, status.Errorf(codes.InvalidArgument, "engine %s belongs to volume %s, not to %s", name,
			e.Spec.VolumeName, volume)
	}
	return e, nil
}

// unavailable says that this manager cannot answer now; the relay asks another one.
func unavailable(err error) error { return status.Error(codes.Unavailable, err.Error()) }

func equal(have *v1beta2.Membership, expected *witnessv1.Membership) bool {
	if have == nil || expected == nil {
		return have == nil && expected == nil
	}
	return have.VolumeUUID == expected.GetVolumeUuid() && have.Epoch == expected.GetEpoch() &&
		have.RecordEpoch == expected.GetRecordEpoch() && have.Generation == expected.GetGeneration()
}

func toWire(m *v1beta2.Membership) *witnessv1.Membership {
	if m == nil {
		return nil
	}
	return &witnessv1.Membership{
		VolumeUuid: m.VolumeUUID, Epoch: m.Epoch, RecordEpoch: m.RecordEpoch, Generation: m.Generation,
		Members: slices.Clone(m.Members), Engine: m.Engine, InstanceManager: m.InstanceManager,
		Stored: m.Stored,
	}
}

func fromWire(m *witnessv1.Membership) *v1beta2.Membership {
	members := slices.Clone(m.GetMembers())
	slices.Sort(members)
	return &v1beta2.Membership{
		VolumeUUID: m.GetVolumeUuid(), Epoch: m.GetEpoch(), RecordEpoch: m.GetRecordEpoch(), Generation: m.GetGeneration(),
		Members: members, Engine: m.GetEngine(), InstanceManager: m.GetInstanceManager(),
		Stored: m.GetStored(),
	}
}
