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
	at := func(node string) string { return filepath.Join(c.Nodes[c.number(node)-1].Root, "data") }
	original := &brokenDisk{cluster: c, node: node, at: at(node), room: 512 * mib}
	original.make("data")
	c.onlyOn(node)
	c.create(volume, 32*mib, 1)
	c.fillVolume(volume, 1)
	image := original.image()
	content := c.fillVolume(volume, 2)

	twin := &brokenDisk{cluster: c, node: other, at: at(other)}
	twin.loop = strings.TrimSpace(twin.command("losetup", "--find", "--show", image))
	t.Cleanup(func() { twin.command("losetup", "--detach", twin.loop) })
	twin.mount(twin.loop)
	twin.add("data")
	twin.copyOf(original)
	original.copyOf(twin)
	name := c.replicaOn(volume, node)
	if on := c.node(node).Status.DiskStatus["data"].ScheduledReplica; on[name] == 0 {
		t.Errorf("the original lists %v, not %s", on, name)
	}
	if on := c.node(other).Status.DiskStatus["data"].ScheduledReplica; len(on) != 0 {
		t.Errorf("the copy lists %v", on)
	}
	c.withoutOriginal(volume, original, twin)
	c.serves(volume, content)

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
	c.serves(volume, content)
	c.remove(volume)
	twin.takeOff("data")
	original.takeOff("data")
	twin.unmount()
	c.onlyOn("node-1", "node-2", "node-3", "node-4")
}

// image is the file with a copy of the disk as it is now.
func (b *brokenDisk) image() string {
	b.t.Helper()
	image := filepath.Join(b.t.TempDir(), "image")
	b.unmount()
	b.command("dd", "if="+b.loop, "of="+image, "bs=1M", "conv=sparse", "status=none")
	b.mount(b.loop)
	b.await("mounted again", longhorn.DiskConditionSchedulable, "", "")
	return image
}

// copyOf waits until the disk says that it and another one have one UUID.
func (b *brokenDisk) copyOf(other *brokenDisk) {
	b.t.Helper()
	b.await("with a twin", longhorn.DiskConditionSchedulable, longhorn.DiskReasonDuplicateUUID,
		"disk data of node "+other.node)
}

// withoutOriginal loses the node of the disk of a volume's only replica, has the volume attached
// meanwhile, and brings the node back.
func (c *cluster) withoutOriginal(volume string, original, twin *brokenDisk) {
	c.t.Helper()
	c.KillNode(c.t, c.number(original.node))
	if _, err := c.rest.AttachVolume(c.t.Context(), volume, resource.AttachInput{HostID: "node-1"}); err != nil {
		c.t.Logf("attach while the node is lost: %v", err)
	}
	c.eventually("the node is lost", func(ctx context.Context) error {
		var n longhorn.Node
		err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: original.node}, &n)
		if ready := longhorn.FindCondition(n.Status.Conditions, "Ready"); err == nil && ready.Status != "False" {
			err = fmt.Errorf("%+v", ready)
		}
		return err
	})
	twin.copyOf(original)
	if now := c.nodesOf(volume); !slices.Equal(now, []string{original.node}) {
		c.t.Errorf("the replica was on %s and is on %v", original.node, now)
	}
	c.StartNode(c.t, c.number(original.node))
}

// serves attaches a volume and compares its content.
func (c *cluster) serves(volume string, want [32]byte) {
	c.t.Helper()
	if got := hashDevice(c.t, c, c.attach(volume, "node-1", 1)); got != want {
		c.t.Errorf("content %x is served, want %x", got, want)
	}
	c.detach(volume)
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
