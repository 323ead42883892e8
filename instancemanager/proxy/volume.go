package proxy

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

func (s *service) VolumeGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineVolumeGetProxyResponse,
	error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineVolumeGetProxyResponse{Volume: &ptypes.Volume{
		Name: state.GetVolumeName(), Size: state.GetSize(), ReplicaCount: int32(len(state.GetReplicas())),
		Endpoint: state.GetEndpoint(), Frontend: state.GetFrontend(), FrontendState: state.GetFrontendState(),
		IsExpanding: state.GetExpanding(), LastExpansionError: state.GetLastExpansionError(),
		LastExpansionFailedAt:     state.GetLastExpansionFailedAt(),
		UnmapMarkSnapChainRemoved: state.GetOptions().GetUnmapMarkSnapChainRemoved(),
		SnapshotMaxCount:          state.GetOptions().GetSnapshotMaxCount(),
		SnapshotMaxSize:           state.GetOptions().GetSnapshotMaxSize(),
	}}, nil
}

func (s *service) VolumeExpand(ctx context.Context, r *imrpc.EngineVolumeExpandRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.Expand(ctx, &enginev1.ExpandRequest{Size: r.GetExpand().GetSize()})
		}))
}

func (s *service) VolumeFrontendStart(ctx context.Context, r *imrpc.EngineVolumeFrontendStartRequest) (*emptypb.Empty,
	error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: r.GetFrontendStart().GetFrontend()})
		}))
}

func (s *service) VolumeFrontendShutdown(ctx context.Context, r *imrpc.ProxyEngineRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.FrontendShutdown(ctx, &enginev1.FrontendShutdownRequest{})
	}))
}

// set changes one option of a volume.
func (s *service) set(ctx context.Context, r *imrpc.ProxyEngineRequest, o *enginev1.OptionsSetRequest) (*emptypb.Empty,
	error) {
	return done(call(ctx, s, r, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.OptionsSet(ctx, o)
	}))
}

func (s *service) VolumeUnmapMarkSnapChainRemovedSet(ctx context.Context,
	r *imrpc.EngineVolumeUnmapMarkSnapChainRemovedSetRequest) (*emptypb.Empty, error) {
	enabled := r.GetUnmapMarkSnap().GetEnabled()
	return s.set(ctx, r.GetProxyEngineRequest(), &enginev1.OptionsSetRequest{UnmapMarkSnapChainRemoved: &enabled})
}

func (s *service) VolumeSnapshotMaxCountSet(ctx context.Context,
	r *imrpc.EngineVolumeSnapshotMaxCountSetRequest) (*emptypb.Empty, error) {
	count := r.GetCount().GetCount()
	return s.set(ctx, r.GetProxyEngineRequest(), &enginev1.OptionsSetRequest{SnapshotMaxCount: &count})
}

func (s *service) VolumeSnapshotMaxSizeSet(ctx context.Context,
	r *imrpc.EngineVolumeSnapshotMaxSizeSetRequest) (*emptypb.Empty, error) {
	size := r.GetSize().GetSize()
	return s.set(ctx, r.GetProxyEngineRequest(), &enginev1.OptionsSetRequest{SnapshotMaxSize: &size})
}

func (s *service) SnapshotRevert(ctx context.Context, r *imrpc.EngineSnapshotRevertRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: r.GetName()})
		}))
}

// SnapshotRemove tries every name, so that one that is gone already does not keep the others; the
// last error is returned.
func (s *service) SnapshotRemove(ctx context.Context, r *imrpc.EngineSnapshotRemoveRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			var last error
			for _, name := range r.GetNames() {
				_, err := c.SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: name})
				if err != nil {
					last = err
				}
				if ctx.Err() != nil {
					break
				}
			}
			return nil, last
		}))
}

// SnapshotHash returns when the engine has taken the request; a second one while it waits or is
// under way changes nothing.
func (s *service) SnapshotHash(ctx context.Context, r *imrpc.EngineSnapshotHashRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotHashState, error) {
			return c.SnapshotHash(ctx, &enginev1.SnapshotHashRequest{Name: r.GetSnapshotName(), Rehash: r.GetRehash()})
		}))
}

func (s *service) SnapshotHashStatus(ctx context.Context,
	r *imrpc.EngineSnapshotHashStatusRequest) (*imrpc.EngineSnapshotHashStatusProxyResponse, error) {
	state, err := call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotHashState, error) {
			return c.SnapshotHashStatus(ctx, &enginev1.SnapshotHashStatusRequest{Name: r.GetSnapshotName()})
		})
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineSnapshotHashStatusProxyResponse{Status: map[string]*ptypes.SnapshotHashStatusResponse{}}
	for address, h := range state.GetByAddress() {
		out.Status[address] = &ptypes.SnapshotHashStatusResponse{State: h.GetState(), Checksum: h.GetChecksum(),
			Error:             h.GetError(),
			SilentlyCorrupted: h.GetSilentlyCorrupted()}
	}
	return out, nil
}

func (s *service) SnapshotPurge(ctx context.Context, r *imrpc.EngineSnapshotPurgeRequest) (*emptypb.Empty, error) {
	return done(call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{SkipIfInProgress: r.GetSkipIfInProgress()})
		}))
}

func (s *service) SnapshotPurgeStatus(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineSnapshotPurgeStatusProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineSnapshotPurgeStatusProxyResponse{Status: map[string]*ptypes.SnapshotPurgeStatusResponse{}}
	for _, p := range state.GetReplicas() {
		purge := p.GetPurge()
		out.Status[p.GetAddress()] = &ptypes.SnapshotPurgeStatusResponse{IsPurging: purge.GetRunning(),
			Error:    purge.GetError(),
			Progress: purge.GetProgress(), State: purge.GetState()}
	}
	return out, nil
}
