package proxy_test

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// engine notes what it is asked and answers from a field.
type engine struct {
	enginev1.UnimplementedEngineServer

	mu     sync.Mutex
	asked  []string
	state  *enginev1.State
	states []*enginev1.State // of Watch
}

// note writes a request down as "Method{fields}" and checks whom it is for.
func (e *engine) note(ctx context.Context, method string, r proto.Message) (*enginev1.State, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	for key, own := range map[string]string{"volume-name": "demo", "instance-name": "demo-e-0"} {
		for _, v := range md.Get(key) {
			if v != "" && v != own {
				return nil, status.Errorf(codes.FailedPrecondition, "this is %s, not %s", own, v)
			}
		}
	}
	text := strings.ReplaceAll(strings.TrimSpace(method+" "+compact(r)), "  ", " ")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, text)
	return e.state, nil
}

// compact writes the fields that are set, in order of their numbers.
func compact(m proto.Message) string {
	var out []string
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); m.ProtoReflect().Has(f) {
			out = append(out, string(f.Name())+"="+m.ProtoReflect().Get(f).String())
		}
	}
	return strings.Join(out, " ")
}

func (e *engine) Get(ctx context.Context, r *enginev1.GetRequest) (*enginev1.State, error) {
	return e.note(ctx, "Get", r)
}

func (e *engine) Watch(_ *enginev1.GetRequest, s grpc.ServerStreamingServer[enginev1.State]) error {
	for _, state := range e.states {
		if err := s.Send(state); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) Version(ctx context.Context, r *enginev1.VersionRequest) (*enginev1.VersionResponse, error) {
	_, err := e.note(ctx, "Version", r)
	return &enginev1.VersionResponse{Version: "v9", CliApiVersion: 10, DataFormatVersion: 1}, err
}

func (e *engine) Metrics(ctx context.Context, r *enginev1.MetricsRequest) (*enginev1.MetricsResponse, error) {
	_, err := e.note(ctx, "Metrics", r)
	return &enginev1.MetricsResponse{Reads: 1, Writes: 2, ReadBytes: 3, WriteBytes: 4, ReadLatencyNanos: 5,
		WriteLatencyNanos: 6}, err
}

func (e *engine) ReplicaAdd(ctx context.Context, r *enginev1.ReplicaAddRequest) (*enginev1.State, error) {
	return e.note(ctx, "ReplicaAdd", r)
}

func (e *engine) ReplicaRemove(ctx context.Context, r *enginev1.ReplicaRemoveRequest) (*enginev1.State, error) {
	return e.note(ctx, "ReplicaRemove", r)
}

func (e *engine) SnapshotCreate(ctx context.Context,
	r *enginev1.SnapshotCreateRequest) (*enginev1.SnapshotCreateResponse, error) {
	_, err := e.note(ctx, "SnapshotCreate", r)
	return &enginev1.SnapshotCreateResponse{Name: r.GetName() + "!"}, err
}

func (e *engine) SnapshotRemove(ctx context.Context, r *enginev1.SnapshotRemoveRequest) (*enginev1.State, error) {
	if r.GetName() == "gone" {
		return nil, status.Error(codes.NotFound, "no snapshot gone")
	}
	return e.note(ctx, "SnapshotRemove", r)
}

func (e *engine) SnapshotPurge(ctx context.Context, r *enginev1.SnapshotPurgeRequest) (*enginev1.State, error) {
	return e.note(ctx, "SnapshotPurge", r)
}

func (e *engine) SnapshotHash(ctx context.Context, r *enginev1.SnapshotHashRequest) (*enginev1.SnapshotHashState,
	error) {
	_, err := e.note(ctx, "SnapshotHash", r)
	return &enginev1.SnapshotHashState{}, err
}

func (e *engine) SnapshotHashStatus(ctx context.Context,
	r *enginev1.SnapshotHashStatusRequest) (*enginev1.SnapshotHashState, error) {
	_, err := e.note(ctx, "SnapshotHashStatus", r)
	return &enginev1.SnapshotHashState{ByAddress: map[string]*enginev1.ReplicaHash{
		"tcp://10.0.0.1:10000": {State: "complete", Progress: 100, Checksum: "00c0ffee00c0ffee", SilentlyCorrupted: true},
		"tcp://10.0.0.2:10000": {State: "error", Error: "cancelled"}}}, err
}

func (e *engine) SnapshotRevert(ctx context.Context, r *enginev1.SnapshotRevertRequest) (*enginev1.State, error) {
	return e.note(ctx, "SnapshotRevert", r)
}

func (e *engine) Expand(ctx context.Context, r *enginev1.ExpandRequest) (*enginev1.State, error) {
	return e.note(ctx, "Expand", r)
}

func (e *engine) OptionsSet(ctx context.Context, r *enginev1.OptionsSetRequest) (*enginev1.State, error) {
	return e.note(ctx, "OptionsSet", r)
}

func (e *engine) FrontendStart(ctx context.Context, r *enginev1.FrontendStartRequest) (*enginev1.State, error) {
	return e.note(ctx, "FrontendStart", r)
}

func (e *engine) FrontendShutdown(ctx context.Context, r *enginev1.FrontendShutdownRequest) (*enginev1.State, error) {
	return e.note(ctx, "FrontendShutdown", r)
}
