package proxy

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

// Deadlines of calls to engines, the reference's clients' own; a client may ask for less.
const (
	callTimeout = 6 * time.Minute
	longTimeout = 24*time.Hour + callTimeout
)

// Register serves imrpc.ProxyEngineService.
func (e *Engines) Register(s grpc.ServiceRegistrar) {
	imrpc.RegisterProxyEngineServiceServer(s, &service{engines: e})
}

type service struct {
	imrpc.UnimplementedProxyEngineServiceServer
	engines *Engines
}

// target is the engine a request is for: a client of it, and the context with identity and deadline
// of calls to it.
func (s *service) target(ctx context.Context, r *imrpc.ProxyEngineRequest,
	timeout time.Duration) (enginev1.EngineClient, context.Context, context.CancelFunc, error) {
	if r == nil {
		return nil, nil, nil, status.Error(codes.InvalidArgument, "proxy_engine_request is missing: it names the engine")
	}
	if r.GetBackendStoreDriver() != imrpc.BackendStoreDriver_v1 || r.GetDataEngine() != imrpc.DataEngine_DATA_ENGINE_V1 {
		return nil, nil, nil, status.Error(codes.Unimplemented, "data engine v2 is not supported")
	}
	conn, release, err := s.engines.conn(r.GetAddress())
	if err != nil {
		return nil, nil, nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, keyVolume, r.GetVolumeName(), keyEngine, r.GetEngineName())
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return enginev1.NewEngineClient(conn), ctx, func() { cancel(); release() }, nil
}

// call does one operation on the engine a request names.
func call[R any](ctx context.Context, s *service, r *imrpc.ProxyEngineRequest,
	f func(context.Context, enginev1.EngineClient) (R, error)) (R, error) {
	var zero R
	c, ctx, cancel, err := s.target(ctx, r, callTimeout)
	if err != nil {
		return zero, err
	}
	defer cancel()
	return f(ctx, c)
}

// state asks for the engine's state.
func (s *service) state(ctx context.Context, r *imrpc.ProxyEngineRequest) (*enginev1.State, error) {
	return call(ctx, s, r, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.Get(ctx, &enginev1.GetRequest{})
	})
}

// done turns an answer that says nothing into an empty one.
func done[R any](_ R, err error) (*emptypb.Empty, error) {
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func (s *service) Ping(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *service) ServerVersionGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineVersionProxyResponse,
	error) {
	v, err := call(ctx, s, r, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.VersionResponse, error) {
		return c.Version(ctx, &enginev1.VersionRequest{})
	})
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineVersionProxyResponse{Version: &ptypes.VersionOutput{
		Version: v.GetVersion(), GitCommit: v.GetGitCommit(), BuildDate: v.GetBuildDate(),
		CliAPIVersion: v.GetCliApiVersion(), CliAPIMinVersion: v.GetCliApiMinVersion(),
		ControllerAPIVersion: v.GetControllerApiVersion(), ControllerAPIMinVersion: v.GetControllerApiMinVersion(),
		DataFormatVersion: v.GetDataFormatVersion(), DataFormatMinVersion: v.GetDataFormatMinVersion(),
	}}, nil
}

func (s *service) SnapshotList(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineSnapshotListProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineSnapshotListProxyResponse{Disks: make(map[string]*imrpc.EngineSnapshotDiskInfo,
		len(state.GetSnapshots()))}
	for name, p := range state.GetSnapshots() {
		out.Disks[name] = &imrpc.EngineSnapshotDiskInfo{
			Name: p.GetName(), Parent: p.GetParent(), Children: p.GetChildren(), Removed: p.GetRemoved(),
			UserCreated: p.GetUserCreated(), Created: p.GetCreated(), Size: strconv.FormatInt(p.GetSize(), 10),
			Labels: p.GetLabels(),
		}
	}
	return out, nil
}

// modes as clients know them. A replica that is not judged yet is none of theirs: it is reported as
// being added.
var modes = map[enginev1.Mode]ptypes.ReplicaMode{
	enginev1.Mode_MODE_UNSPECIFIED: ptypes.ReplicaMode_WO, enginev1.Mode_MODE_WO: ptypes.ReplicaMode_WO,
	enginev1.Mode_MODE_RW: ptypes.ReplicaMode_RW, enginev1.Mode_MODE_ERR: ptypes.ReplicaMode_ERR,
}

// modeOf counts modes of a later version as failed: a replica that cannot be understood is not
// trusted.
func modeOf(m enginev1.Mode) ptypes.ReplicaMode {
	if mode, ok := modes[m]; ok {
		return mode
	}
	return ptypes.ReplicaMode_ERR
}

func (s *service) ReplicaList(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineReplicaListProxyResponse,
	error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	list := &ptypes.ReplicaListReply{}
	for _, p := range state.GetReplicas() {
		list.Replicas = append(list.Replicas, &ptypes.ControllerReplica{
			Address: &ptypes.ReplicaAddress{Address: p.GetAddress()}, Mode: modeOf(p.GetMode())})
	}
	return &imrpc.EngineReplicaListProxyResponse{ReplicaList: list}, nil
}

func (s *service) ReplicaRebuildingStatus(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineReplicaRebuildStatusProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineReplicaRebuildStatusProxyResponse{Status: map[string]*ptypes.ReplicaRebuildStatusResponse{}}
	for _, p := range state.GetReplicas() {
		b := p.GetRebuild()
		status := &ptypes.ReplicaRebuildStatusResponse{IsRebuilding: b.GetRunning(), Error: b.GetError(),
			Progress: b.GetProgress(),
			State:    b.GetState(), FromReplicaAddress: b.GetFromAddress()}
		if b.GetFromAddress() != "" {
			status.FromReplicaAddressList = []string{b.GetFromAddress()}
		}
		out.Status[p.GetAddress()] = status
	}
	return out, nil
}

func (s *service) ReplicaRemove(ctx context.Context, r *imrpc.EngineReplicaRemoveRequest) (*emptypb.Empty, error) {
	address, err := replicaAddress(r.GetReplicaAddress())
	if err != nil {
		return nil, err
	}
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: address})
		}))
}

// ReplicaModeUpdate can only drop a replica: a mode that promises data is the engine's to give.
func (s *service) ReplicaModeUpdate(ctx context.Context, r *imrpc.EngineReplicaModeUpdateRequest) (*emptypb.Empty,
	error) {
	if r.GetMode() != ptypes.ReplicaMode_ERR {
		return nil, status.Errorf(codes.InvalidArgument,
			"replica %s cannot be made %s from outside: only ERR can be asked for; add the replica to have it rebuilt",
			r.GetReplicaAddress(), r.GetMode())
	}
	return s.ReplicaRemove(ctx, &imrpc.EngineReplicaRemoveRequest{ProxyEngineRequest: r.GetProxyEngineRequest(),
		ReplicaAddress: r.GetReplicaAddress()})
}

// ReplicaAdd returns when the replica is RW, or has failed; the caller may leave earlier, the
// rebuild goes on.
func (s *service) ReplicaAdd(ctx context.Context, r *imrpc.EngineReplicaAddRequest) (*emptypb.Empty, error) {
	address, err := replicaAddress(r.GetReplicaAddress())
	if err != nil {
		return nil, err
	}
	switch {
	case r.GetRestore():
		return nil, errRestore
	case r.GetLinkedCloneSource() != nil:
		return nil, status.Error(codes.Unimplemented, "linked clones belong to data engine v2, which is not supported")
	}
	c, ctx, cancel, err := s.target(ctx, r.GetProxyEngineRequest(), longTimeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	err = enginev1.AddReplica(ctx, c, address)
	if errors.Is(err, enginev1.ErrNotRebuilt) {
		err = status.Error(codes.Aborted, err.Error())
	}
	return done(s, err)
}

func (s *service) ReplicaVerifyRebuild(ctx context.Context, r *imrpc.EngineReplicaVerifyRebuildRequest) (*emptypb.Empty,
	error) {
	address, err := replicaAddress(r.GetReplicaAddress())
	if err != nil {
		return nil, err
	}
	state, err := s.state(ctx, r.GetProxyEngineRequest())
	if err != nil {
		return nil, err
	}
	if state.Find(address).GetMode() == enginev1.Mode_MODE_RW {
		return &emptypb.Empty{}, nil // the engine verifies before it gives this mode
	}
	return nil, status.Errorf(codes.FailedPrecondition, "replica %s is not in mode RW", address)
}

func (s *service) VolumeSnapshot(ctx context.Context,
	r *imrpc.EngineVolumeSnapshotRequest) (*imrpc.EngineVolumeSnapshotProxyResponse, error) {
	q := r.GetSnapshotVolume()
	answer, err := call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotCreateResponse, error) {
			defer s.engines.quiesce(ctx, r.GetProxyEngineRequest().GetVolumeName(), q.GetFreezeFilesystem())()
			return c.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: q.GetName(), Labels: q.GetLabels(),
				UserCreated: true})
		})
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineVolumeSnapshotProxyResponse{Snapshot: &ptypes.VolumeSnapshotReply{Name: answer.GetName()}}, nil
}
