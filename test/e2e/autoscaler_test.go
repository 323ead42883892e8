package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
)

// safeToEvict is what the cluster autoscaler reads on a Pod before it takes its node away.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// scenarioA10: with the setting for the cluster autoscaler a node that has no engine and no copy
// that is needed can be scaled down: its instance manager has no disruption budget, and its Pod
// says that it may be evicted, which the Eviction API does. The node of an engine, and then that of
// the only copy, refuse. Nothing is cordoned. Without the setting every node refuses.
func scenarioA10(t *testing.T, c *cluster) {
	const volume, name = "a10", "kubernetes-cluster-autoscaler-enabled"
	d := &drainer{cluster: c, ks: kubernetesOf(t, c), volume: volume}
	set := func(value string) {
		if _, err := c.rest.SetSetting(context.Background(), name, value); err != nil {
			t.Fatal(err)
		}
	}
	c.create(volume, 16*mib, 1)
	defer c.remove(volume)
	holder := c.placeOf(volume)
	other := c.otherThan(holder)
	c.attach(volume, holder, 1)
	refused := func(why, node string) {
		t.Helper()
		d.guarded(node)
		if err := d.evict(node); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s, and the instance manager is evicted: %v", why, err)
		}
	}
	refused("the node is idle, without the setting", other)

	set("true")
	defer set("false")
	c.eventually("the idle node may be scaled down", func(context.Context) error {
		pod, err := d.ks.CoreV1().Pods(namespace).Get(t.Context(), c.instanceManagerOf(other), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if v := pod.Annotations[safeToEvict]; v != "true" {
			return fmt.Errorf("annotation %s is %q", safeToEvict, v)
		}
		return d.evict(other)
	})
	refused("the node has an engine", holder)
	c.detach(volume)
	c.eventually("the node that stays has an instance manager again", func(context.Context) error {
		if c.managerState(other) != longhorn.InstanceManagerStateRunning {
			return errors.New(string(c.managerState(other)))
		}
		return nil
	})
	refused("the node has the only copy of a volume", holder)
	set("false")
	refused("the setting is off again", other)
}
