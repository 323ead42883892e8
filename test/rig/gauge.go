package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Gauge measures what the machine itself costs while a test runs: how late a goroutine wakes up
// that has nothing else to do, and how long one block takes to be written and synced. A pause of
// I/O is compared with that, since on a busy machine everything pauses.
type Gauge struct {
	stop chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	late   time.Duration
	synced time.Duration
	rounds int
}

// gaugeTick is how long the idle goroutine sleeps at a time.
const gaugeTick = 2 * time.Millisecond

// StartGauge measures until the test ends. dir is on the disk whose syncs count.
func StartGauge(t testing.TB, dir string) *Gauge {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "gauge"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gauge{stop: make(chan struct{})}
	g.work.Go(g.idle)
	g.work.Go(func() { g.sync(f) })
	t.Cleanup(func() {
		close(g.stop)
		g.work.Wait()
		_ = f.Close() // nothing in it matters
	})
	return g
}

func (g *Gauge) idle() {
	tick := time.NewTimer(gaugeTick)
	defer tick.Stop()
	for {
		began := time.Now()
		tick.Reset(gaugeTick)
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
		g.mu.Lock()
		g.late = max(g.late, time.Since(began)-gaugeTick)
		g.rounds++
		g.mu.Unlock()
	}
}

func (g *Gauge) sync(f *os.File) {
	p := make([]byte, blockSize)
	for {
		select {
		case <-g.stop:
			return
		default:
		}
		began := time.Now()
		if _, err := f.WriteAt(p, 0); err != nil {
			return // the disk of the machine is full: the other measure is left
		}
		if err := f.Sync(); err != nil {
			return
		}
		g.mu.Lock()
		g.synced = max(g.synced, time.Since(began))
		g.mu.Unlock()
	}
}

// Take returns the longest that anything took since the last Take: a goroutine to wake up, or a
// sync.
func (g *Gauge) Take() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := max(g.late, g.synced)
	g.late, g.synced, g.rounds = 0, 0, 0
	return most
}

// Bound is how long a pause may be: promised on a machine that costs nothing, and ratio times what
// this one was seen to cost at the same time on one that is slow.
type Bound struct {
	Promised time.Duration
	Ratio    int
}

// Check returns an error if a pause is longer than promised, and out of proportion to what the
// machine cost meanwhile.
func (b Bound) Check(pause, machine time.Duration) error {
	if allowed := max(b.Promised, time.Duration(b.Ratio)*machine); pause > allowed {
		return fmt.Errorf("I/O paused for %v, allowed are %v: %v as promised, or %d times the %v that waking up or a "+
			"sync cost at the same time", pause, allowed, b.Promised, b.Ratio, machine)
	}
	return nil
}
