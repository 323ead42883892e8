package engineclient

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

const (
	// callTimeout bounds one call: every operation of the engine answers at once and works on in the background, except
	// a snapshot, which waits for writes under way.
	callTimeout = 20 * time.Second
	// maxStateBytes bounds a received state: 250 snapshots with labels and 20 replicas stay far below.
	maxStateBytes = 4 << 20
	// idleTimeout closes connections that nobody uses any more.
	idleTimeout = 5 * time.Minute

	keyVolume = "volume-name"
	keyEngine = "instance-name"
)

// Direct dials engines on their own port. The zero value is ready; Close releases its connections.
type Direct struct {
	// Dial options in addition to the defaults; set before first use (tests use it for in-memory listeners).
	Options []grpc.DialOption

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

var _ Client = (*Direct)(nil)

// conn returns the pooled connection to an address. It is made lazily and reconnects by itself.
func (d *Direct) conn(address string) (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.conns[address]; c != nil {
		return c, nil
	}
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // engines serve plain text, as the reference's do
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStateBytes)),
	}, d.Options...)
	c, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: address %q: %w", ErrInvalid, address, err)
	}
	if d.conns == nil {
		d.conns = map[string]*grpc.ClientConn{}
	}
	d.conns[address] = c
	return c, nil
}

// Forget implements Client.
func (d *Direct) Forget(t Target) {
	d.mu.Lock()
	c := d.conns[t.Address]
	delete(d.conns, t.Address)
	d.mu.Unlock()
	if c != nil {
		_ = c.Close() // nothing is lost: calls under way fail as unavailable
	}
}

// Close closes every connection; calls under way fail.
func (d *Direct) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close() // as in Forget
	}
	d.conns = nil
}

// Call does one unary call with identity, deadline and typed errors.
func call[R any](ctx context.Context, d *Direct, t Target, what string, f func(context.Context, enginev1.EngineClient) (R, error)) (R, error) {
	var zero R
	conn, err := d.conn(t.Address)
	if err != nil {
		return zero, err
	}
	ctx, cancel := context.WithTimeout(identity(ctx, t), callTimeout)
	defer cancel()
	r, err := f(ctx, enginev1.NewEngineClient(conn))
	if err != nil {
		return zero, typed(t, what, err)
	}
	return r, nil
}

func identity(ctx context.Context, t Target) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyVolume, t.Volume, keyEngine, t.Engine)
}

// typed marks an error once, at its source.
func typed(t Target, what string, err error) error {
	kind := ErrUnavailable
	switch status.Code(err) {
	case codes.NotFound:
		kind = ErrNotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.ResourceExhausted:
		kind = ErrPrecondition
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		kind = ErrInvalid
	}
	return fmt.Errorf("%s on engine %s of volume %s at %s: %w: %s", what, t.Engine, t.Volume, t.Address, kind, status.Convert(err).Message())
}

// Get implements Client.
func (d *Direct) Get(ctx context.Context, t Target) (State, error) {
	s, err := call(ctx, d, t, "get state", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.Get(ctx, &enginev1.GetRequest{})
	})
	return stateFrom(s), err
}

// Watch implements Client.
func (d *Direct) Watch(ctx context.Context, t Target, observe func(State)) error {
	conn, err := d.conn(t.Address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(identity(ctx, t))
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
func (d *Direct) ReplicaAdd(ctx context.Context, t Target, address string) (State, error) {
	s, err := call(ctx, d, t, "add replica "+address, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.ReplicaAdd(ctx, &enginev1.ReplicaAddRequest{Address: scheme + address})
	})
	return stateFrom(s), err
}

// ReplicaRemove implements Client.
func (d *Direct) ReplicaRemove(ctx context.Context, t Target, address string) (State, error) {
	s, err := call(ctx, d, t, "remove replica "+address, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.State, error) {
		return c.ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: scheme + address})
	})
	return stateFrom(s), err
}

// SnapshotCreate implements Client.
func (d *Direct) SnapshotCreate(ctx context.Context, t Target, s SnapshotRequest) (string, error) {
	r, err := call(ctx, d, t, "create snapshot", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.SnapshotCreateResponse, error) {
		return c.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: s.Name, Labels: s.Labels, UserCreated: s.UserCreated})
	})
	return r.GetName(), err
}

// Version implements Client.
func (d *Direct) Version(ctx context.Context, t Target) (Version, error) {
	v, err := call(ctx, d, t, "get version", func(ctx context.Context, c enginev1.EngineClient) (*enginev1.VersionResponse, error) {
		return c.Version(ctx, &enginev1.VersionRequest{})
	})
	return Version{
		Version: v.GetVersion(), GitCommit: v.GetGitCommit(), BuildDate: v.GetBuildDate(),
		CLIAPIVersion: v.GetCliApiVersion(), CLIAPIMinVersion: v.GetCliApiMinVersion(),
		ControllerAPIVersion: v.GetControllerApiVersion(), ControllerAPIMinVersion: v.GetControllerApiMinVersion(),
		DataFormatVersion: v.GetDataFormatVersion(), DataFormatMinVersion: v.GetDataFormatMinVersion(),
	}, err
}

// scheme is what engines put before replica addresses.
const scheme = "tcp://"

func plain(address string) string { return strings.TrimPrefix(address, scheme) }
