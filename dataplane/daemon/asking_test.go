package daemon

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/handover"
)

// TestTwoEnginesAsk: while one engine that asks for the volume is judged, or has got it, another
// one is refused with the reason, and does not wait until it gives up.
func TestTwoEnginesAsk(t *testing.T) {
	s, _ := slowEngine(t)
	s.p.cfg.Handover, s.p.cfg.Instance, s.p.asks = t.TempDir(), "e", make(chan asking)
	stop := s.p.listen()
	ask := func() *handover.Conn {
		c, err := handover.Dial(handover.Socket(s.p.cfg.Handover, "e"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		a := &handover.Ask{MinVersion: handover.MinVersion, Version: handover.Version}
		if err := c.Send(handover.Message{Ask: a}, time.Now().Add(30*time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask()
	first := <-s.p.asks
	m, err := ask().Receive(time.Now().Add(30 * time.Second))
	if err != nil || m.Refused == nil || !strings.Contains(m.Refused.Reason, "another engine asks") {
		t.Errorf("the second one is told %+v, %v", m, err)
	}
	close(first.done)
	stop()
}
