// Package client talks to the process service of an instance manager.
//
// It is thin: requests and answers are the messages of api/rpc/imrpc. What it adds are typed errors
// and Watch, which turns list and stream of changes into one sequence that never misses a change.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/host/listener"
	"ankole.storage/host/mtls"
)

// Kinds of failure; test with errors.Is. The gRPC status stays reachable with status.FromError.
var (
	ErrInvalid     = errors.New("invalid request")
	ErrNotFound    = errors.New("no such process")
	ErrExists      = errors.New("process exists")
	ErrExhausted   = errors.New("no room")
	ErrUnavailable = errors.New("instance manager unavailable")
)

var kinds = map[codes.Code]error{
	codes.InvalidArgument:   ErrInvalid,
	codes.NotFound:          ErrNotFound,
	codes.AlreadyExists:     ErrExists,
	codes.ResourceExhausted: ErrExhausted,
	codes.Unavailable:       ErrUnavailable,
	codes.DeadlineExceeded:  ErrUnavailable,
}

// Error is a failed call.
type Error struct {
	Call    string // method and process, for instance "ProcessCreate demo-e-0"
	Address string
	Err     error // a gRPC status
}

func (e *Error) Error() string {
	return fmt.Sprintf("instance manager %s: %s: %s", e.Address, e.Call, status.Convert(e.Err).Message())
}

// Unwrap gives the kind and the status.
func (e *Error) Unwrap() []error {
	if kind := kinds[status.Code(e.Err)]; kind != nil {
		return []error{kind, e.Err}
	}
	return []error{e.Err}
}

// GRPCStatus lets status.FromError see through.
func (e *Error) GRPCStatus() *status.Status { return status.Convert(e.Err) }

// pingInterval finds a peer that vanished; the server allows 10 s and more.
const pingInterval = 30 * time.Second

// pingTimeout is how long the answer to a ping may take.
const pingTimeout = 10 * time.Second

// reconnect is how soon a connection that could not be made is tried again: what gRPC does by
// itself is up to two minutes, in which a node that is back is not known to run anything, and the
// questions of its engines reach nobody.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
	Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}}

// Client is a connection to one instance manager. It connects when needed, and again after a loss.
type Client struct {
	address string
	conn    *grpc.ClientConn
	rpc     imrpc.ProcessManagerServiceClient
}

// Dial prepares a client for HOST:PORT. It does not connect yet. Without a dialer it speaks
// plaintext; see package mtls.
func Dial(address string, d *mtls.Dialer) (*Client, error) {
	conn, err := Conn(address, d)
	if err != nil {
		return nil, err
	}
	return &Client{address: address, conn: conn, rpc: imrpc.NewProcessManagerServiceClient(conn)}, nil
}

// Conn prepares a connection to any service of an instance manager; as Dial.
func Conn(address string, d *mtls.Dialer, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return connTo(address, d.Dial, more...)
}

// Local prepares a connection to a unix socket of an instance manager on this node.
func Local(path string) (*grpc.ClientConn, error) { return connTo(path, listener.DialUnix) }

func connTo(address string, dial func(context.Context, string) (net.Conn, error),
	more ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, append(more,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the dialer's connections are secured already
		grpc.WithConnectParams(reconnect),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: pingInterval, Timeout: pingTimeout, PermitWithoutStream: true,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("instance manager %s: %w", address, err)
	}
	return conn, nil
}

// Close closes the connection; calls in flight fail.
func (c *Client) Close() error { return c.conn.Close() }

// Conn is the connection, for other services at the same address (relayclient.Serve).
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Address is what Dial was given.
func (c *Client) Address() string { return c.address }

func (c *Client) wrap(call, name string, err error) error {
	if err == nil {
		return nil
	}
	if name != "" {
		call += " " + name
	}
	return &Error{Call: call, Address: c.address, Err: err}
}

// ProcessCreate starts a process. The answer may be in state "error". ErrInvalid, ErrExists,
// ErrExhausted (no ports).
func (c *Client) ProcessCreate(ctx context.Context, spec *imrpc.ProcessSpec) (*imrpc.ProcessResponse, error) {
	p, err := c.rpc.ProcessCreate(ctx, &imrpc.ProcessCreateRequest{Spec: spec})
	return p, c.wrap("ProcessCreate", spec.GetName(), err)
}

// ProcessDelete asks a process to end; uuid may be empty. It is gone when Get says ErrNotFound or
// Watch says Deleted.
func (c *Client) ProcessDelete(ctx context.Context, name, uuid string) (*imrpc.ProcessResponse, error) {
	p, err := c.rpc.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: name, Uuid: uuid})
	return p, c.wrap("ProcessDelete", name, err)
}

// ProcessDeleteLast is ProcessDelete for a process that no other one of its name follows there:
// what is kept for a successor ends.
func (c *Client) ProcessDeleteLast(ctx context.Context, name, uuid string) (*imrpc.ProcessResponse, error) {
	p, err := c.rpc.ProcessDelete(ctx, &imrpc.ProcessDeleteRequest{Name: name, Uuid: uuid, Last: true})
	return p, c.wrap("ProcessDelete", name, err)
}

// ProcessGet returns one process; ErrNotFound.
func (c *Client) ProcessGet(ctx context.Context, name string) (*imrpc.ProcessResponse, error) {
	p, err := c.rpc.ProcessGet(ctx, &imrpc.ProcessGetRequest{Name: name})
	return p, c.wrap("ProcessGet", name, err)
}

// ProcessList returns all processes by name.
func (c *Client) ProcessList(ctx context.Context) (map[string]*imrpc.ProcessResponse, error) {
	list, err := c.rpc.ProcessList(ctx, &imrpc.ProcessListRequest{})
	return list.GetProcesses(), c.wrap("ProcessList", "", err)
}

// CloseIdle lists all processes and has no other one started from now on, if none runs. closed says
// whether that is so; an instance manager that does not know the order never says it.
func (c *Client) CloseIdle(ctx context.Context) (list map[string]*imrpc.ProcessResponse, closed bool, err error) {
	answer, err := c.rpc.ProcessList(ctx, &imrpc.ProcessListRequest{Close: true})
	return answer.GetProcesses(), answer.GetClosed(), c.wrap("ProcessList", "", err)
}

// ProcessReplace hands a process over to a new one with another binary. ErrInvalid, ErrNotFound,
// ErrExists.
func (c *Client) ProcessReplace(ctx context.Context, spec *imrpc.ProcessSpec) (*imrpc.ProcessResponse, error) {
	p, err := c.rpc.ProcessReplace(ctx, &imrpc.ProcessReplaceRequest{Spec: spec, TerminateSignal: "SIGHUP"})
	return p, c.wrap("ProcessReplace", spec.GetName(), err)
}

// LogOptions say which part of a log is wanted.
type LogOptions struct {
	// Follow goes on with lines as they come, until the process has ended.
	Follow bool
	// Tail begins with the last so many lines; 0 begins with the first.
	Tail int64
}

// ProcessLog calls line for each line of a process's log until its end. An instance manager that
// does not know the options sends the whole log, once. Errors: ErrNotFound; ErrExhausted (too many
// readers), and those of line.
func (c *Client) ProcessLog(ctx context.Context, name string, o LogOptions, line func(string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ProcessLog(ctx, &imrpc.LogRequest{Name: name, Follow: o.Follow, Tail: o.Tail})
	if err != nil {
		return c.wrap("ProcessLog", name, err)
	}
	for {
		l, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.wrap("ProcessLog", name, err)
		}
		if err := line(l.GetLine()); err != nil {
			return err
		}
	}
}

// VersionGet returns the API versions of the instance manager.
func (c *Client) VersionGet(ctx context.Context) (*imrpc.VersionResponse, error) {
	v, err := c.rpc.VersionGet(ctx, &emptypb.Empty{})
	return v, c.wrap("VersionGet", "", err)
}

// Check asks the health service.
func (c *Client) Check(ctx context.Context) error {
	_, err := healthpb.NewHealthClient(c.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return c.wrap("health check", "", err)
}
