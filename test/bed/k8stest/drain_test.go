package k8stest

import (
	"context"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

// drainsAtOnce: the two nodes that have the only copies of a volume are drained at the same moment,
// under I/O. One of them lets its copy go; the other one waits until there is a new copy elsewhere.
// Both drains end, and nobody who uses the volume notices.
func drainsAtOnce(b *bed) {
	defer b.set("replica-replenishment-wait-interval", "5")()
	ctx := context.Background()
	b.takesReplicas("node-3", false)
	b.create("drains", 64*mib, 2)
	b.attach("drains", "node-3", 2)
	b.takesReplicas("node-3", true)
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
	b.spread()
	b.usable("drains", "node-3", 2)
	b.took("from two drains to two copies", began)
	w.AwaitMore(b.t, 200)
	w.Finish()
	if err := d.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.dropFailed("drains")
	b.detach("drains")
	b.identical("drains", 2)
	b.remove("drains")
}

// spread has the controllers placed anew, as the guide says after a drain: they may all be on the
// node that was not drained.
func (b *bed) spread() {
	b.t.Helper()
	b.kubectlOK("-n", namespace, "rollout", "restart", "deployment/longhorn-controller")
	b.kubectlOK("-n", namespace, "rollout", "status", "deployment/longhorn-controller", "--timeout=120s")
	b.reach()
}

// takesReplicas sets whether new replicas may be placed on a node.
func (b *bed) takesReplicas(node string, allowed bool) {
	b.t.Helper()
	b.await("scheduling on "+node+" is set", func(ctx context.Context) error {
		_, err := b.rest.UpdateNode(ctx, node, resource.NodeInput{AllowScheduling: allowed})
		return err
	})
}

// dropFailed removes the copies of a volume that have failed. They stay, for a rebuild that sends
// what they lack, until they are stale.
func (b *bed) dropFailed(volume string) {
	b.t.Helper()
	b.await("the copies of "+volume+" that have failed are removed", func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, volume)
		if err != nil {
			return err
		}
		for _, r := range v.Replicas {
			if r.Mode != "RW" {
				_, err := b.rest.RemoveReplica(ctx, volume, r.Name)
				return fmt.Errorf("replica %s in mode %q (%w)", r.Name, r.Mode, err)
			}
		}
		return nil
	})
}

// safeToEvict is what the cluster autoscaler reads on a Pod before it takes its node away.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// scenarioA10: what the cluster autoscaler does with a node that it would take away, the Eviction
// API that is. With its setting the instance manager of a node without an engine and without a
// copy that is needed leaves; that of an engine's node, and then that of the only copy's, is
// refused. Without the setting every one is.
func scenarioA10(b *bed) {
	b.create("scaled", 64*mib, 1)
	b.attach("scaled", "node-1", 1)
	b.detach("scaled")
	v, err := b.rest.Volume(context.Background(), "scaled")
	if err != nil || len(v.Replicas) != 1 {
		b.t.Fatalf("%+v, %v", v, err)
	}
	holder := v.Replicas[0].HostID
	b.attach("scaled", holder, 1)
	other := "node-1"
	if holder == other {
		other = "node-2"
	}
	b.refused("without the setting", other)
	restore := b.set("kubernetes-cluster-autoscaler-enabled", "true")
	before := b.managerOf(other).Status.IP
	b.await(other+" may be scaled down", func(ctx context.Context) error {
		pod, err := b.ks.CoreV1().Pods(namespace).Get(ctx, b.managerOf(other).Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if word := pod.Annotations[safeToEvict]; word != "true" {
			return fmt.Errorf("annotation %s is %q", safeToEvict, word)
		}
		return b.evict(other)
	})
	b.refused("the node has an engine", holder)
	b.detach("scaled")
	b.await("the node that stays has an instance manager again", func(context.Context) error {
		if m := b.managerOf(other); m.Status.IP == before || m.Status.IP == "" {
			return fmt.Errorf("instance manager %s has address %q", m.Name, m.Status.IP)
		}
		return nil
	})
	b.managersRun()
	b.refused("the node has the only copy of a volume", holder)
	restore()
	b.refused("the setting is off again", other)
	b.remove("scaled")
}

// evict asks for the end of a node's instance manager, as a drain does.
func (b *bed) evict(node string) error {
	return b.ks.PolicyV1().Evictions(namespace).Evict(context.Background(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.managerOf(node).Name}})
}

// refused sees that an instance manager is not evicted, once its disruption budget counts it: one
// that has just begun has none yet.
func (b *bed) refused(why, node string) {
	b.t.Helper()
	b.await("the instance manager of "+node+" has a budget", func(ctx context.Context) error {
		p, err := b.ks.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, b.managerOf(node).Name, metav1.GetOptions{})
		if err == nil && (p.Status.DisruptionsAllowed > 0 || p.Status.CurrentHealthy < 1) {
			err = fmt.Errorf("budget %+v", p.Status)
		}
		return err
	})
	if err := b.evict(node); !apierrors.IsTooManyRequests(err) {
		b.t.Errorf("%s, and the instance manager of %s is evicted: %v", why, node, err)
	}
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
