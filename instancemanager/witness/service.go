package witness

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

// RegisterRelay serves WitnessRelay, for managers.
func (r *Relay) RegisterRelay(s grpc.ServiceRegistrar) {
	witnessv1.RegisterWitnessRelayServer(s, &relayService{relay: r})
}

// RegisterWitness serves Witness, for engines.
func (r *Relay) RegisterWitness(s grpc.ServiceRegistrar) {
	witnessv1.RegisterWitnessServer(s, &witnessService{relay: r})
}

type relayService struct {
	witnessv1.UnimplementedWitnessRelayServer
	relay *Relay
}

// Attach serves one manager until its stream ends. The response header tells it that questions may
// come from now on.
func (s *relayService) Attach(stream grpc.BidiStreamingServer[witnessv1.Answer, witnessv1.Question]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetId() != 0 || first.GetManager() == "" {
		return status.Error(codes.InvalidArgument, "the first message must announce the manager: id 0 and its name")
	}
	m, err := s.relay.attach(first.GetManager())
	if err != nil {
		return err
	}
	defer s.relay.detach(m)
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	// Recv ends with the stream, which ends at the latest when this handler returns.
	ended := make(chan error, 1)
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			s.relay.deliver(m, answer)
		}
	}()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case q := <-m.questions:
			if err := stream.Send(q); err != nil {
				return err
			}
		}
	}
}

type witnessService struct {
	witnessv1.UnimplementedWitnessServer
	relay *Relay
}

func (s *witnessService) Get(ctx context.Context, r *witnessv1.GetRequest) (*witnessv1.Membership, error) {
	if r.GetVolumeName() == "" || r.GetEngineName() == "" {
		return nil, status.Error(codes.InvalidArgument, "witness: volume and engine name are required")
	}
	a, err := s.relay.ask(ctx, &witnessv1.Question{Kind: &witnessv1.Question_Get{Get: r}})
	if err != nil {
		return nil, err
	}
	if code := codes.Code(a.GetCode()); code != codes.OK {
		return nil, status.Errorf(code, "witness: %s: %s", describe(r.GetVolumeName(), r.GetEngineName()), a.GetMessage())
	}
	if a.GetMembership() == nil {
		return nil, status.Errorf(codes.NotFound, "witness: %s: no membership is recorded",
			describe(r.GetVolumeName(), r.GetEngineName()))
	}
	return a.GetMembership(), nil
}

// CompareAndSwap gives a manager's answer, and its refusals as they are. A manager of before
// answers ABORTED, with the present record, where the record is not the expected one.
func (s *witnessService) CompareAndSwap(ctx context.Context,
	r *witnessv1.CompareAndSwapRequest) (*witnessv1.CompareAndSwapResponse, error) {
	if r.GetVolumeName() == "" || r.GetEngineName() == "" || r.GetNext() == nil {
		return nil, status.Error(codes.InvalidArgument, "witness: volume and engine name and the next record are required")
	}
	a, err := s.relay.ask(ctx, &witnessv1.Question{Kind: &witnessv1.Question_CompareAndSwap{CompareAndSwap: r}})
	if err != nil {
		return nil, err
	}
	switch code := codes.Code(a.GetCode()); code {
	case codes.OK, codes.Aborted:
		return &witnessv1.CompareAndSwapResponse{
			Swapped: a.GetSwapped() && code == codes.OK,
			Current: a.GetMembership(),
		}, nil
	default:
		return nil, status.Errorf(code, "witness: %s: %s", describe(r.GetVolumeName(), r.GetEngineName()), a.GetMessage())
	}
}
