package proxy

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// Metadata keys. KeyAddress names the engine's "ip:port" to the proxy; the others are for the
// engine.
const (
	KeyAddress = "engine-address"
	keyVolume  = "volume-name"
	keyEngine  = "instance-name"
)

// passed are the keys that go on to the engine.
var passed = []string{keyVolume, keyEngine}

// ServerOptions make a server pass the engine's own service on.
func (e *Engines) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}),
		grpc.UnknownServiceHandler(e.forward),
	}
}

// watchMethod is the one call that lasts as long as its client likes.
const watchMethod = "/ankole.engine.v1.Engine/Watch"

// forward passes one call of the engine's service on: one request, then answers until the engine
// ends the call. All but a watch end after callTimeout, whatever the client's deadline, and also if
// the client does not send its request.
func (e *Engines) forward(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if !strings.HasPrefix(method, "/"+enginev1.Engine_ServiceDesc.ServiceName+"/") {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	md, _ := metadata.FromIncomingContext(down.Context())
	address := md.Get(KeyAddress)
	if len(address) != 1 {
		return status.Errorf(codes.InvalidArgument, "%s: metadata key %s must name one engine as IP:PORT", method, KeyAddress)
	}
	on := metadata.MD{}
	for _, key := range passed {
		on.Set(key, md.Get(key)...)
	}
	ctx := metadata.NewOutgoingContext(down.Context(), on)
	if method != watchMethod {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.timeoutOf(method))
		defer cancel()
	}
	volume := strings.Join(md.Get(keyVolume), "")
	// RecvMsg and SendMsg wait for the client, not for ctx: they end when this handler returns.
	ended := make(chan error, 1)
	go func() {
		if method == trimMethod {
			ended <- e.answerTrim(ctx, volume, down)
			return
		}
		ended <- e.pass(ctx, address[0], method, volume, down)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (e *Engines) timeoutOf(method string) time.Duration {
	switch {
	case e.timeout != 0:
		return e.timeout
	case method == trimMethod:
		return longTimeout
	}
	return callTimeout
}

// answerTrim answers a call that no engine can.
func (e *Engines) answerTrim(ctx context.Context, volume string, down grpc.ServerStream) error {
	var q enginev1.FilesystemTrimRequest
	if err := down.RecvMsg(&q); err != nil {
		return err
	}
	answer, err := e.trim(ctx, volume)
	if err != nil {
		return err
	}
	return down.SendMsg(answer)
}

// pass passes the request of one call on, and the answers.
func (e *Engines) pass(ctx context.Context, address, method, volume string, down grpc.ServerStream) error {
	conn, release, err := e.conn(address)
	if err != nil {
		return err
	}
	defer release()
	var request raw
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	defer request.free()
	if method == snapshotMethod {
		resume, err := e.quiesceFor(ctx, volume, &request)
		if err != nil {
			return err
		}
		defer resume()
	}
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: method, ServerStreams: true}, method,
		grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	if err := up.SendMsg(&request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := up.CloseSend(); err != nil {
		return err
	}
	for {
		var answer raw
		err := up.RecvMsg(&answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = down.SendMsg(&answer)
			answer.free()
		}
		if err != nil {
			return err
		}
	}
}

// raw is a message that is not looked into.
type raw struct{ data mem.BufferSlice }

func (r *raw) free() { r.data.Free() }

// rawCodec passes raw messages on and leaves all others to the codec below.
type rawCodec struct{ below encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*raw); ok {
		r.data.Ref()
		return r.data, nil
	}
	return c.below.Marshal(v)
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*raw); ok {
		data.Ref()
		r.data = data
		return nil
	}
	return c.below.Unmarshal(data, v)
}

func (rawCodec) Name() string { return proto.Name }
