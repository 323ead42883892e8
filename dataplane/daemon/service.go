package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
	"ankole.storage/host/version"
)

// refreshWait bounds how long Get waits for a replica to tell its sizes.
const refreshWait = 2 * time.Second

// service is ankole.engine.v1.Engine.
type service struct {
	enginev1.UnimplementedEngineServer
	p *engineProcess
}

// Get implements enginev1.EngineServer. Sizes are asked for, so that they are those of now; where
// nothing is served the last ones known are told.
func (s *service) Get(ctx context.Context, _ *enginev1.GetRequest) (*enginev1.State, error) {
	ask, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	_ = s.p.ask(ask, func(reply func(error)) any { return engine.Refresh{Reply: reply} })
	v, _ := s.p.state.get()
	// Requests that are counted do not change the state that is published: watchers would hear of
	// nothing else.
	if c, _, err := s.measure(ask); err == nil {
		v.engine.Counters = c
	}
	return s.p.message(v), nil
}

// measure asks the core what it has counted.
func (s *service) measure(ctx context.Context) (c engine.Counters, r engine.Rates, err error) {
	type figures struct {
		c engine.Counters
		r engine.Rates
	}
	got := make(chan figures, 1)
	err = s.p.ask(ctx, func(reply func(error)) any {
		return engine.Measure{Reply: func(c engine.Counters, r engine.Rates) {
			got <- figures{c, r}
			reply(nil)
		}}
	})
	if err != nil {
		return c, r, err
	}
	f := <-got
	return f.c, f.r, nil
}

// Metrics implements enginev1.EngineServer.
func (s *service) Metrics(ctx context.Context, _ *enginev1.MetricsRequest) (*enginev1.MetricsResponse, error) {
	_, r, err := s.measure(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	return &enginev1.MetricsResponse{Reads: r.Reads, Writes: r.Writes, ReadBytes: r.ReadBytes, WriteBytes: r.WriteBytes,
		ReadLatencyNanos: uint64(r.ReadLatency), WriteLatencyNanos: uint64(r.WriteLatency)}, nil
}

// Watch implements enginev1.EngineServer.
func (s *service) Watch(_ *enginev1.GetRequest, out grpc.ServerStreamingServer[enginev1.State]) error {
	for {
		v, changed := s.p.state.get()
		if err := out.Send(s.p.message(v)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		}
	}
}

// address strips the scheme clients put before a replica's address.
func address(a string) (string, error) {
	a = strings.TrimPrefix(a, "tcp://")
	if _, err := nextPort(a); err != nil {
		return "", status.Error(codes.InvalidArgument, err.Error())
	}
	return a, nil
}

// ReplicaAdd implements enginev1.EngineServer.
func (s *service) ReplicaAdd(ctx context.Context, r *enginev1.ReplicaAddRequest) (*enginev1.State, error) {
	addr, err := address(r.Address)
	if err != nil {
		return nil, err
	}
	err = s.p.ask(ctx, func(reply func(error)) any { return engine.AddReplica{Address: addr, Reply: reply} })
	return s.answer(ctx, err)
}

// ReplicaRemove implements enginev1.EngineServer.
func (s *service) ReplicaRemove(ctx context.Context, r *enginev1.ReplicaRemoveRequest) (*enginev1.State, error) {
	addr, err := address(r.Address)
	if err != nil {
		return nil, err
	}
	err = s.p.ask(ctx, func(reply func(error)) any { return engine.RemoveReplica{Address: addr, Reply: reply} })
	return s.answer(ctx, err)
}

// SnapshotCreate implements enginev1.EngineServer.
func (s *service) SnapshotCreate(ctx context.Context,
	r *enginev1.SnapshotCreateRequest) (*enginev1.SnapshotCreateResponse, error) {
	name := r.Name
	if name == "" {
		name = uuid.NewString()
	}
	q := wire.SnapshotRequest{Name: name, UserCreated: r.UserCreated, Created: now(), Labels: r.Labels}
	err := s.p.ask(ctx, func(reply func(error)) any { return engine.TakeSnapshot{Request: q, Reply: reply} })
	if err != nil {
		return nil, statusOf(err)
	}
	return &enginev1.SnapshotCreateResponse{Name: name}, nil
}

// SnapshotRemove implements enginev1.EngineServer.
func (s *service) SnapshotRemove(ctx context.Context, r *enginev1.SnapshotRemoveRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any { return engine.RemoveSnapshot{Name: r.Name, Reply: reply} })
}

// SnapshotPurge implements enginev1.EngineServer.
func (s *service) SnapshotPurge(ctx context.Context, r *enginev1.SnapshotPurgeRequest) (*enginev1.State, error) {
	return s.do(ctx, func(reply func(error)) any {
		return engine.PurgeSnapshots{SkipIfRunning: r.SkipIfInProgress, Reply: reply}
	})
}

// Version implements enginev1.EngineServer.
func (s *service) Version(context.Context, *enginev1.VersionRequest) (*enginev1.VersionResponse, error) {
	return &enginev1.VersionResponse{Version: version.Version, GitCommit: version.GitCommit, BuildDate: version.BuildDate,
		CliApiVersion: version.CLIAPI, CliApiMinVersion: version.CLIAPIMin, ControllerApiVersion: version.ControllerAPI,
		ControllerApiMinVersion: version.ControllerAPIMin, DataFormatVersion: version.DataFormat,
		DataFormatMinVersion: version.DataFormatMin}, nil
}

// do asks the core for something and answers with the state afterwards.
func (s *service) do(ctx context.Context, message func(reply func(error)) any) (*enginev1.State, error) {
	return s.answer(ctx, s.p.ask(ctx, message))
}

func (s *service) answer(ctx context.Context, err error) (*enginev1.State, error) {
	if err != nil {
		return nil, statusOf(err)
	}
	return s.Get(ctx, nil)
}

// statusOf maps the core's errors to codes.
func statusOf(err error) error {
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, engine.ErrBusy):
		code = codes.Unavailable
	case errors.Is(err, engine.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, block.Exists):
		code = codes.AlreadyExists
	case errors.Is(err, block.LimitReached), errors.Is(err, block.NoSpace):
		code = codes.ResourceExhausted
	case errors.Is(err, block.Invalid):
		code = codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, bounded(err.Error()))
}

func bounded(text string) string {
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// maxErrorText bounds what is told of an error: it may quote names that were sent to us, of any
// length.
const maxErrorText = 2048
