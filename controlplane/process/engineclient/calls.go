package engineclient

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

const (
	// callTimeout bounds one call: every operation of the engine answers at once and works on in
	// the background. snapshotTimeout is for one that waits for what the node has to write first,
	// trimTimeout for one that lasts.
	callTimeout     = 20 * time.Second
	snapshotTimeout = 90 * time.Second
	trimTimeout     = 24 * time.Hour

	keyVolume = "volume-name"
	keyEngine = "instance-name"
)

// way is how calls for a target travel: a connection, and metadata that it needs.
type way interface {
	to(t Target) (conn *grpc.ClientConn, pairs []string, err error)
}

// calls implements the operations of EngineClient for every way that ends at the engine's own
// service.
type calls struct{ way }

// call does one unary call with identity, deadline and typed errors.
func call[R any](ctx context.Context, d calls, t Target, what string,
	f func(context.Context, enginev1.EngineClient) (R, error)) (R, error) {
	return callFor(ctx, callTimeout, d, t, what, f)
}

// callFor is call with another deadline.
func callFor[R any](ctx context.Context, timeout time.Duration, d calls, t Target, what string,
	f func(context.Context, enginev1.EngineClient) (R, error)) (R, error) {
	var zero R
	conn, pairs, err := d.to(t)
	if err != nil {
		return zero, err
	}
	ctx, cancel := context.WithTimeout(identity(ctx, t, pairs), timeout)
	defer cancel()
	r, err := f(ctx, enginev1.NewEngineClient(conn))
	if err != nil {
		return zero, typed(t, what, err)
	}
	return r, nil
}

func identity(ctx context.Context, t Target, pairs []string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{keyVolume, t.Volume, keyEngine, t.Engine}, pairs...)...)
}

// typed marks an error once, at its source.
func typed(t Target, what string, err error) error {
	return failed(t, what, kindOf(status.Code(err)), status.Convert(err).Message())
}

func failed(t Target, what string, kind error, why string) error {
	return fmt.Errorf("%s on engine %s of volume %s at %s: %w: %s", what, t.Engine, t.Volume, t.Address, kind, why)
}

// kindOf is the kind of an engine's code, however it came.
func kindOf(c codes.Code) error {
	switch c {
	case codes.NotFound:
		return ErrNotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.ResourceExhausted:
		return ErrPrecondition
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return ErrInvalid
	}
	return ErrUnavailable
}

// Get implements Client.
func (d calls) Get(ctx context.Context, t Target) (State, error) {
	s, err := call(ctx, d, t, "get state", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.Get(ctx, &enginev1.GetRequest{})
	})
	return stateFrom(s), err
}

// Watch implements Client.
func (d calls) Watch(ctx context.Context, t Target, observe func(State)) error {
	conn, pairs, err := d.to(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(identity(ctx, t, pairs))
	defer cancel()
	stream, err := enginev1.NewEngineClient(conn).Watch(ctx, &enginev1.GetRequest{})
	if err != nil {
		return typed(t, "watch state", err)
	}
	for {
		s, err := stream.Recv()
		if err != nil {
			return typed(t, "watch state", err)
		}
		observe(stateFrom(s))
	}
}

// ReplicaAdd implements Client.
func (d calls) ReplicaAdd(ctx context.Context, t Target, address string) (State, error) {
	s, err := call(ctx, d, t, "add replica "+address,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.ReplicaAdd(ctx, &enginev1.ReplicaAddRequest{Address: scheme + address})
		})
	return stateFrom(s), err
}

// ReplicaRemove implements Client.
func (d calls) ReplicaRemove(ctx context.Context, t Target, address string) (State, error) {
	s, err := call(ctx, d, t, "remove replica "+address,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: scheme + address})
		})
	return stateFrom(s), err
}

// SnapshotCreate implements Client.
func (d calls) SnapshotCreate(ctx context.Context, t Target, s SnapshotRequest) (string, error) {
	r, err := callFor(ctx, snapshotTimeout, d, t, "create snapshot",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotCreateResponse, error) {
			return c.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: s.Name, Labels: s.Labels,
				UserCreated: s.UserCreated, FreezeFilesystem: s.Freeze})
		})
	return r.GetName(), err
}

// Version implements Client.
func (d calls) Version(ctx context.Context, t Target) (Version, error) {
	v, err := call(ctx, d, t, "get version",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.VersionResponse, error) {
			return c.Version(ctx, &enginev1.VersionRequest{})
		})
	return Version{
		Version: v.GetVersion(), GitCommit: v.GetGitCommit(), BuildDate: v.GetBuildDate(),
		CLIAPIVersion: v.GetCliApiVersion(), CLIAPIMinVersion: v.GetCliApiMinVersion(),
		ControllerAPIVersion: v.GetControllerApiVersion(), ControllerAPIMinVersion: v.GetControllerApiMinVersion(),
		DataFormatVersion: v.GetDataFormatVersion(), DataFormatMinVersion: v.GetDataFormatMinVersion(),
	}, err
}

// order does a call of which only the failure matters: what it changed is in the engine's state.
func order(ctx context.Context, d calls, t Target, what string,
	f func(context.Context, enginev1.EngineClient) (*enginev1.State, error)) error {
	_, err := call(ctx, d, t, what, f)
	return err
}

// Expand implements EngineClient.
func (d calls) Expand(ctx context.Context, t Target, sizeBytes int64) error {
	return order(ctx, d, t, "expand", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.Expand(ctx, &enginev1.ExpandRequest{Size: sizeBytes})
	})
}

// FrontendStart implements EngineClient.
func (d calls) FrontendStart(ctx context.Context, t Target, frontend string) error {
	return order(ctx, d, t, "start frontend "+frontend,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.FrontendStart(ctx, &enginev1.FrontendStartRequest{Frontend: frontend})
		})
}

// FrontendShutdown implements EngineClient.
func (d calls) FrontendShutdown(ctx context.Context, t Target) error {
	return order(ctx, d, t, "shut the frontend down",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.FrontendShutdown(ctx, &enginev1.FrontendShutdownRequest{})
		})
}

// OptionsSet implements EngineClient.
func (d calls) OptionsSet(ctx context.Context, t Target, o Options) error {
	r := &enginev1.OptionsSetRequest{SnapshotMaxSize: o.SnapshotMaxSizeBytes,
		UnmapMarkSnapChainRemoved: o.UnmapMarkSnapChainRemoved, RebuildBandwidth: o.RebuildBandwidth}
	if o.SnapshotMaxCount != nil {
		n := int32(*o.SnapshotMaxCount)
		r.SnapshotMaxCount = &n
	}
	if o.RebuildConcurrency != nil {
		n := int32(*o.RebuildConcurrency)
		r.RebuildConcurrency = &n
	}
	return order(ctx, d, t, "set options", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.OptionsSet(ctx, r)
	})
}

// SnapshotRevert implements EngineClient.
func (d calls) SnapshotRevert(ctx context.Context, t Target, name string) error {
	return order(ctx, d, t, "revert to snapshot "+name,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: name})
		})
}

// SnapshotRemove implements EngineClient.
func (d calls) SnapshotRemove(ctx context.Context, t Target, name string) error {
	return order(ctx, d, t, "remove snapshot "+name,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: name})
		})
}

// SnapshotPurge implements EngineClient.
func (d calls) SnapshotPurge(ctx context.Context, t Target, skipIfInProgress bool) error {
	return order(ctx, d, t, "purge snapshots",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
			return c.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{SkipIfInProgress: skipIfInProgress})
		})
}

// SnapshotHash implements EngineClient.
func (d calls) SnapshotHash(ctx context.Context, t Target, name string, rehash bool) error {
	_, err := call(ctx, d, t, "hash snapshot "+name,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotHashState, error) {
			return c.SnapshotHash(ctx, &enginev1.SnapshotHashRequest{Name: name, Rehash: rehash})
		})
	return err
}

// SnapshotHashStatus implements EngineClient.
func (d calls) SnapshotHashStatus(ctx context.Context, t Target, name string) (map[string]Hash, error) {
	s, err := call(ctx, d, t, "get the checksums of snapshot "+name,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotHashState, error) {
			return c.SnapshotHashStatus(ctx, &enginev1.SnapshotHashStatusRequest{Name: name})
		})
	if err != nil {
		return nil, err
	}
	out := map[string]Hash{}
	for address, h := range s.GetByAddress() {
		out[plain(address)] = Hash{State: h.GetState(), Checksum: h.GetChecksum(), Error: h.GetError(),
			SilentlyCorrupted: h.GetSilentlyCorrupted(), Repaired: int(h.GetRepaired())}
	}
	return out, nil
}

// ReplicaVerifyRebuild implements EngineClient: the engine verifies the content before it gives
// mode RW.
func (d calls) ReplicaVerifyRebuild(ctx context.Context, t Target, address string) error {
	state, err := d.Get(ctx, t)
	if err != nil {
		return err
	}
	what := "verify replica " + address
	for _, r := range state.Replicas {
		if r.Address == address {
			if r.Mode != ModeRW {
				return failed(t, what, ErrPrecondition, fmt.Sprintf("it is not in mode RW (%s)", r.Mode))
			}
			return nil
		}
	}
	return failed(t, what, ErrPrecondition, "the engine has no such replica")
}

// scheme is what engines put before replica addresses.
const scheme = "tcp://"

func plain(address string) string { return strings.TrimPrefix(address, scheme) }

// SnapshotHashCancel implements EngineClient.
func (d calls) SnapshotHashCancel(ctx context.Context, t Target, name string) error {
	_, err := call(ctx, d, t, "cancel hash of snapshot "+name,
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotHashState, error) {
			return c.SnapshotHashCancel(ctx, &enginev1.SnapshotHashCancelRequest{Name: name})
		})
	return err
}

// FilesystemTrim implements EngineClient.
func (d calls) FilesystemTrim(ctx context.Context, t Target) (bytes int64, err error) {
	r, err := callFor(ctx, trimTimeout, d, t, "trim the file system",
		func(ctx context.Context, c enginev1.EngineClient) (*enginev1.FilesystemTrimResponse, error) {
			return c.FilesystemTrim(ctx, &enginev1.FilesystemTrimRequest{})
		})
	return r.GetBytes(), err
}
