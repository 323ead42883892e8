package proxy

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
)

// errRestore answers who would add a replica to a volume while that is restored.
var errRestore = status.Error(codes.Unimplemented,
	"a restore writes to all replicas at once: add the replica when it is complete")

// errSPDK answers what only data engine v2 has.
var errSPDK = status.Error(codes.Unimplemented, "backing images of data engine v2 are not supported")

func (s *service) BackupRestoreFinish(context.Context, *imrpc.EngineBackupRestoreFinishRequest) (*emptypb.Empty,
	error) {
	return nil, status.Error(codes.Unimplemented,
		"a restore finishes by itself; nobody serves this method, the reference does not either")
}

func (s *service) SPDKBackingImageCreate(context.Context,
	*imrpc.SPDKBackingImageCreateRequest) (*imrpc.SPDKBackingImageResponse, error) {
	return nil, errSPDK
}

func (s *service) SPDKBackingImageDelete(context.Context, *imrpc.SPDKBackingImageDeleteRequest) (*emptypb.Empty,
	error) {
	return nil, errSPDK
}

func (s *service) SPDKBackingImageGet(context.Context,
	*imrpc.SPDKBackingImageGetRequest) (*imrpc.SPDKBackingImageResponse, error) {
	return nil, errSPDK
}

func (s *service) SPDKBackingImageList(context.Context, *emptypb.Empty) (*imrpc.SPDKBackingImageListResponse, error) {
	return nil, errSPDK
}

func (s *service) SPDKBackingImageWatch(*emptypb.Empty, grpc.ServerStreamingServer[emptypb.Empty]) error {
	return errSPDK
}
