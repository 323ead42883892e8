// Package control is the socket on which a running standalone cluster takes commands.
//
// Tests use it to lose a node. One connection carries one JSON request and one JSON answer:
//
//	{"command":"node-kill","node":"node-2"}  ->  {"ok":true}
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ankole.storage/host/listener"
)

// Commands.
const (
	NodeStop  = "node-stop"  // end the node's Pods with their grace, then the node
	NodeKill  = "node-kill"  // SIGKILL everything of the node, as a power failure
	NodeStart = "node-start" // bring a stopped or killed node back
	// NodeHang has the node's kubelet neither start nor end anything, while its containers and its
	// lease live on; NodeResume lets it go on.
	NodeHang   = "node-hang"
	NodeResume = "node-resume"
)

const (
	// SocketName in the state folder.
	SocketName = "control.sock"
	// requestTimeout bounds how long a request may take to arrive, maxRequest its bytes.
	requestTimeout = 5 * time.Second
	maxRequest     = 4 << 10
)

// Request is what a client sends.
type Request struct {
	Command string `json:"command"`
	Node    string `json:"node"`
}

// Response is the answer: Error is empty on success.
type Response struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Server answers on the socket of a state folder.
type Server struct {
	listener net.Listener
	release  func()
	wg       sync.WaitGroup
	cancel   context.CancelFunc
}

// Listen serves requests with handle until Close.
func Listen(stateDir string, handle func(context.Context, Request) error) (*Server, error) {
	path, release, err := listener.Reach(filepath.Join(stateDir, SocketName))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	_ = os.Remove(path) // left by a killed instance; the folder's lock says that none is alive
	ctx, cancel := context.WithCancel(context.Background())
	l, err := listener.Listen(ctx, "unix", path)
	if err != nil {
		cancel()
		release()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{listener: l, release: release, cancel: cancel}
	s.wg.Go(func() { s.accept(ctx, handle) })
	return s, nil
}

// Close stops the server and waits for requests under way.
func (s *Server) Close() {
	s.cancel()
	_ = s.listener.Close()
	s.wg.Wait()
	s.release()
}

func (s *Server) accept(ctx context.Context, handle func(context.Context, Request) error) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return // it is closed
		}
		s.wg.Go(func() { serve(ctx, c, handle) })
	}
}

func serve(ctx context.Context, c net.Conn, handle func(context.Context, Request) error) {
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(requestTimeout))
	buf := make([]byte, maxRequest)
	n, err := c.Read(buf)
	var req Request
	if err == nil {
		err = json.Unmarshal(buf[:n], &req)
	}
	if err == nil {
		err = handle(ctx, req)
	}
	resp := Response{OK: err == nil}
	if err != nil {
		resp.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(resp)
}
