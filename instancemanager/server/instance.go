package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/process"
)

// Kinds of instances, as the instance service names them.
const (
	typeEngine  = "engine"
	typeReplica = "replica"
)

// Instances serves InstanceService: the processes of m under the names that managers of API version
// 4 and later use. level is the level of the instance manager's own log, which LogSetLevel changes.
func Instances(m *process.Manager, level *slog.LevelVar) func(grpc.ServiceRegistrar) {
	return func(s grpc.ServiceRegistrar) {
		imrpc.RegisterInstanceServiceServer(s, &instances{m: m, level: level})
	}
}

type instances struct {
	imrpc.UnimplementedInstanceServiceServer
	m     *process.Manager
	level *slog.LevelVar
}

// onlyV1 refuses data engine v2 in either of its two fields.
func onlyV1(old imrpc.BackendStoreDriver, engine imrpc.DataEngine) error {
	if old != imrpc.BackendStoreDriver_v1 || engine != imrpc.DataEngine_DATA_ENGINE_V1 {
		return status.Error(codes.Unimplemented, "data engine v2 is not supported: create volumes with data engine v1")
	}
	return nil
}

// typed refuses a type that does not exist.
func typed(name, want string) error {
	if want != "" && want != typeEngine && want != typeReplica {
		return status.Errorf(codes.InvalidArgument, "instance %s: type %q is neither %s nor %s", name, want, typeEngine,
			typeReplica)
	}
	return nil
}

func (s *instances) InstanceCreate(_ context.Context, r *imrpc.InstanceCreateRequest) (*imrpc.InstanceResponse, error) {
	spec, err := fromInstance(r.GetSpec())
	if err != nil {
		return nil, err
	}
	return instanceAnswer(s.m.Create(spec))
}

func (s *instances) InstanceDelete(_ context.Context, r *imrpc.InstanceDeleteRequest) (*imrpc.InstanceResponse, error) {
	if err := onlyV1(r.GetBackendStoreDriver(), r.GetDataEngine()); err != nil {
		return nil, err
	}
	if err := typed(r.GetName(), r.GetType()); err != nil {
		return nil, err
	}
	return instanceAnswer(s.m.Delete(r.GetName(), r.GetUuid()))
}

func (s *instances) InstanceGet(_ context.Context, r *imrpc.InstanceGetRequest) (*imrpc.InstanceResponse, error) {
	if err := onlyV1(r.GetBackendStoreDriver(), r.GetDataEngine()); err != nil {
		return nil, err
	}
	return instanceAnswer(s.m.Get(r.GetName()))
}

func (s *instances) InstanceReplace(ctx context.Context, r *imrpc.InstanceReplaceRequest) (*imrpc.InstanceResponse,
	error) {
	spec, err := fromInstance(r.GetSpec())
	if err != nil {
		return nil, err
	}
	return instanceAnswer(s.m.Replace(ctx, spec, r.GetTerminateSignal()))
}

func (s *instances) InstanceList(context.Context, *emptypb.Empty) (*imrpc.InstanceListResponse, error) {
	list, _ := s.m.List()
	response := &imrpc.InstanceListResponse{Instances: make(map[string]*imrpc.InstanceResponse, len(list))}
	for _, p := range list {
		response.Instances[p.Spec.Name] = toInstance(p)
	}
	return response, nil
}

func (s *instances) InstanceLog(r *imrpc.InstanceLogRequest,
	stream grpc.ServerStreamingServer[imrpc.LogResponse]) error {
	if err := onlyV1(r.GetBackendStoreDriver(), r.GetDataEngine()); err != nil {
		return err
	}
	return sendLog(s.m, r.GetName(), process.LogOptions{}, stream)
}

// InstanceWatch sends a hint at once and one after every change. Hints that nobody has read yet are
// merged, so that a client that lists slowly is not cut off.
func (s *instances) InstanceWatch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[emptypb.Empty]) error {
	subscription := s.m.Watch()
	hint := make(chan struct{}, 1)
	hint <- struct{}{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range subscription.C {
			select {
			case hint <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		subscription.Cancel()
		<-ended
	}()
	for {
		select {
		case <-hint:
			if err := stream.Send(&emptypb.Empty{}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-ended:
			return status.Error(codes.Unavailable, process.ErrClosed.Error())
		}
	}
}

func (s *instances) VersionGet(context.Context, *emptypb.Empty) (*imrpc.VersionResponse, error) {
	return Version(), nil
}

var errV2Only = status.Error(codes.Unimplemented,
	"this operation exists for data engine v2 only, which is not supported")

func (s *instances) InstanceSuspend(context.Context, *imrpc.InstanceSuspendRequest) (*emptypb.Empty, error) {
	return nil, errV2Only
}

func (s *instances) InstanceResume(context.Context, *imrpc.InstanceResumeRequest) (*emptypb.Empty, error) {
	return nil, errV2Only
}

func (s *instances) InstanceSwitchOverTarget(context.Context, *imrpc.InstanceSwitchOverTargetRequest) (*emptypb.Empty,
	error) {
	return nil, errV2Only
}

func (s *instances) InstanceDeleteTarget(context.Context, *imrpc.InstanceDeleteTargetRequest) (*emptypb.Empty, error) {
	return nil, errV2Only
}

func (s *instances) LogSetLevel(_ context.Context, r *imrpc.LogSetLevelRequest) (*emptypb.Empty, error) {
	if err := onlyV1(0, r.GetDataEngine()); err != nil {
		return nil, err
	}
	level, ok := levels[strings.ToLower(r.GetLevel())]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "log level %q: want debug, info, warn or error", r.GetLevel())
	}
	s.level.Set(level)
	return &emptypb.Empty{}, nil
}

func (s *instances) LogGetLevel(_ context.Context, r *imrpc.LogGetLevelRequest) (*imrpc.LogGetLevelResponse, error) {
	if err := onlyV1(0, r.GetDataEngine()); err != nil {
		return nil, err
	}
	return &imrpc.LogGetLevelResponse{Level: strings.ToLower(s.level.Level().String())}, nil
}

func (s *instances) LogSetFlags(_ context.Context, r *imrpc.LogSetFlagsRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, onlyV1(0, r.GetDataEngine())
}

func (s *instances) LogGetFlags(_ context.Context, r *imrpc.LogGetFlagsRequest) (*imrpc.LogGetFlagsResponse, error) {
	return &imrpc.LogGetFlagsResponse{}, onlyV1(0, r.GetDataEngine())
}

// levels by name; the reference's clients also know trace, fatal and panic, which mean the nearest
// one here.
var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"warning": slog.LevelWarn,
	"error":   slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
}

func instanceAnswer(p process.Status, err error) (*imrpc.InstanceResponse, error) {
	if err != nil {
		return nil, toStatus(err)
	}
	return toInstance(p), nil
}

func fromInstance(s *imrpc.InstanceSpec) (process.Spec, error) {
	if err := onlyV1(s.GetBackendStoreDriver(), s.GetDataEngine()); err != nil {
		return process.Spec{}, err
	}
	if s.GetProcessInstanceSpec() == nil {
		return process.Spec{}, status.Error(codes.InvalidArgument,
			fmt.Sprintf("instance %q: process_instance_spec is missing", s.GetName()))
	}
	if err := typed(s.GetName(), s.GetType()); err != nil {
		return process.Spec{}, err
	}
	return process.Spec{
		Name:        s.GetName(),
		Binary:      s.GetProcessInstanceSpec().GetBinary(),
		Args:        s.GetProcessInstanceSpec().GetArgs(),
		PortCount:   int(s.GetPortCount()),
		PortArgs:    s.GetPortArgs(),
		Environment: s.GetProcessInstanceSpec().GetEnvironment(),
		Order:       s.GetProcessInstanceSpec().GetOrder(),
	}, nil
}

// toInstance tells the type by the name, as the reference does: what started the process may have
// been the process service.
func toInstance(p process.Status) *imrpc.InstanceResponse {
	kind := typeReplica
	if process.IsEngine(p.Spec.Name) {
		kind = typeEngine
	}
	return &imrpc.InstanceResponse{
		Spec: &imrpc.InstanceSpec{
			Name:      p.Spec.Name,
			Type:      kind,
			PortCount: int32(p.Spec.PortCount),
			PortArgs:  p.Spec.PortArgs,
			ProcessInstanceSpec: &imrpc.ProcessInstanceSpec{Binary: p.Spec.Binary, Args: p.Spec.Args,
				Order: p.Spec.Order},
		},
		Status: &imrpc.InstanceStatus{
			State:      string(p.State),
			ErrorMsg:   p.ErrorMsg,
			PortStart:  int32(p.Ports.Start),
			PortEnd:    int32(p.Ports.End),
			Uuid:       p.UUID,
			Conditions: p.Conditions,
		},
		Deleted: p.Deleted,
	}
}
