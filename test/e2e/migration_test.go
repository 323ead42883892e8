package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// scenarioA17: a volume is offered on a second node by the ticket that a CSI driver would file. The
// ticket is withdrawn: nothing changes for the user. It is filed again, the user goes over under
// load, and the volume follows when the first ticket is withdrawn. No error, what was written on
// either node is there, and the replicas are equal.
func scenarioA17(t *testing.T, c *cluster) {
	const volume, half = "moves", int64(32 * mib)
	if _, err := c.rest.CreateVolume(t.Context(), restclient.VolumeSpec{Name: volume,
		Size: strconv.FormatInt(2*half, 10), NumberOfReplicas: 3, AccessMode: "rwx", Migratable: true}); err != nil {
		t.Fatal(err)
	}
	defer c.remove(volume)
	c.ticket(volume, "source", "node-1")
	endpoint := c.awaitUsable(volume, "node-1", 3)
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "only block devices migrate, and this host offers none: the endpoint is ", endpoint)
	}
	from := c.device(endpoint)
	before := rig.StartLoad(t, from, half, 1)
	before.AwaitMore(t, 100)
	c.ticket(volume, "target", "node-2")
	c.offeredOn(volume, "node-2")
	c.withdraw(volume, "target")
	c.awaitOneController(volume, "node-1")
	before.AwaitMore(t, 100)

	c.ticket(volume, "target", "node-2")
	to := c.device(c.offeredOn(volume, "node-2"))
	before.AwaitMore(t, 100)
	before.Finish()
	before.Verify(t, to)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}

	after := rig.StartLoad(t, shifted{to, half}, half, 2)
	after.AwaitMore(t, 100)
	c.withdraw(volume, "source")
	c.awaitUsable(volume, "node-2", 3)
	c.awaitOneController(volume, "node-2")
	after.AwaitMore(t, 100)
	after.Finish()
	t.Logf("longest pause at the target %v", after.TakePause(time.Now()))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	c.withdraw(volume, "target")
	c.awaitDetached(volume)
	c.identical(volume, 3)
}

// awaitOneController waits until no migration of a volume is left.
func (c *cluster) awaitOneController(volume, node string) {
	c.t.Helper()
	c.eventually(volume+" is on "+node+" only", func(context.Context) error {
		v := c.volume(volume)
		if len(v.Controllers) != 1 || v.Controllers[0].HostID != node {
			return fmt.Errorf("%+v", v.Controllers)
		}
		return nil
	})
}

// shifted is the part of a device from an offset on.
type shifted struct {
	rig.Device
	by int64
}

// ReadAt implements rig.Device.
func (s shifted) ReadAt(p []byte, off int64) (int, error) { return s.Device.ReadAt(p, off+s.by) }

// WriteAt implements rig.Device.
func (s shifted) WriteAt(p []byte, off int64) (int, error) { return s.Device.WriteAt(p, off+s.by) }

// ticket wants a volume on a node, as a CSI driver does.
func (c *cluster) ticket(volume, id, node string) {
	c.t.Helper()
	c.eventually("a ticket for "+volume+" on "+node, func(ctx context.Context) error {
		_, err := c.rest.AttachVolume(ctx, volume, resource.AttachInput{HostID: node, AttachmentID: id,
			AttacherType: "csi-attacher"})
		return err
	})
}

// withdraw takes a ticket back.
func (c *cluster) withdraw(volume, id string) {
	c.t.Helper()
	if _, err := c.rest.DetachVolume(context.Background(), volume, resource.DetachInput{AttachmentID: id}); err != nil {
		c.t.Fatal(err)
	}
}

// offeredOn waits until a volume has an endpoint on a node.
func (c *cluster) offeredOn(volume, node string) (endpoint string) {
	c.t.Helper()
	c.eventually(volume+" is offered on "+node, func(context.Context) error {
		all := c.volume(volume).Controllers
		i := slices.IndexFunc(all, func(e resource.Controller) bool { return e.HostID == node && e.Endpoint != "" })
		if i < 0 {
			return fmt.Errorf("%+v", all)
		}
		endpoint = all[i].Endpoint
		return nil
	})
	return endpoint
}
