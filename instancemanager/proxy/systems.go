package proxy

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/instancemanager/filesystem"
)

// Systems works on the file systems that this node has mounted from volumes. Its errors are those
// of package filesystem.
type Systems interface {
	// Remount makes one that has gone read-only writable again.
	Remount(volume string) error
	// Trim has one discard what it does not use, and returns how many bytes that were.
	Trim(volume string) (int64, error)
	// Quiesce brings everything that was written so far onto the volume, and lets nobody write until
	// resume if freeze is set.
	Quiesce(ctx context.Context, volume string, freeze bool) (resume func())
}

// Methods of the engine's own service that have to do with mounted file systems. The others are
// passed on as they are.
const (
	snapshotMethod = "/ankole.engine.v1.Engine/SnapshotCreate"
	trimMethod     = "/ankole.engine.v1.Engine/FilesystemTrim"
)

// quiesce is Systems.Quiesce, where there is a volume.
func (e *Engines) quiesce(ctx context.Context, volume string, freeze bool) (resume func()) {
	if e.Systems == nil || volume == "" {
		return func() {}
	}
	return e.Systems.Quiesce(ctx, volume, freeze)
}

// quiesceFor makes a volume quiet for the request of a snapshot.
func (e *Engines) quiesceFor(ctx context.Context, volume string, request *raw) (resume func(), err error) {
	var q enginev1.SnapshotCreateRequest
	if err := proto.Unmarshal(request.data.Materialize(), &q); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: the request cannot be read: %v", snapshotMethod, err)
	}
	return e.quiesce(ctx, volume, q.GetFreezeFilesystem()), nil
}

// work does something with a volume's file system. One that its caller does not wait for any more
// goes on.
func work[R any](ctx context.Context, volume string, f func(volume string) (R, error)) (R, error) {
	type result struct {
		value R
		err   error
	}
	ended := make(chan result, 1)
	// who waits is the caller, as long as it likes; the kernel ends it with the volume's requests
	// at the latest
	go func() {
		v, err := f(volume)
		ended <- result{v, err}
	}()
	select {
	case r := <-ended:
		return r.value, systemStatus(r.err)
	case <-ctx.Done():
		var zero R
		return zero, status.FromContextError(ctx.Err()).Err()
	}
}

// trim answers FilesystemTrim.
func (e *Engines) trim(ctx context.Context, volume string) (*enginev1.FilesystemTrimResponse, error) {
	if e.Systems == nil {
		return nil, errNoSystems
	}
	bytes, err := work(ctx, volume, e.Systems.Trim)
	if err != nil {
		return nil, err
	}
	return &enginev1.FilesystemTrimResponse{Bytes: bytes}, nil
}

var errNoSystems = status.Error(codes.Unimplemented, "nothing is mounted where this proxy runs")

func systemStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filesystem.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, filesystem.ErrNotMounted):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, filesystem.ErrBusy):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, filesystem.ErrRefused), errors.Is(err, filesystem.ErrCovered):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
