package proxy

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
)

// RemountReadOnlyVolume makes the file system of a volume writable again where this node has
// mounted it.
func (s *service) RemountReadOnlyVolume(ctx context.Context, r *imrpc.RemountVolumeRequest) (*emptypb.Empty, error) {
	if s.engines.Systems == nil {
		return nil, errNoSystems
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return work(ctx, r.GetVolumeName(), func(volume string) (*emptypb.Empty, error) {
		return &emptypb.Empty{}, s.engines.Systems.Remount(volume)
	})
}
