package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// scenarioF2 kills a replica process, an instance manager and a node under I/O: no error, degraded,
// rebuilt by itself, identical in the end.
func scenarioF2(t *testing.T, c *cluster) {
	c.setting("replica-replenishment-wait-interval", "5")
	defer c.setting("replica-replenishment-wait-interval", "600")
	c.create("f2", 64*mib, 3)
	endpoint := c.attach("f2", "node-1", 3)
	d := c.device(endpoint)
	w := rig.StartLoad(t, d, 64*mib, 2)
	for _, loss := range []struct {
		name string
		do   func()
		undo func()
	}{
		{"replica process", func() { c.kill(c.directoryOn("f2", "node-3")) }, func() {}},
		{"instance manager", func() { c.kill("daemon\x00--listen\x00" + c.Nodes[1].Address) }, func() {}},
		{"node", func() { c.KillNode(t, 3) }, func() { c.StartNode(t, 3) }},
	} {
		w.AwaitMore(t, 300)
		t.Logf("losing a %s after %d writes", loss.name, w.Ops())
		loss.do()
		c.eventually("volume is degraded after losing a "+loss.name, c.robustness("f2", "degraded"))
		w.AwaitMore(t, 300)
		loss.undo()
		c.awaitUsable("f2", "node-1", 3)
		c.eventually("volume is healthy after losing a "+loss.name, c.robustness("f2", "healthy"))
	}
	w.AwaitMore(t, 300)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("f2")
	c.identical("f2", 3)
	c.remove("f2")
}

// TestUsersNodeLost kills the node on which a volume is attached. The volume stays there until its
// ticket is withdrawn, then goes to another node with all that was synced. The replica of the node
// is rebuilt when that comes back.
func TestUsersNodeLost(t *testing.T) {
	t.Parallel()
	const volume = "moved"
	c := start(t)
	c.create(volume, 64*mib, 3)
	c.ticket(volume, "one", "node-1")
	d := c.device(c.awaitUsable(volume, "node-1", 3))
	w := rig.NewWriter(d, 64*mib, 14)
	for version := range uint64(50) {
		if err := w.Step(version + 1); err != nil {
			t.Fatal(err)
		}
	}
	failed := untilError(w, 50)
	c.KillNode(t, 1)
	t.Logf("I/O on the lost node: %v", <-failed)
	_ = d.Close() // its device is gone
	c.eventually("the volume's robustness is unknown", c.robustness(volume, "unknown"))
	c.withdraw(volume, "one")
	c.ticket(volume, "two", "node-2")
	d = c.device(c.awaitUsable(volume, "node-2", 2))
	w.Device = d
	w.Verify(t, d)
	c.StartNode(t, 1)
	c.eventually("the volume is healthy again", c.robustness(volume, "healthy"))
	w.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.withdraw(volume, "two")
	c.awaitDetached(volume)
	c.identical(volume, 3)
	c.remove(volume)
}

// directoryOn returns the data directory name of the volume's replica on a node.
func (c *cluster) directoryOn(volume, node string) string {
	c.t.Helper()
	var list longhorn.ReplicaList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range list.Items {
		if r.Spec.VolumeName == volume && r.Spec.NodeID == node && r.Spec.FailedAt == "" {
			return r.Spec.DataDirectoryName
		}
	}
	c.t.Fatalf("volume %s has no replica on %s", volume, node)
	return ""
}

// f4Rounds is how often everything is killed; ANKOLE_F4_ROUNDS says otherwise. Each run kills at
// other moments.
const f4Rounds = 6

// scenarioF4 kills everything at once under a journalling writer that flushes, and starts again:
// every flushed write is there, the volume attaches, and in the end the replicas are identical.
func scenarioF4(t *testing.T, c *cluster) {
	rounds := f4Rounds
	if s := os.Getenv("ANKOLE_F4_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatalf("ANKOLE_F4_ROUNDS: %v", err)
		}
	}
	if testing.Short() {
		rounds = 2
	}
	c.create("f4", 64*mib, 3)
	c.attach("f4", "node-1", 3)
	src := seeded.New(t, "P1: after SIGKILL to everything what was flushed is there (F4)")
	src.Fresh()
	rng := src.Rand(4)
	var w *rig.Writer
	version := uint64(0)
	epoch := int64(0)
	for round := range rounds {
		// What the API tells right after a restart is from before it, until a new engine has been
		// granted its epoch.
		epoch = c.awaitEpoch("f4", epoch+1)
		d := c.device(c.awaitUsable("f4", "node-1", 3))
		if w == nil {
			w = rig.NewWriter(d, 64*mib, rng.Uint64())
		}
		w.Device = d
		w.Verify(t, d)
		version++
		if err := w.Step(version); err != nil {
			t.Fatal(err)
		}
		var begun atomic.Bool
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(50+rng.IntN(500))*time.Millisecond, func() {
			defer close(killed)
			begun.Store(true)
			c.Kill9()
		})
		var err error
		for err == nil {
			version++
			err = w.Step(version)
		}
		if !begun.Load() {
			t.Errorf("round %d: I/O fails before anything is killed: %v", round+1, err)
		}
		<-killed      // only then may the cluster be started again
		_ = d.Close() // its device is gone
		c.Restart(t)
		c.connect()
		t.Logf("round %d: %d writes and %d flushes so far", round+1, w.Ops(), w.Flushes())
	}
	if w.Flushes() == 0 {
		t.Errorf("no flush in %d rounds and %d writes: too little was tried", rounds, w.Ops())
	}
	c.awaitEpoch("f4", epoch+1)
	d := c.device(c.awaitUsable("f4", "node-1", 3))
	w.Verify(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("f4")
	c.identical("f4", 3)
	c.remove("f4")
}

// awaitEpoch waits until an engine of the volume runs with at least the given epoch, and returns
// its epoch.
func (c *cluster) awaitEpoch(volume string, atLeast int64) int64 {
	c.t.Helper()
	return c.awaitMembership(volume, fmt.Sprintf("epoch %d", atLeast), func(m *longhorn.Membership) bool {
		return m.Epoch >= atLeast
	}).Epoch
}

// awaitMembership waits until the witness's record of the volume satisfies cond while its engine
// runs.
func (c *cluster) awaitMembership(volume, what string,
	cond func(*longhorn.Membership) bool) (found *longhorn.Membership) {
	c.t.Helper()
	c.eventually(what+" of "+volume, func(ctx context.Context) error {
		var list longhorn.EngineList
		if err := c.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if m := e.Status.Membership; e.Spec.VolumeName == volume && m != nil && cond(m) &&
				e.Status.CurrentState == "running" {
				found = m
				return nil
			}
		}
		return fmt.Errorf("no engine has it yet: %+v", list.Items)
	})
	return found
}
