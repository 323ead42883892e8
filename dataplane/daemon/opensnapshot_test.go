package daemon

import (
	"context"
	"testing"

	"ankole.storage/dataplane/engine"
)

// TestSnapshotIsOpenedForSomebody: a snapshot stays open when the call that had it opened has
// ended, as that of an export does with its answer; one whose caller left before is closed.
func TestSnapshotIsOpenedForSomebody(t *testing.T) {
	s, c := slowEngine(t)
	b := &s.p.backups
	b.init(s.p)
	t.Cleanup(b.end)
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		v, err := b.openSnapshot(ctx, "quick")
		cancel()
		if err != nil || v.opened.ID != 7 {
			t.Fatal(v, err)
		}
		if err := s.p.ask(t.Context(), func(reply func(error)) any { return engine.Refresh{Reply: reply} }); err != nil {
			t.Fatal(err)
		}
		if len(c.closed) != 0 {
			t.Fatal("the snapshot was closed when the call had ended")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := b.openSnapshot(ctx, slowSnapshot)
		ended <- err
	}()
	<-c.arrived
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the caller has left, and is told of no error")
	}
	close(c.release)
	if id := <-c.closed; id != 7 {
		t.Errorf("snapshot %d was closed", id)
	}
}
