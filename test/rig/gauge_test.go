package rig

import (
	"testing"
	"time"

	"ankole.storage/test/wait"
)

func TestGaugeMeasures(t *testing.T) {
	t.Parallel()
	g := StartGauge(t, t.TempDir())
	wait.Until(t, "a measure", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.rounds > 5 && g.synced > 0
	})
	if got := g.Take(); got <= 0 {
		t.Errorf("the machine costs %v, want something", got)
	}
}

func TestBoundComparesWithTheMachine(t *testing.T) {
	t.Parallel()
	b := Bound{Promised: time.Second, Ratio: 10}
	for _, row := range []struct {
		pause, machine time.Duration
		ok             bool
	}{
		{900 * time.Millisecond, 0, true},
		{1100 * time.Millisecond, 0, false},
		{1100 * time.Millisecond, 100 * time.Millisecond, false},
		{1100 * time.Millisecond, 120 * time.Millisecond, true},
		{time.Minute, time.Second, false},
	} {
		if err := b.Check(row.pause, row.machine); (err == nil) != row.ok {
			t.Errorf("a pause of %v on a machine that costs %v: %v", row.pause, row.machine, err)
		}
	}
}

func TestWriterTellsItsLongestPause(t *testing.T) {
	t.Parallel()
	w := NewWriter(nil, mib, 1)
	at := time.Now()
	w.completed(at)
	w.completed(at.Add(time.Second))
	w.completed(at.Add(4 * time.Second))
	w.completed(at.Add(5 * time.Second))
	if got := w.TakePause(at.Add(6 * time.Second)); got != 3*time.Second {
		t.Errorf("longest pause %v, want 3 s", got)
	}
	if got := w.TakePause(at.Add(10 * time.Second)); got != 5*time.Second {
		t.Errorf("a pause that has not ended counts %v, want 5 s since the last answer", got)
	}
}
