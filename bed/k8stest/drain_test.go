package k8stest

import (
	"context"
	"fmt"
	"time"

	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// drainsAtOnce: the two nodes that have the only copies of a volume are drained at the same moment,
// under I/O. One of them lets its copy go; the other one waits until there is a new copy elsewhere.
// Both drains end, and nobody who uses the volume notices.
func drainsAtOnce(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	ctx := context.Background()
	schedule := func(allowed bool) {
		b.t.Helper()
		b.await("scheduling on node-3 is set", func(ctx context.Context) error {
			_, err := b.rest.UpdateNode(ctx, "node-3", resource.NodeInput{AllowScheduling: allowed})
			return err
		})
	}
	schedule(false)
	b.create("drains", 64*mib, 2)
	b.attach("drains", "node-3", 2)
	schedule(true)
	v, err := b.rest.Volume(ctx, "drains")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range v.Replicas {
		if r.HostID == "node-3" {
			b.t.Fatalf("replica %s is on the node that refuses replicas", r.Name)
		}
	}
	d := b.device("drains", "node-3")
	w := rig.StartLoad(b.t, d, 64*mib, 3)
	w.AwaitMore(b.t, 200)
	b.reach("node-1")
	began := time.Now()
	b.drain("node-1", "node-2")
	w.AwaitMore(b.t, 200)
	for _, node := range []string{"node-1", "node-2"} {
		b.kubectlOK("uncordon", node)
	}
	b.managersRun()
	b.usable("drains", "node-3", 2)
	b.took("from two drains to two copies", began)
	w.AwaitMore(b.t, 200)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	// A copy that has failed stays, for a rebuild that sends what it lacks, until it is stale.
	b.await("the copy that was let go is removed", func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, "drains")
		if err != nil {
			return err
		}
		for _, r := range v.Replicas {
			if r.Mode != "RW" {
				_, err := b.rest.RemoveReplica(ctx, "drains", r.Name)
				return fmt.Errorf("replica %s in mode %q (%w)", r.Name, r.Mode, err)
			}
		}
		return nil
	})
	b.detach("drains")
	b.identical("drains", 2)
	b.remove("drains")
}

// drain drains nodes at the same moment, and waits until all are drained.
func (b *bed) drain(nodes ...string) {
	b.t.Helper()
	type end struct {
		node, out string
		err       error
		took      time.Duration
	}
	ends := make(chan end, len(nodes))
	began := time.Now()
	for _, node := range nodes {
		go func() {
			out, err := b.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s")
			ends <- end{node, out, err, time.Since(began)}
		}()
	}
	for range nodes {
		e := <-ends
		if e.err != nil {
			b.t.Errorf("drain of %s: %v\n%s", e.node, e.err, e.out)
		}
		b.t.Logf("%s was drained after %.1f s", e.node, e.took.Seconds())
	}
}
