package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/server"
	"ankole.storage/test/wait"
)

// TestLogNobodyReads: a client that asks for a log and does not read it is cut off; one that
// follows a process with nothing to say is not.
func TestLogNobodyReads(t *testing.T) {
	server.SetLogStall(t, 100*time.Millisecond)
	ended := make(chan codes.Code, 1000)
	conn, _ := start(t, nil,
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			err := h(srv, stream)
			ended <- status.Code(err)
			return err
		}))
	c := imrpc.NewProcessManagerServiceClient(conn)
	// 100,000 lines are more than the windows of stream and connection take.
	for name, count := range map[string]string{"chatty-r-1": "100000", "silent-r-1": "1"} {
		spec := instancetest.Spec(t, name, instancetest.Print, "", 0, "--count", count)
		if _, err := c.ProcessCreate(t.Context(), &imrpc.ProcessCreateRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	silent, err := c.ProcessLog(t.Context(), &imrpc.LogRequest{Name: "silent-r-1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := silent.Recv(); err != nil || l.GetLine() != "line 0" {
		t.Fatal(l, err)
	}
	wait.Until(t, "everything is logged", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		last, err := c.ProcessLog(ctx, &imrpc.LogRequest{Name: "chatty-r-1", Tail: 1})
		if err != nil {
			t.Fatal(err)
		}
		l, err := last.Recv()
		return err == nil && l.GetLine() == "line 99999"
	})
	unread, err := c.ProcessLog(t.Context(), &imrpc.LogRequest{Name: "chatty-r-1"})
	if err != nil {
		t.Fatal(err)
	}
	// Its window fills, and then nothing moves until the server has had enough.
	for code := range ended {
		if code == codes.Aborted {
			break
		}
	}
	for {
		if _, err = unread.Recv(); err != nil {
			break
		}
	}
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "the log of chatty-r-1 was not read") {
		t.Errorf("the log nobody read ends with %v", err)
	}
	if _, err := c.ProcessDelete(t.Context(), &imrpc.ProcessDeleteRequest{Name: "silent-r-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Recv(); err == nil || status.Code(err) == codes.Aborted {
		t.Errorf("the log that had nothing to say ends with %v", err)
	}
}
