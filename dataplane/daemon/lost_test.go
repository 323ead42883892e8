package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/host/hostpath"
	waits "ankole.storage/test/wait"
)

// TestLostFrontendAfterAnOrderThatFailed: a frontend was lost and cannot be made again at the
// moment. Somebody orders one meanwhile, and that fails for the same reason, or since there is none
// of that name: it comes back by itself all the same, and the engine does not leave without it.
// An order that succeeds counts.
func TestLostFrontendAfterAnOrderThatFailed(t *testing.T) {
	t.Setenv(hostpath.Variable, fmt.Sprintf(`{%q: %q}`, socketDir, t.TempDir()))
	blocked, err := socketPath("vol")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(blocked, 0o700); err != nil { // in the way of the socket
		t.Fatal(err)
	}
	s, c := slowEngine(t)
	close(s.p.life.begun)
	close(c.release)
	go func() {
		for range c.arrived {
		}
	}()
	defer close(c.arrived)
	order := func(name string) error {
		_, err := s.FrontendStart(context.Background(), &enginev1.FrontendStartRequest{Frontend: name})
		return err
	}
	lost := func() string {
		s.p.front.mu.Lock()
		defer s.p.front.mu.Unlock()
		return s.p.front.lost
	}
	lose := func() {
		s.p.front.mu.Lock()
		defer s.p.front.mu.Unlock()
		s.p.front.takeDown(s.p)
		s.p.offerAgain(FrontendBlockdev)
	}
	lose()
	for _, name := range []string{FrontendBlockdev, "nonsense"} {
		if err := order(name); err == nil || lost() != FrontendBlockdev {
			t.Errorf("an order for %q: %v, and what was lost is %q", name, err, lost())
		}
	}
	if _, err = s.Leave(context.Background(), &enginev1.LeaveRequest{}); err == nil ||
		!strings.Contains(err.Error(), "made anew") {
		t.Errorf("the engine leaves: %v", err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	waits.Until(t, "it comes back", func() bool { v, _ := s.p.state.get(); return v.up })
	if lost() != "" {
		t.Errorf("it is up, and %q is lost", lost())
	}
	lose()
	if _, err := s.FrontendShutdown(context.Background(), nil); err != nil || lost() != "" {
		t.Errorf("ordered to go: %v, and %q is lost", err, lost())
	}
	if err := order(FrontendNone); err != nil || lost() != "" {
		t.Errorf("ordered to be none: %v, and %q is lost", err, lost())
	}
}
