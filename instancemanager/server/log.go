package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/instancemanager/process"
)

// logStall is how long a client may leave a log unread: longer than somebody looks at a page of it,
// so that those who have gone away do not keep the few places of readers for ever.
var logStall = 5 * time.Minute

// sendLog streams the log of a process to a client, who is cut off when he does not read.
func sendLog(m *process.Manager, name string, o process.LogOptions,
	stream grpc.ServerStreamingServer[imrpc.LogResponse]) error {
	// Send blocks while the client does not read, so it has a goroutine of its own. When this
	// handler returns, gRPC cancels the stream, which ends a blocked Send and the waiting for more
	// lines.
	stalled := time.NewTimer(logStall)
	stalled.Stop()
	ended := make(chan error, 1)
	go func() {
		ended <- m.Log(stream.Context(), name, o, func(line string) error {
			stalled.Reset(logStall)
			defer stalled.Stop()
			return stream.Send(&imrpc.LogResponse{Line: line})
		})
	}()
	select {
	case <-stalled.C:
		return status.Errorf(codes.Aborted, "the log of %s was not read for %s", name, logStall)
	case err := <-ended:
		return toStatus(err)
	}
}
