package control

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"ankole.storage/host/listener"
	"ankole.storage/test/wait"
)

func TestCall(t *testing.T) {
	dir := t.TempDir()
	s, err := Listen(dir, func(_ context.Context, r Request) error {
		if r != (Request{Command: NodeKill, Node: "node-1"}) {
			return errors.New("no such node")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Call(t.Context(), dir, Request{Command: NodeKill, Node: "node-1"}); err != nil {
		t.Error(err)
	}
	if err := Call(t.Context(), dir, Request{Command: NodeKill, Node: "x"}); err == nil || err.Error() != "no such node" {
		t.Errorf("a refusal came as %v", err)
	}
	s.Close()
	if err := Call(t.Context(), dir, Request{Command: NodeKill}); err == nil {
		t.Error("nobody serves the folder, and the call succeeded")
	}
}

// Who serves the folder does not answer: the caller waits as long as it likes.
func TestCallThatIsNotAnswered(t *testing.T) {
	dir := t.TempDir()
	l, err := listener.Listen(t.Context(), "unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it never accepts
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- Call(ctx, dir, Request{Command: NodeKill, Node: "node-1"}) }()
	if err := wait.Receive(t, "the end of the call", answered); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
