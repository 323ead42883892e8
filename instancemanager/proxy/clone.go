package proxy

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

// SnapshotClone returns when the volume of the engine it is for holds the snapshot of the other
// engine's volume, or the clone has failed; the caller may leave earlier, the clone goes on. The
// other engine gives out what is needed to read that snapshot and nothing else.
func (s *service) SnapshotClone(ctx context.Context, r *imrpc.EngineSnapshotCloneRequest) (*emptypb.Empty, error) {
	switch {
	case r.GetSnapshotName() == "":
		return nil, status.Error(codes.InvalidArgument, "snapshot_name is missing: it names the snapshot to clone")
	case r.GetCloneMode() != imrpc.CloneMode_CLONE_MODE_FULL_COPY || len(r.GetDstReplicaSrcReplicaPairMap()) > 0:
		return nil, status.Error(codes.Unimplemented, "linked clones belong to data engine v2, which is not supported")
	case r.GetExportBackingImageIfExist():
		return nil, status.Error(codes.Unimplemented, "backing images are not supported")
	}
	source, release, err := s.engines.conn(r.GetFromEngineAddress())
	if err != nil {
		return nil, err
	}
	defer release()
	c, ctx, cancel, err := s.target(ctx, r.GetProxyEngineRequest(), cloneTimeout(r.GetGrpcTimeoutSeconds()))
	if err != nil {
		return nil, err
	}
	defer cancel()
	err = enginev1.CloneSnapshot(ctx, c, func(ctx context.Context, volumeUUID string) (*enginev1.CloneGrant, error) {
		// The identity is that of the other engine here.
		ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(keyVolume, r.GetFromVolumeName(), keyEngine,
			r.GetFromEngineName()))
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return enginev1.NewEngineClient(source).CloneSource(ctx,
			&enginev1.CloneSourceRequest{Snapshot: r.GetSnapshotName(), ForVolumeUuid: volumeUUID})
	})
	if errors.Is(err, enginev1.ErrNotCloned) {
		err = status.Error(codes.Aborted, err.Error())
	}
	return done(s, err)
}

// cloneTimeout is what a client asks for and what an engine may take to answer, longTimeout at
// most. Any number may be asked for.
func cloneTimeout(seconds int64) time.Duration {
	if seconds <= 0 || seconds > int64(longTimeout/time.Second) {
		return longTimeout
	}
	return min(longTimeout, time.Duration(seconds)*time.Second+callTimeout)
}

// SnapshotCloneStatus tells the same of every replica: the engine writes to all of them at once.
func (s *service) SnapshotCloneStatus(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineSnapshotCloneStatusProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineSnapshotCloneStatusProxyResponse{Status: map[string]*ptypes.SnapshotCloneStatusResponse{}}
	for _, p := range state.GetReplicas() {
		c := state.GetClone()
		if p.GetMode() == enginev1.Mode_MODE_ERR {
			c = nil // it has no part in it
		}
		out.Status[p.GetAddress()] = &ptypes.SnapshotCloneStatusResponse{IsCloning: c.GetRunning(), Error: c.GetError(),
			Progress: c.GetProgress(),
			State:    c.GetState(), FromReplicaAddress: c.GetFromAddress(), SnapshotName: c.GetSnapshot()}
	}
	return out, nil
}
