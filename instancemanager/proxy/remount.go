package proxy

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/remount"
)

// remounts are those under way: the kernel does not end one whose volume's requests wait, so
// there is one per volume.
type remounts struct {
	mu      sync.Mutex
	volumes map[string]bool
}

func (m *remounts) begin(volume string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.volumes[volume] {
		return false
	}
	if m.volumes == nil {
		m.volumes = map[string]bool{}
	}
	m.volumes[volume] = true
	return true
}

func (m *remounts) end(volume string) {
	m.mu.Lock()
	delete(m.volumes, volume)
	m.mu.Unlock()
}

// RemountReadOnlyVolume makes the file system of a volume writable again where this node has
// mounted it.
func (s *service) RemountReadOnlyVolume(ctx context.Context, r *imrpc.RemountVolumeRequest) (*emptypb.Empty, error) {
	volume := r.GetVolumeName()
	if !s.remounts.begin(volume) {
		return nil, status.Errorf(codes.Aborted,
			"volume %s: it is being mounted again already; its requests may be waiting for a replica", volume)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ended := make(chan error, 1)
	// who waits is the caller, as long as it likes; the kernel ends it with the volume's requests
	// at the latest
	go func() {
		err := s.remount(volume)
		s.remounts.end(volume) // before the caller hears of it, who may ask again at once
		ended <- err
	}()
	select {
	case err := <-ended:
		return done(s, remountStatus(err))
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func remountStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, remount.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, remount.ErrNotMounted):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, remount.ErrRefused):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
