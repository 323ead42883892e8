package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// drainer cordons nodes and evicts their instance managers through the Eviction API.
type drainer struct {
	*cluster
	ks     kubernetes.Interface
	volume string
}

func (d *drainer) cordon(node string, on bool) {
	d.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on)
	// Also at the end of a test, whose context has ended.
	_, err := d.ks.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *drainer) evict(node string) error {
	return d.ks.PolicyV1().Evictions(namespace).Evict(d.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.instanceManagerOf(node)}})
}

// held waits until the condition gives the reason, and sees an eviction refused.
func (d *drainer) held(node, reason string) {
	d.t.Helper()
	d.eventually("the drain of "+node+" is held: "+reason, func(context.Context) error {
		cond := d.drainAllowed(node)
		if cond.Status != longhorn.ConditionFalse || cond.Reason != reason || !strings.Contains(cond.Message, d.volume) {
			return fmt.Errorf("condition %+v", cond)
		}
		return nil
	})
	if err := d.evict(node); !apierrors.IsTooManyRequests(err) {
		d.t.Errorf("the instance manager of %s is evicted: %v", node, err)
	}
}

// awaitEvent waits for the event of a drain that is held.
func (d *drainer) awaitEvent(says string) {
	d.t.Helper()
	d.eventually("an event says why", func(ctx context.Context) error {
		of := metav1.ListOptions{FieldSelector: "reason=DrainAllowed,type=Warning"}
		events, err := d.ks.CoreV1().Events(namespace).List(ctx, of)
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them", len(events.Items))
	})
}

// scenarioA9: nodes are drained through the Eviction API. A node with an engine, and then the one
// with the last copy of a volume, refuse, and a condition and an event of the instance manager say
// which volume the drain waits for; it goes on when there is a copy on another node. Of two nodes
// that are drained at once and have the only two copies one is held.
func scenarioA9(t *testing.T, c *cluster) {
	ks := kubernetesOf(t, c)
	const volume = "a9"
	d := &drainer{cluster: c, ks: ks, volume: volume}
	c.create(volume, 16*mib, 1)
	defer c.remove(volume)
	defer func() {
		for _, n := range c.Nodes {
			d.cordon(n.Name, false)
		}
	}()
	holder := c.placeOf(volume)
	c.attach(volume, holder, 1)

	d.cordon(holder, true)
	d.held(holder, longhorn.InstanceManagerReasonEngineOnNode)
	d.awaitEvent("volume " + volume + " is attached here")
	c.detach(volume)
	d.held(holder, longhorn.InstanceManagerReasonLastReplica)

	other := c.otherThan(holder)
	c.attach(volume, other, 1)
	if _, err := c.rest.UpdateReplicaCount(t.Context(), volume, 2); err != nil {
		t.Fatal(err)
	}
	c.awaitUsable(volume, other, 2)
	c.eventually("the drain may go on", func(context.Context) error {
		if cond := c.drainAllowed(holder); cond.Status != longhorn.ConditionTrue {
			return fmt.Errorf("condition %+v", cond)
		}
		return d.evict(holder)
	})
	c.eventually("the instance manager has left", func(context.Context) error {
		if cond := c.drainAllowed(holder); c.managerState(holder) == longhorn.InstanceManagerStateRunning {
			return fmt.Errorf("it runs; condition %+v", cond)
		}
		return nil
	})
	d.cordon(holder, false)
	c.awaitUsable(volume, other, 2)
	c.detach(volume)
	d.twoAtOnce()
}

// guarded waits until a node's instance manager has a disruption budget that counts it and allows
// none to go. An instance manager that has just begun has none yet.
func (d *drainer) guarded(node string) {
	c := d.cluster
	c.t.Helper()
	c.eventually("the instance manager of "+node+" has a budget", func(ctx context.Context) error {
		b, err := d.ks.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, c.instanceManagerOf(node), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if b.Status.DisruptionsAllowed > 0 || b.Status.CurrentHealthy < 1 {
			return fmt.Errorf("budget %+v", b.Status)
		}
		return nil
	})
}

// twoAtOnce drains the two nodes that have the copies of the volume, which is detached.
func (d *drainer) twoAtOnce() {
	c := d.cluster
	c.t.Helper()
	var both []string
	for _, r := range c.volume(d.volume).Replicas {
		both = append(both, r.HostID)
	}
	if len(both) != 2 {
		c.t.Fatalf("copies on %q, want two", both)
	}
	for _, node := range both {
		d.guarded(node)
	}
	d.cordon(both[0], true)
	d.cordon(both[1], true)
	gone := map[string]bool{}
	c.eventually("one of two drains ends, and the other one is held", func(context.Context) error {
		heldBack := 0
		for _, node := range both {
			if gone[node] {
				continue
			}
			if err := d.evict(node); err == nil {
				gone[node] = true
			} else if !apierrors.IsTooManyRequests(err) {
				return err
			}
			if cond := c.drainAllowed(node); cond.Status == longhorn.ConditionFalse &&
				cond.Reason == longhorn.InstanceManagerReasonLastReplica {
				heldBack++
			}
		}
		if len(gone) > 1 {
			c.t.Fatalf("both copies of volume %s are drained", d.volume)
		}
		if len(gone) != 1 || heldBack != 1 {
			return errors.New(fmt.Sprint(gone, heldBack))
		}
		return nil
	})
	for _, node := range both {
		d.cordon(node, false)
	}
}

// drainAllowed is the condition of the instance manager of a node.
func (c *cluster) drainAllowed(node string) longhorn.Condition {
	c.t.Helper()
	for _, m := range c.instanceManagers() {
		if m.Spec.NodeID == node {
			return longhorn.FindCondition(m.Status.Conditions, longhorn.InstanceManagerConditionDrainAllowed)
		}
	}
	return longhorn.Condition{}
}

func (c *cluster) managerState(node string) longhorn.InstanceManagerState {
	c.t.Helper()
	for _, m := range c.instanceManagers() {
		if m.Spec.NodeID == node {
			return m.Status.CurrentState
		}
	}
	return ""
}

// placeOf is the node of a volume's only replica.
func (c *cluster) placeOf(volume string) (node string) {
	c.t.Helper()
	c.eventually("the replica of "+volume+" has a place", func(context.Context) error {
		for _, r := range c.volume(volume).Replicas {
			if node = r.HostID; node != "" {
				return nil
			}
		}
		return errors.New("none yet")
	})
	return node
}

func (c *cluster) otherThan(node string) string {
	for _, n := range c.Nodes {
		if n.Name != node {
			return n.Name
		}
	}
	return ""
}
