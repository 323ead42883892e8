package proxy

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
)

// errBackup answers everything that needs a backup store.
var errBackup = status.Error(codes.Unimplemented, "backup and restore are not built yet: no backup target can be used")

// errSPDK answers what only data engine v2 has.
var errSPDK = status.Error(codes.Unimplemented, "backing images of data engine v2 are not supported")

func (s *service) SnapshotBackup(context.Context,
	*imrpc.EngineSnapshotBackupRequest) (*imrpc.EngineSnapshotBackupProxyResponse, error) {
	return nil, errBackup
}

func (s *service) SnapshotBackupStatus(context.Context,
	*imrpc.EngineSnapshotBackupStatusRequest) (*imrpc.EngineSnapshotBackupStatusProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupRestore(context.Context,
	*imrpc.EngineBackupRestoreRequest) (*imrpc.EngineBackupRestoreProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupRestoreStatus(context.Context,
	*imrpc.ProxyEngineRequest) (*imrpc.EngineBackupRestoreStatusProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupVolumeList(context.Context,
	*imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupVolumeGet(context.Context,
	*imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupGet(context.Context, *imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse,
	error) {
	return nil, errBackup
}

func (s *service) BackupConfigMetaGet(context.Context,
	*imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return nil, errBackup
}

func (s *service) BackupRemove(context.Context, *imrpc.EngineBackupStoreRequest) (*emptypb.Empty, error) {
	return nil, errBackup
}

func (s *service) CleanupBackupMountPoints(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return nil, errBackup
}

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
