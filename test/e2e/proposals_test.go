package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/testcluster"
)

// TestProposalsTour is the tour that users are offered, on a cluster with a storage network: what
// it says is seen from outside too, and it leaves nothing behind. Where something that was promised
// does not come, it says what, cleans up and ends with status 1.
func TestProposalsTour(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, PodNetworks: storageNetworks,
		Backups: true})
	c.managersRun()
	ks := kubernetesOf(t, c)
	n, k := &networkTest{c, ks}, &cpuTest{c, ks}
	n.set(storageNetworks[0])
	n.await("set", storageNetworks[0])
	cpu := c.settingValue(cpuSetting)
	pods := k.podsNow()

	began := time.Now()
	status, out, stderr := c.ankole(t, "demo", "proposals")
	t.Logf("%.0f s\n%s", time.Since(began).Seconds(), out)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	for _, want := range []string{
		"type aio, running", "waiting for the last instance to stop before applying: " + cpuSetting,
		"engines and replicas go on in the processes they had", "storage network " + storageNetworks[0] + ": ",
		"its user moves to", "which hurts backup-", "the next backup has written the block again",
		"was left alone: it follows backups", "byte for byte, and came to the default image", "tour-3 |",
		"never more than 1 at once, and no writer saw an error",
		"every byte of the last", "was made again with the new request", "All of it was seen",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour does not say %q", want)
		}
	}
	for node, pod := range k.podsNow() {
		if pods[node] == pod {
			t.Errorf("the instance manager's Pod of %s is the same after a change of its CPU request", node)
		}
	}
	c.asBefore(cpu)

	t.Run("NotSeen", func(t *testing.T) { // waits a minute for what does not come
		c.target("")
		status, out, stderr := c.ankole(t, "demo", "proposals", "--prefix", "again", "--image", "ankole/engine:nowhere",
			"--timeout", "60s")
		if status != 1 || !strings.Contains(stderr, "not seen within") ||
			!strings.Contains(stderr, "engine image ankole/engine:nowhere is on all nodes") ||
			!strings.Contains(out, "left out: backup target default cannot be used") {
			t.Errorf("with an engine image that is not there: status %d\n%s\n%s", status, out, stderr)
		}
		c.asBefore(cpu)
	})
}

// settingValue is the value of a setting.
func (c *cluster) settingValue(name string) string {
	c.t.Helper()
	s, err := c.rest.Setting(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Value
}

// podsNow are the Pods of the nodes' running instance managers.
func (k *cpuTest) podsNow() map[string]string {
	k.t.Helper()
	pods := map[string]string{}
	for _, n := range k.Nodes {
		k.eventually("the instance manager of "+n.Name+" runs", func(ctx context.Context) error {
			_, uid, err := k.request(ctx, n.Name)
			pods[n.Name] = string(uid)
			return err
		})
	}
	return pods
}

// asBefore requires that a tour has left no volume, image and setting behind.
func (c *cluster) asBefore(cpu string) {
	c.t.Helper()
	for name, want := range map[string]string{cpuSetting: cpu, "concurrent-automatic-engine-upgrade-per-node-limit": "0",
		"allow-live-engine-upgrade-on-same-image-commit": "false"} {
		if got := c.settingValue(name); got != want {
			c.t.Errorf("setting %s is %s, and was %s before the tour", name, got, want)
		}
	}
	if left, err := c.rest.BackupVolumes(c.t.Context()); err != nil || len(left) != 0 {
		c.t.Errorf("backups that the tour has left: %+v, %v", left, err)
	}
	c.eventually("no volume, no replica and one engine image are left", func(ctx context.Context) error {
		volumes, err := c.rest.Volumes(ctx)
		if err != nil {
			return err
		}
		images, err := c.rest.EngineImages(ctx)
		if err != nil {
			return err
		}
		var replicas longhorn.ReplicaList
		if err := c.kube.List(ctx, &replicas); err != nil {
			return err
		}
		if len(volumes)+len(replicas.Items) > 0 || len(images) != 1 {
			return fmt.Errorf("%d volumes, %d replicas, %d engine images", len(volumes), len(replicas.Items), len(images))
		}
		return nil
	})
}
