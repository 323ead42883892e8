package proxy

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
	"ankole.storage/api/rpc/imrpc"
)

// Binary runs an engine binary of the node: it looks into backup stores without an engine.
type Binary interface {
	// Newest is the path of the binary that was installed last.
	Newest() (string, error)
	Run(ctx context.Context, r *enginebinaryv1.RunRequest) (*enginebinaryv1.RunResponse, error)
}

// SnapshotBackup begins to back a snapshot up; SnapshotBackupStatus tells the progress.
func (s *service) SnapshotBackup(ctx context.Context,
	r *imrpc.EngineSnapshotBackupRequest) (*imrpc.EngineSnapshotBackupProxyResponse, error) {
	if r.GetSnapshotName() == "" || r.GetBackupTarget() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_name or backup_target is missing")
	}
	credentials, err := variables(r.GetEnvs())
	if err != nil {
		return nil, err
	}
	b, err := call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.Backup, error) {
			return c.BackupCreate(ctx, &enginev1.BackupCreateRequest{Name: r.GetBackupName(), Snapshot: r.GetSnapshotName(),
				Target: r.GetBackupTarget(), Credentials: credentials, Labels: r.GetLabels(), Parameters: r.GetParameters(),
				CompressionMethod: r.GetCompressionMethod(), ConcurrentLimit: r.GetConcurrentLimit(),
				StorageClassName: r.GetStorageClassName(), BackingImageName: r.GetBackingImageName(),
				BackingImageChecksum: r.GetBackingImageChecksum()})
		})
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineSnapshotBackupProxyResponse{BackupId: b.GetName(), Replica: b.GetFromAddress(),
		IsIncremental: b.GetIncremental()}, nil
}

// SnapshotBackupStatus answers for the engine, whichever replica it reads.
func (s *service) SnapshotBackupStatus(ctx context.Context,
	r *imrpc.EngineSnapshotBackupStatusRequest) (*imrpc.EngineSnapshotBackupStatusProxyResponse, error) {
	state, err := s.state(ctx, r.GetProxyEngineRequest())
	if err != nil {
		return nil, err
	}
	b := state.GetBackups()[r.GetBackupName()]
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "cannot find backup %s: this engine has not begun it, or has forgotten it",
			r.GetBackupName())
	}
	return &imrpc.EngineSnapshotBackupStatusProxyResponse{BackupUrl: b.GetUrl(), Error: b.GetError(), State: b.GetState(),
		Progress: b.GetProgress(), SnapshotName: b.GetSnapshot(), ReplicaAddress: b.GetFromAddress()}, nil
}

// taskError is how clients of the reference are told that a restore did not begin.
type taskError struct{ ReplicaErrors []replicaError }

type replicaError struct{ Address, Message string }

// BackupRestore begins to fill the volume with a backup. What the engine refuses is part of the
// answer, as in the reference; wrong arguments are an error.
func (s *service) BackupRestore(ctx context.Context,
	r *imrpc.EngineBackupRestoreRequest) (*imrpc.EngineBackupRestoreProxyResponse, error) {
	credentials, err := variables(r.GetEnvs())
	if err != nil {
		return nil, err
	}
	_, err = call(ctx, s, r.GetProxyEngineRequest(),
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.BackupRestore(ctx, &enginev1.BackupRestoreRequest{Url: r.GetUrl(), Credentials: credentials,
				ConcurrentLimit: r.GetConcurrentLimit()})
		})
	out := &imrpc.EngineBackupRestoreProxyResponse{}
	switch status.Code(err) {
	case codes.OK:
		return out, nil
	case codes.InvalidArgument, codes.Canceled, codes.DeadlineExceeded:
		return nil, err
	}
	text, err := json.Marshal(taskError{[]replicaError{{Address: scheme + r.GetProxyEngineRequest().GetAddress(),
		Message: status.Convert(err).Message()}}})
	out.TaskError = text
	return out, err
}

// BackupRestoreStatus tells the same of every replica that takes part: the engine writes to all of
// them at once.
func (s *service) BackupRestoreStatus(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineBackupRestoreStatusProxyResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &imrpc.EngineBackupRestoreStatusProxyResponse{Status: map[string]*imrpc.EngineBackupRestoreStatus{}}
	for _, p := range state.GetReplicas() {
		m := state.GetRestore()
		o := &imrpc.EngineBackupRestoreStatus{BackupUrl: state.GetRestoreUrl()}
		out.Status[p.GetAddress()] = o
		if m == nil || p.GetMode() == enginev1.Mode_MODE_ERR {
			continue // it has no part in it
		}
		o.IsRestoring, o.Progress, o.Error, o.State = m.GetRunning(), m.GetProgress(), m.GetError(), m.GetState()
		o.Filename = "volume-snap-" + m.GetName() + ".img"
		if m.GetState() == "complete" {
			o.LastRestored = m.GetSnapshot()
		} else {
			o.CurrentRestoringBackup = m.GetSnapshot()
		}
	}
	return out, nil
}

// variables reads KEY=VALUE pairs. Values are never told: they are credentials.
func variables(envs []string) (map[string]string, error) {
	out := make(map[string]string, len(envs))
	for i, e := range envs {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, status.Error(codes.InvalidArgument, "envs: number "+strconv.Itoa(i+1)+" is not KEY=VALUE")
		}
		out[name] = value
	}
	return out, nil
}

// store has the engine binary look into a backup store. The answer is what it prints.
func (s *service) store(ctx context.Context, r *imrpc.EngineBackupStoreRequest,
	verb ...string) (*imrpc.EngineBackupStoreProxyResponse, error) {
	if s.engines.Binary == nil {
		return nil, status.Error(codes.Unimplemented, "no engine binaries are run here")
	}
	if strings.HasPrefix(r.GetUrl(), "-") || r.GetUrl() == "" {
		return nil, status.Error(codes.InvalidArgument, "url is missing: it names a backup target, or a backup in it")
	}
	credentials, err := variables(r.GetEnvs())
	if err != nil {
		return nil, err
	}
	binary, err := s.engines.Binary.Newest()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	out, err := s.engines.Binary.Run(ctx, &enginebinaryv1.RunRequest{Binary: binary,
		Verb: append(append([]string{"backups"}, verb...), r.GetUrl()), Environment: credentials})
	if err != nil {
		return nil, err
	}
	if out.GetStatus() == 0 {
		return &imrpc.EngineBackupStoreProxyResponse{Json: out.GetOutput()}, nil
	}
	why := strings.TrimSpace(out.GetMessage())
	if i := strings.LastIndex(why, "error: "); i >= 0 {
		why = why[i+len("error: "):]
	}
	code := codes.Unavailable
	if strings.Contains(why, "cannot find ") { // what binaries of every age say of what is not there
		code = codes.NotFound
	}
	return nil, status.Error(code, why)
}

// BackupVolumeList names the volumes of a target, or one with its backups.
func (s *service) BackupVolumeList(ctx context.Context,
	r *imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	if r.GetVolumeName() == "" {
		return s.store(ctx, r, "ls", "--volume-only")
	}
	return s.store(ctx, r, "ls", "--volume="+r.GetVolumeName())
}

// BackupVolumeGet describes a volume of a target.
func (s *service) BackupVolumeGet(ctx context.Context,
	r *imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return s.store(ctx, r, "inspect-volume")
}

// BackupGet describes a backup.
func (s *service) BackupGet(ctx context.Context,
	r *imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return s.store(ctx, r, "inspect")
}

// BackupConfigMetaGet says when the record of a volume or a backup was written.
func (s *service) BackupConfigMetaGet(ctx context.Context,
	r *imrpc.EngineBackupStoreRequest) (*imrpc.EngineBackupStoreProxyResponse, error) {
	return s.store(ctx, r, "head")
}

// BackupRemove removes a backup, or with a volume's name all of that volume in a target.
func (s *service) BackupRemove(ctx context.Context, r *imrpc.EngineBackupStoreRequest) (*emptypb.Empty, error) {
	verb := []string{"rm"}
	if r.GetVolumeName() != "" {
		verb = append(verb, "--volume="+r.GetVolumeName())
	}
	return done(s.store(ctx, r, verb...))
}

// CleanupBackupMountPoints has nothing to do: workers mount nothing.
func (s *service) CleanupBackupMountPoints(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}
