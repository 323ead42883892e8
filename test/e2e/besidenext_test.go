package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/testcluster"
)

// TestReplaceBesideTheNext deletes the Pods of instance managers while those of the next image run
// beside them on every node, as after an upgrade of the system, and the engine has been upgraded
// live meanwhile. The writer sees no error, and the device stays the same.
func TestReplaceBesideTheNext(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace})
	c.managersRun()
	ks := kubernetesOf(t, c)
	const volume = "beside"
	endpoint, d, w := c.loadThatOutlivesEngines(volume)
	c.offerImage(ks, nextImage)
	c.eventually("an instance manager of the next image runs on each node", func(context.Context) error {
		for _, m := range c.instanceManagers() {
			if m.Status.CurrentState != longhorn.InstanceManagerStateRunning {
				return fmt.Errorf("%s is %s", m.Name, m.Status.CurrentState)
			}
		}
		return nil
	})
	w.AwaitMore(t, 200)
	c.awaitSecondHolder("node-1")
	for _, n := range c.Nodes {
		was := c.awaitMembership(volume, "all members", func(m *longhorn.Membership) bool { return len(m.Members) == 3 })
		name := c.instanceManagerOf(n.Name)
		if err := ks.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitMembership(volume, "all members after "+n.Name, func(m *longhorn.Membership) bool {
			return len(m.Members) == 3 && (m.Epoch > was.Epoch || m.Generation > was.Generation)
		})
		w.Check()
		if again := c.awaitUsable(volume, "node-1", 3); again != endpoint {
			t.Errorf("%s: the endpoint was %s and is %s", n.Name, endpoint, again)
		}
		w.AwaitMore(t, 200)
	}
	c.awaitImage(nextImage)
	w.Finish()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach(volume)
	c.identical(volume, 3)
}
