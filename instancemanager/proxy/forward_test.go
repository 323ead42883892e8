package proxy_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/instancemanager/proxy"
	"ankole.storage/instancemanager/server"
)

// silent is an engine that answers nothing, and tells when a call to it ends.
type silent struct {
	enginev1.UnimplementedEngineServer
	ended chan struct{}
}

func (e *silent) Get(ctx context.Context, _ *enginev1.GetRequest) (*enginev1.State, error) {
	<-ctx.Done()
	e.ended <- struct{}{}
	return nil, ctx.Err()
}

func (e *silent) Watch(_ *enginev1.GetRequest, s grpc.ServerStreamingServer[enginev1.State]) error {
	return e.watch(s)
}

func (e *silent) watch(s grpc.ServerStreamingServer[enginev1.State]) error {
	<-e.ended // the other call, which began later and has ended by its deadline
	return s.Send(&enginev1.State{VolumeName: "demo"})
}

// TestForwardedCallsEnd: a client without a deadline, or one that sends no request, does not keep a
// call, its connection and the engine's part of it for ever. A watch may last.
func TestForwardedCallsEnd(t *testing.T) {
	run := func(s *grpc.Server) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	e := &silent{ended: make(chan struct{})}
	s := grpc.NewServer()
	enginev1.RegisterEngineServer(s, e)
	address := run(s)
	engines := &proxy.Engines{}
	engines.SetTimeout(300 * time.Millisecond)
	t.Cleanup(engines.Close)
	conn, err := grpc.NewClient(run(server.NewWith(engines.ServerOptions(), nil, engines.Register)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// The test's own end, if the proxy sets none.
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), proxy.KeyAddress, address),
		time.Minute)
	defer cancel()
	endless := metadata.NewOutgoingContext(context.Background(), metadata.Pairs(proxy.KeyAddress, address))

	watch, err := enginev1.NewEngineClient(conn).Watch(ctx, &enginev1.GetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 2)
	go func() {
		_, err := enginev1.NewEngineClient(conn).Get(endless, &enginev1.GetRequest{})
		result <- err
	}()
	go func() {
		half, err := conn.NewStream(endless, &grpc.StreamDesc{ClientStreams: true}, "/ankole.engine.v1.Engine/Get")
		if err == nil {
			err = half.RecvMsg(&enginev1.State{})
		}
		result <- err
	}()
	for range 2 {
		select {
		case err := <-result:
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a call ends with %v", err)
			}
		case <-ctx.Done():
			t.Fatal("a call has no end")
		}
	}
	if state, err := watch.Recv(); err != nil || state.GetVolumeName() != "demo" {
		t.Errorf("the watch: %v %v", state, err)
	}
}
