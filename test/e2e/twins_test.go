package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
)

// scenarioF20 restores an older image of a node's disk beside it, on another node. Both disks are
// named, nothing goes to the copy, also while the node of the original is away, and the original's
// content is served when it is back. When the copy is taken off, the original is as before; and
// when that is carried to the other node, its replica follows.
func scenarioF20(t *testing.T, c *cluster) {
	if os.Geteuid() != 0 {
		lack.Skip(t, "disks are mounted by root only")
	}
	const volume, node, other = "f20", "node-4", "node-2"
	duplicate := longhorn.DiskReasonDuplicateUUID
	at := func(node string) string { return filepath.Join(c.Nodes[c.number(node)-1].Root, "data") }
	original := &brokenDisk{cluster: c, node: node, at: at(node), room: 512 * mib}
	original.make("data")
	c.onlyOn(node)
	c.create(volume, 32*mib, 1)
	if c.fillVolume(volume, 1) == ([32]byte{}) {
		t.Fatal("no content")
	}
	image := filepath.Join(t.TempDir(), "image")
	original.unmount()
	original.command("dd", "if="+original.loop, "of="+image, "bs=1M", "conv=sparse", "status=none")
	original.mount(original.loop)
	original.await("mounted again", longhorn.DiskConditionSchedulable, "", "")
	content := c.fillVolume(volume, 2)

	twin := &brokenDisk{cluster: c, node: other, at: at(other)}
	twin.loop = strings.TrimSpace(twin.command("losetup", "--find", "--show", image))
	t.Cleanup(func() { twin.command("losetup", "--detach", twin.loop) })
	twin.mount(twin.loop)
	twin.add("data")
	twin.await("a copy", longhorn.DiskConditionSchedulable, duplicate, "disk data of node "+node)
	original.await("copied", longhorn.DiskConditionSchedulable, duplicate, "disk data of node "+other)
	name := c.replicaOn(volume, node)
	if on := c.node(node).Status.DiskStatus["data"].ScheduledReplica; on[name] == 0 {
		t.Errorf("the original lists %v, not %s", on, name)
	}
	if on := c.node(other).Status.DiskStatus["data"].ScheduledReplica; len(on) != 0 {
		t.Errorf("the copy lists %v", on)
	}

	c.KillNode(t, c.number(node))
	if _, err := c.rest.AttachVolume(t.Context(), volume, resource.AttachInput{HostID: "node-1"}); err != nil {
		t.Logf("attach while the node is lost: %v", err)
	}
	c.eventually("the node is lost", func(ctx context.Context) error {
		var n longhorn.Node
		err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: node}, &n)
		if ready := longhorn.FindCondition(n.Status.Conditions, "Ready"); err == nil && ready.Status != "False" {
			err = fmt.Errorf("%+v", ready)
		}
		return err
	})
	twin.await("a copy still", longhorn.DiskConditionSchedulable, duplicate, "disk data of node "+node)
	if now := c.nodesOf(volume); !slices.Equal(now, []string{node}) {
		t.Errorf("the replica was on %s and is on %v", node, now)
	}
	c.StartNode(t, c.number(node))
	if got := hashDevice(t, c, c.attach(volume, "node-1", 1)); got != content {
		t.Errorf("content %x is served, want %x", got, content)
	}
	c.detach(volume)

	twin.takeOff("data")
	original.await("alone again", longhorn.DiskConditionSchedulable, "", "")
	twin.unmount()
	original.unmount()
	twin.mount(original.loop)
	twin.add("data")
	c.eventually("the replica has followed its disk", func(context.Context) error {
		if now := c.nodesOf(volume); !slices.Equal(now, []string{other}) {
			return fmt.Errorf("it is on %v", now)
		}
		return nil
	})
	if got := hashDevice(t, c, c.attach(volume, "node-1", 1)); got != content {
		t.Errorf("content %x is served of the moved disk, want %x", got, content)
	}
	c.detach(volume)
	c.remove(volume)
	twin.takeOff("data")
	original.takeOff("data")
	twin.unmount()
	c.onlyOn("node-1", "node-2", "node-3", "node-4")
}

// takeOff removes the disk from its node, whose other disks are used again.
func (b *brokenDisk) takeOff(name string) {
	b.t.Helper()
	for _, stays := range []bool{true, false} {
		b.eventually("take the disk off "+b.node, func(ctx context.Context) error {
			var n longhorn.Node
			if err := b.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: b.node}, &n); err != nil {
				return err
			}
			for disk, d := range n.Spec.Disks {
				d.AllowScheduling = disk != name
				n.Spec.Disks[disk] = d
			}
			if !stays {
				delete(n.Spec.Disks, name)
			}
			return b.kube.Update(ctx, &n)
		})
	}
}
