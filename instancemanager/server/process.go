package server

import (
	"context"
	"errors"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/process"
)

// API versions of this instance manager. From API version 4 on there is an instance service, from
// proxy version 5 on the proxy checks the names of engine and volume.
const (
	APIVersion         = 4
	APIMinVersion      = 1
	ProxyAPIVersion    = 5
	ProxyAPIMinVersion = 1
)

// Offsets of the other services' ports from the process service's.
const (
	ProxyPort    = 1
	InstancePort = 3
)

// Processes serves ProcessManagerService from a process.Manager. name is that of the Pod, which
// VersionGet tells; it may be empty.
func Processes(m *process.Manager, name string) func(grpc.ServiceRegistrar) {
	return func(s grpc.ServiceRegistrar) {
		imrpc.RegisterProcessManagerServiceServer(s, &processes{m: m, name: name})
	}
}

type processes struct {
	imrpc.UnimplementedProcessManagerServiceServer
	m    *process.Manager
	name string
}

func (s *processes) ProcessCreate(_ context.Context, r *imrpc.ProcessCreateRequest) (*imrpc.ProcessResponse, error) {
	return answer(s.m.Create(fromSpec(r.GetSpec())))
}

func (s *processes) ProcessDelete(_ context.Context, r *imrpc.ProcessDeleteRequest) (*imrpc.ProcessResponse, error) {
	if r.GetLast() {
		return answer(s.m.DeleteLast(r.GetName(), r.GetUuid()))
	}
	return answer(s.m.Delete(r.GetName(), r.GetUuid()))
}

func (s *processes) ProcessGet(_ context.Context, r *imrpc.ProcessGetRequest) (*imrpc.ProcessResponse, error) {
	return answer(s.m.Get(r.GetName()))
}

func (s *processes) ProcessReplace(ctx context.Context, r *imrpc.ProcessReplaceRequest) (*imrpc.ProcessResponse,
	error) {
	return answer(s.m.Replace(ctx, fromSpec(r.GetSpec()), r.GetTerminateSignal()))
}

func (s *processes) ProcessList(_ context.Context, r *imrpc.ProcessListRequest) (*imrpc.ProcessListResponse, error) {
	closed := r.GetClose() && s.m.CloseIdle()
	list, revision := s.m.List()
	response := &imrpc.ProcessListResponse{Processes: make(map[string]*imrpc.ProcessResponse, len(list)),
		Revision: revision, Closed: closed}
	for _, p := range list {
		response.Processes[p.Spec.Name] = toResponse(p)
	}
	return response, nil
}

func (s *processes) ProcessLog(r *imrpc.LogRequest, stream grpc.ServerStreamingServer[imrpc.LogResponse]) error {
	return sendLog(s.m, r.GetName(), process.LogOptions{Follow: r.GetFollow(), Tail: r.GetTail()}, stream)
}

// ProcessWatch sends the response header when the subscription stands; a client that lists after it
// misses nothing.
func (s *processes) ProcessWatch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[imrpc.ProcessResponse]) error {
	subscription := s.m.Watch()
	defer subscription.Cancel()
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	// Send blocks while the client does not read, so it has a goroutine of its own. When this
	// handler returns, gRPC cancels the stream, which ends a blocked Send, and Cancel ends the
	// loop.
	sent := make(chan error, 1)
	go func() {
		for event := range subscription.C {
			if err := stream.Send(toResponse(event)); err != nil {
				sent <- err
				return
			}
		}
		sent <- status.Error(codes.Unavailable, process.ErrClosed.Error())
	}()
	select {
	case <-subscription.Slow:
		return status.Error(codes.Aborted, "the events were not read fast enough; list the processes and watch again")
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case err := <-sent:
		return err
	}
}

func (s *processes) VersionGet(context.Context, *emptypb.Empty) (*imrpc.VersionResponse, error) {
	v := Version()
	v.InstanceManager = s.name
	return v, nil
}

// Version names the build, as far as the Go tool recorded it, and the API versions.
func Version() *imrpc.VersionResponse {
	v := &imrpc.VersionResponse{
		Version:                           "dev",
		InstanceManagerAPIVersion:         APIVersion,
		InstanceManagerAPIMinVersion:      APIMinVersion,
		InstanceManagerProxyAPIVersion:    ProxyAPIVersion,
		InstanceManagerProxyAPIMinVersion: ProxyAPIMinVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.GitCommit = s.Value
		case "vcs.time":
			v.BuildDate = s.Value
		}
	}
	return v
}

func answer(p process.Status, err error) (*imrpc.ProcessResponse, error) {
	if err != nil {
		return nil, toStatus(err)
	}
	return toResponse(p), nil
}

// toStatus gives an error of the process package its gRPC code.
func toStatus(err error) error {
	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{process.ErrInvalid, codes.InvalidArgument},
		{process.ErrNotFound, codes.NotFound},
		{process.ErrExists, codes.AlreadyExists},
		{process.ErrNoPorts, codes.ResourceExhausted},
		{process.ErrTooMany, codes.ResourceExhausted},
		{process.ErrClosed, codes.Unavailable},
		{process.ErrRefused, codes.FailedPrecondition},
		{process.ErrNotReady, codes.Internal},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if errors.Is(err, known.err) {
			return status.Error(known.code, err.Error())
		}
	}
	return err // nil, a status already, or Unknown
}

func fromSpec(s *imrpc.ProcessSpec) process.Spec {
	return process.Spec{
		Name:        s.GetName(),
		Binary:      s.GetBinary(),
		Args:        s.GetArgs(),
		PortCount:   int(s.GetPortCount()),
		PortArgs:    s.GetPortArgs(),
		Environment: s.GetEnvironment(),
		Order:       s.GetOrder(),
	}
}

func toResponse(p process.Status) *imrpc.ProcessResponse {
	return &imrpc.ProcessResponse{
		Spec: &imrpc.ProcessSpec{
			Name:      p.Spec.Name,
			Binary:    p.Spec.Binary,
			Args:      p.Spec.Args,
			PortCount: int32(p.Spec.PortCount),
			PortArgs:  p.Spec.PortArgs,
			Order:     p.Spec.Order,
		},
		Status: &imrpc.ProcessStatus{
			State:     string(p.State),
			ErrorMsg:  p.ErrorMsg,
			PortStart: int32(p.Ports.Start),
			PortEnd:   int32(p.Ports.End),
			Uuid:      p.UUID,
			// Nil on the wire while there is nothing to tell.
			Conditions: p.Conditions,
		},
		Deleted:  p.Deleted,
		Revision: p.Revision,
	}
}
