// Package relayclient is a manager's side of the witness relay: it takes questions of engines from
// an instance manager and gives them to a Handler, which answers them from the cluster.
package relayclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

// Handler answers questions. Its methods are called from several goroutines. Errors should be gRPC
// statuses; those of a context are translated, others count as UNKNOWN. The relay asks another
// manager after UNAVAILABLE, UNKNOWN and other codes that say nothing about the record.
type Handler interface {
	// Get reads the record live. NOT_FOUND: there is none.
	Get(context.Context, *witnessv1.GetRequest) (*witnessv1.Membership, error)
	// CompareAndSwap records Next if the record equals Expected (nil: no record) in volume UUID,
	// epoch and generation. If it does not, the response has Swapped false and the present record;
	// that is not an error.
	CompareAndSwap(context.Context, *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error)
}

const (
	// maxConcurrent bounds the questions in work from one instance manager; more wait in the stream.
	maxConcurrent = 64
	// answerTimeout bounds one answer; the relay has given up on it long before.
	answerTimeout = 10 * time.Second
)

// Serve attaches to the instance manager at the other end of conn under the manager's name, and
// answers questions until the stream or ctx ends. It returns the reason, never nil, after all
// handlers have returned. Attaching again is the caller's business; see Keep.
func Serve(ctx context.Context, conn grpc.ClientConnInterface, name string, handler Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := witnessv1.NewWitnessRelayClient(conn).Attach(ctx)
	if err != nil {
		return fmt.Errorf("attach to the witness relay: %w", err)
	}
	if err := stream.Send(&witnessv1.Answer{Manager: name}); err != nil {
		return fmt.Errorf("attach to the witness relay: %w", streamError(stream, err))
	}
	s := &session{stream: stream, handler: handler, slots: make(chan struct{}, maxConcurrent)}
	defer s.work.Wait()
	defer cancel()
	for {
		q, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the instance manager ended it")
			}
			return fmt.Errorf("witness relay: %w", err)
		}
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.work.Add(1)
		go s.answer(ctx, q)
	}
}

// Keep serves again and again, with a pause in between, until ctx ends. lost, if not nil, hears why
// a stream ended.
func Keep(ctx context.Context, conn grpc.ClientConnInterface, name string, handler Handler, pause time.Duration,
	lost func(error)) {
	for ctx.Err() == nil {
		err := Serve(ctx, conn, name, handler)
		if ctx.Err() == nil && lost != nil {
			lost(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// streamError finds out why a Send failed: the stream's status comes from Recv.
func streamError(stream grpc.BidiStreamingClient[witnessv1.Answer, witnessv1.Question], err error) error {
	if errors.Is(err, io.EOF) {
		if _, reason := stream.Recv(); reason != nil {
			return reason
		}
	}
	return err
}

type session struct {
	stream  grpc.BidiStreamingClient[witnessv1.Answer, witnessv1.Question]
	handler Handler
	slots   chan struct{}
	work    sync.WaitGroup
	sending sync.Mutex
}

func (s *session) answer(ctx context.Context, q *witnessv1.Question) {
	defer s.work.Done()
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	a := &witnessv1.Answer{Id: q.GetId()}
	var err error
	switch kind := q.GetKind().(type) {
	case *witnessv1.Question_Get:
		a.Membership, err = s.handler.Get(ctx, kind.Get)
	case *witnessv1.Question_CompareAndSwap:
		var r *witnessv1.CompareAndSwapResponse
		r, err = s.handler.CompareAndSwap(ctx, kind.CompareAndSwap)
		a.Swapped, a.Membership = r.GetSwapped(), r.GetCurrent()
	default:
		err = status.Errorf(codes.Unimplemented, "this manager does not know the question %T", kind)
	}
	if err != nil {
		reason, ok := status.FromError(err)
		if !ok {
			reason = status.FromContextError(err)
		}
		a.Code, a.Message = int32(reason.Code()), reason.Message()
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	// A failed Send ends the stream, which Recv reports.
	_ = s.stream.Send(a)
}
