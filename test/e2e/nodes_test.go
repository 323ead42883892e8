package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	restclient "ankole.storage/rest/client"
	"ankole.storage/test/rig"
)

// scenarioF14 takes nodes and disks away from a volume of three replicas under load, on four nodes:
// each time the replica moves to the node that is left, nobody sees an error, and nothing moves
// that need not.
func scenarioF14(t *testing.T, c *cluster) {
	const volume, size = "f14", 32 * mib
	ks := kubernetesOf(t, c)
	d := &drainer{cluster: c, ks: ks, volume: volume}
	c.setting("replica-replenishment-wait-interval", "0")
	c.patchNodes(`{"spec":{"tags":["fast"]}}`)
	if _, err := c.rest.CreateVolume(t.Context(), restclient.VolumeSpec{Name: volume, Size: strconv.Itoa(size),
		NumberOfReplicas: 3, NodeSelector: []string{"fast"}}); err != nil {
		t.Fatal(err)
	}
	defer c.remove(volume)
	device := c.device(c.attach(volume, c.Nodes[0].Name, 3))
	w := rig.StartLoad(t, device, size, 14)
	move := func(what string, away func(node string), back func(node string)) {
		t.Helper()
		from := c.nodesOf(volume)
		leaves := from[len(from)-1] // not the first node, where the engine is
		if leaves == c.Nodes[0].Name {
			t.Fatalf("replicas on %v", from)
		}
		w.AwaitMore(t, 100)
		t.Logf("%s %s after %d writes", leaves, what, w.Ops())
		away(leaves)
		c.awaitPlaces(volume, what, func(nodes []string) bool { return !slices.Contains(nodes, leaves) })
		back(leaves)
		w.AwaitMore(t, 100)
	}
	stay := func(what string, change func(node string), back func(node string)) {
		t.Helper()
		from := c.nodesOf(volume)
		change(from[len(from)-1])
		w.AwaitMore(t, 100)
		if now := c.nodesOf(volume); !slices.Equal(now, from) {
			t.Errorf("%s: replicas were on %v and are on %v", what, from, now)
		}
		back(from[len(from)-1])
	}
	move("is evicted", func(node string) { c.patchNode(node, `{"spec":{"allowScheduling":false,"evictionRequested":true}}`) },
		func(node string) { c.patchNode(node, `{"spec":{"allowScheduling":true,"evictionRequested":false}}`) })
	move("loses its disk to an eviction", func(node string) { c.patchDisks(node, false) },
		func(node string) { c.patchDisks(node, true) })
	c.setting("node-down-pod-deletion-policy", "delete-statefulset-pod")
	move("goes down", func(node string) {
		c.KillNode(t, c.number(node))
		c.hangingPod(ks, node, volume)
	}, func(node string) { c.startWithout(t, node, volume) })
	stay("a node is cordoned", func(node string) { d.cordon(node, true) }, func(node string) { d.cordon(node, false) })
	stay("a node loses its tag", func(node string) { c.patchNode(node, `{"spec":{"tags":[]}}`) },
		func(string) {})
	// Now a replica that has to leave another node has no place but the one without the tag.
	c.withoutPlace(t, volume)
	w.Finish()
	t.Logf("longest pause %v", w.TakePause(time.Now()))
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	c.patchNodes(`{"spec":{"tags":[]}}`)
	c.detach(volume)
	c.identical(volume, 3)
}

// startWithout starts a node that was down, and removes the replica there, which was replaced.
func (c *cluster) startWithout(t *testing.T, node, volume string) {
	t.Helper()
	c.StartNode(t, c.number(node))
	for _, r := range c.replicasOf(volume) {
		if r.Spec.NodeID != node {
			continue
		}
		// It is kept as long as the volume says, for the case that the others are lost.
		if _, err := c.rest.RemoveReplica(t.Context(), volume, r.Name); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutPlace evicts a node while the only other one lacks the tag that the volume wants: nothing
// moves, and the volume says why, until the tag is back.
func (c *cluster) withoutPlace(t *testing.T, volume string) {
	t.Helper()
	nodes := c.nodesOf(volume)
	leaves := nodes[len(nodes)-2] // the last one has lost its tag
	for _, n := range c.Nodes {
		if !slices.Contains(nodes, n.Name) {
			c.patchNode(n.Name, `{"spec":{"tags":[]}}`)
		}
	}
	c.patchNode(leaves, `{"spec":{"allowScheduling":false,"evictionRequested":true}}`)
	c.eventually("the volume says that no node has its tag", func(context.Context) error {
		cond := c.volume(volume).Conditions["Scheduled"]
		if cond.Status != "False" || !strings.Contains(cond.Message, "tag") {
			return fmt.Errorf("%+v", cond)
		}
		return nil
	})
	if now := c.nodesOf(volume); !slices.Contains(now, leaves) {
		t.Errorf("the replica has left %s for none: %v", leaves, now)
	}
	c.patchNodes(`{"spec":{"tags":["fast"]}}`)
	c.awaitPlaces(volume, "the tag is back", func(nodes []string) bool { return !slices.Contains(nodes, leaves) })
	c.patchNode(leaves, `{"spec":{"allowScheduling":true,"evictionRequested":false}}`)
}

// awaitPlaces waits until a volume is healthy with three replicas, at places as wanted.
func (c *cluster) awaitPlaces(volume, what string, as func(nodes []string) bool) {
	c.t.Helper()
	c.eventually(what, func(ctx context.Context) error {
		if nodes := c.nodesOf(volume); len(nodes) != 3 || !as(nodes) {
			return fmt.Errorf("replicas on %v", nodes)
		}
		return c.robustness(volume, "healthy")(ctx)
	})
}

// nodesOf are the nodes of a volume's replicas that have not failed, in order, each as often as it
// has one.
func (c *cluster) nodesOf(volume string) (nodes []string) {
	c.t.Helper()
	for _, r := range c.replicasOf(volume) {
		if r.Spec.FailedAt == "" {
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (c *cluster) replicasOf(volume string) (out []longhorn.Replica) {
	c.t.Helper()
	var list longhorn.ReplicaList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(r longhorn.Replica) bool { return r.Spec.VolumeName != volume })
}

// number of a node, counted from 1.
func (c *cluster) number(name string) int {
	c.t.Helper()
	for i, n := range c.Nodes {
		if n.Name == name {
			return i + 1
		}
	}
	c.t.Fatalf("no node %q", name)
	return 0
}

// patchNodes changes all storage nodes.
func (c *cluster) patchNodes(patch string) {
	c.t.Helper()
	for _, n := range c.Nodes {
		c.patchNode(n.Name, patch)
	}
}

func (c *cluster) patchNode(node, patch string) {
	c.t.Helper()
	c.eventually("change node "+node, func(ctx context.Context) error {
		n := &longhorn.Node{}
		n.Namespace, n.Name = namespace, node
		return c.kube.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

// patchDisks has all disks of a node used, or evicted.
func (c *cluster) patchDisks(node string, used bool) {
	c.t.Helper()
	c.eventually("change disks of "+node, func(ctx context.Context) error {
		var n longhorn.Node
		if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: node}, &n); err != nil {
			return err
		}
		for _, name := range slices.Collect(maps.Keys(n.Spec.Disks)) {
			d := n.Spec.Disks[name]
			d.AllowScheduling, d.EvictionRequested = used, !used
			n.Spec.Disks[name] = d
		}
		return c.kube.Update(ctx, &n)
	})
}
