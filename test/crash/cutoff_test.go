package crash

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// cutOffLease is the lease of the engines that are cut off. They renew it when half of it is left,
// so that reads go on for as long at least; a read that was sent to a replica that is away waits
// for the timeout of that one, which is shorter.
const cutOffLease = 10 * time.Second

// cutOff is a volume whose first replica is on the node of its engine, with a writer.
func cutOff(t *testing.T, replicas int) *run {
	t.Helper()
	r := idle(t, rig.Config{Replicas: replicas, Network: true, EngineFlags: []string{"--replica-timeout", "2500ms",
		"--gather-timeout", "2s", "--no-replica-timeout", "30s", "--lease", cutOffLease.String()}})
	local := r.v.Replicas[0]
	local.Stop()
	local.Host = r.v.EngineHosts[0]
	local.Start()
	r.v.EngineEnv = append(r.v.EngineEnv, "ANKOLE_LOCAL_ADDRESS="+local.Host.Storage)
	r.startEngine()
	if r.v.Engine().Host != local.Host {
		t.Fatalf("the engine is on %s, the replica on %s", r.v.Engine().Host.Name, local.Host.Name)
	}
	r.progress(100)
	if !strings.Contains(r.v.Engine().Log(), "event=shared-memory") {
		t.Error("the engine shares no memory with the replica on its node")
	}
	return r
}

// cut takes the node of the engine from all others, and from the API server with them.
func (r *run) cut() {
	r.t.Helper()
	h := r.v.Engine().Host
	h.Cut(r.t, false, h.Others()...)
	h.Witness.SetOffline(true)
}

// TestD9 cuts the node of the workload off from all others, with a replica on it.
func TestD9(t *testing.T) {
	t.Run("only replica", func(t *testing.T) { t.Parallel(); aloneCutOff(t) })
	t.Run("one of three replicas", func(t *testing.T) { t.Parallel(); oneOfThreeCutOff(t) })
}

// aloneCutOff: a volume whose only replica is the local one is read and written as before, for
// longer than any timeout.
func aloneCutOff(t *testing.T) {
	r := cutOff(t, 1)
	r.cut()
	for began := time.Now(); time.Since(began) < 3*cutOffLease; {
		r.progress(100)
	}
	r.v.Heal()
	r.v.Witness().SetOffline(false)
	r.progress(100)
	r.finish()
}

// oneOfThreeCutOff: no write is acknowledged, since it would be missing where another engine may
// start; reads are answered by the local replica while the lease lasts, and wait afterwards. Nobody
// gets an error. When the node is back the same engine goes on, and what had waited is answered.
func oneOfThreeCutOff(t *testing.T) {
	r := cutOff(t, 3)
	e := r.v.Engine()
	r.j.Pause(t)
	before := r.j.Counts()
	r.cut()
	cut := time.Now()
	reads := readMany(r, readsAtOnce)
	reads.await(t, readsAtOnce)
	reads.close(t)
	r.j.Resume()
	// Workers wait as soon as each has a write to do; reads are answered as long as the lease lasts.
	wait.Until(t, "the lease is over, and every worker waits", func() bool {
		return time.Since(cut) > cutOffLease && r.j.Stuck()
	})
	late := readMany(r, readsAtOnce)
	for began := time.Now(); time.Since(began) < 2*cutOffLease; { // longer than every timeout
		if !r.j.Stuck() || late.answered.Load() > 0 {
			t.Fatalf("requests are answered without lease and majority: %d reads, %+v, before the cut %+v",
				late.answered.Load(), r.j.Counts(), before)
		}
	}
	after := r.j.Counts() // a discard of less than a block changes nothing and needs nobody
	if after.Writes != before.Writes || after.Zeroes != before.Zeroes {
		t.Errorf("P2, cut off from two of three replicas and the witness: %+v, before the cut %+v", after, before)
	}
	r.v.Heal()
	r.v.Witness().SetOffline(false)
	late.await(t, readsAtOnce)
	late.close(t)
	r.progress(100)
	if r.v.Engine() != e || !e.Alive() {
		t.Errorf("engine %s was replaced", e.Name)
	}
	r.finish()
}

// readsAtOnce is less than what a local replica is asked for before the others help.
const readsAtOnce = 30

// reads are under way at once.
type reads struct {
	target   rig.Target
	answered atomic.Int64
	failed   chan error
	work     sync.WaitGroup
}

// readMany sends n reads through a connection of its own.
func readMany(r *run, n int) *reads {
	r.t.Helper()
	c, err := r.v.Engine().Target()
	if err != nil {
		r.t.Fatal(err)
	}
	x := &reads{target: c, failed: make(chan error, n)}
	for i := range n {
		x.work.Go(func() {
			if _, err := c.ReadAt(rig.Aligned(4096), int64(i)*4096); err != nil {
				x.failed <- err
				return
			}
			x.answered.Add(1)
		})
	}
	return x
}

// await waits until so many reads are answered.
func (x *reads) await(t *testing.T, n int64) {
	t.Helper()
	wait.Until(t, "reads are answered", func() bool { return x.answered.Load() >= n || len(x.failed) > 0 })
	select {
	case err := <-x.failed:
		t.Fatalf("a read failed: %v", err)
	default:
	}
}

// close ends the connection of reads that are answered.
func (x *reads) close(t *testing.T) {
	t.Helper()
	x.work.Wait()
	if err := x.target.Close(); err != nil {
		t.Error(err)
	}
}
