package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// scenarioSnapshots: snapshots through the API, with their data. Each is taken of other content;
// one is deleted while the engine is killed, and its space comes back; one is taken of a detached
// volume; a revert that the engine's end interrupts is done again. The content is compared as a
// whole each time.
func scenarioSnapshots(t *testing.T, c *cluster) {
	const name, size = "snaps", 64 * mib
	c.create(name, size, 3)
	defer c.remove(name)
	endpoint := c.attach(name, "node-1", 3)
	fillWith(t, c, endpoint, 1)
	c.orderSnapshot(name, "s1")
	second := fillWith(t, c, endpoint, 2)
	s, err := c.rest.CreateSnapshot(context.Background(), name,
		resource.SnapshotInput{Name: "s2", Labels: map[string]string{"of": "the second"}})
	if err != nil || s.Parent != "s1" || !s.UserCreated || s.Labels["of"] != "the second" || s.Created == "" {
		t.Fatalf("snapshot %+v, %v", s, err)
	}
	third := fillWith(t, c, endpoint, 3)
	c.awaitSnapshot(name, "s2") // its object is made for it
	refusedSnapshots(t, c, name)

	before := c.allocated(name)
	if err := c.rest.DeleteSnapshotObject(context.Background(), name, "s1"); err != nil {
		t.Fatal(err)
	}
	c.killEngine(name)
	c.awaitNoSnapshot(name, "s1")
	c.awaitUsable(name, "node-1", 3)
	if after := c.allocated(name); after > before-3*size/4 {
		t.Errorf("the replicas take %d bytes after a snapshot of %d bytes was deleted from each, before %d", after,
			size/2, before)
	}
	holds(t, c, endpoint, third, "the content has changed with the deletion of a snapshot")
	c.detach(name)

	c.orderSnapshot(name, "s3")
	c.awaitDetached(name)
	c.attachForMaintenance(name)
	interrupted := make(chan error, 1)
	go func() { interrupted <- c.rest.RevertSnapshot(context.Background(), name, "s2") }()
	c.killEngine(name)
	t.Logf("revert beside the end of the engine: %v", <-interrupted)
	c.eventually("revert to s2", func(ctx context.Context) error {
		err := c.rest.RevertSnapshot(ctx, name, "s2")
		return err
	})
	c.detach(name)
	endpoint = c.attach(name, "node-2", 3)
	holds(t, c, endpoint, second, "the content is not that of the snapshot reverted to")
	c.purgeByCommand(t, name)
	holds(t, c, endpoint, second, "the content has changed with a purge")
	c.detach(name)
	c.identical(name, 3)
}

// refusedSnapshots: what cannot be is refused.
func refusedSnapshots(t *testing.T, c *cluster, name string) {
	ctx := context.Background()
	for want, do := range map[string]func() error{
		"with frontend enabled": func() error { return c.rest.RevertSnapshot(ctx, name, "s1") },
		"cannot find snapshot 'none'": func() error {
			_, err := c.rest.DeleteSnapshot(ctx, name, "none")
			return err
		},
		"exists already": func() error {
			_, err := c.rest.CreateSnapshot(ctx, name, resource.SnapshotInput{Name: "s1"})
			return err
		},
		"contains =": func() error {
			_, err := c.rest.OrderSnapshot(ctx, name, resource.SnapshotCRInput{Labels: map[string]string{"a=b": ""}})
			return err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// purgeByCommand deletes s3 and purges with the command line; s2 and the head are left.
func (c *cluster) purgeByCommand(t *testing.T, name string) {
	t.Helper()
	if _, err := c.rest.DeleteSnapshot(context.Background(), name, "s3"); err != nil {
		t.Fatal(err)
	}
	if status, out, err := c.ankole(t, "snapshot", "purge", name); status != 0 || !strings.Contains(out, "purged") {
		t.Fatalf("snapshot purge: %d, %s, %s", status, out, err)
	}
	all, err := c.rest.Snapshots(context.Background(), name)
	if err != nil || len(all) != 2 || all[0].Name != "s2" || all[1].Name != "volume-head" || all[1].Parent != "s2" {
		t.Errorf("%+v, %v", all, err)
	}
	c.eventually("the objects are those of the snapshots", func(context.Context) error {
		status, out, text := c.ankole(t, "snapshot", "list", name, "-o", "name")
		if status != 0 || out != "snapshot/s2\nsnapshot/s3\n" { // s3 was ordered: its object says that it is lost
			return fmt.Errorf("%d, %s, %s", status, out, text)
		}
		return nil
	})
	if status, out, err := c.ankole(t, "snapshot", "delete", name, "s3", "--yes"); status != 0 {
		t.Errorf("snapshot delete: %d, %s, %s", status, out, err)
	}
}

// orderSnapshot has a snapshot taken, of a detached volume too.
func (c *cluster) orderSnapshot(volume, name string) {
	c.t.Helper()
	c.orderLabelled(volume, name, nil)
}

func (c *cluster) orderLabelled(volume, name string, labels map[string]string) {
	c.t.Helper()
	s, err := c.rest.OrderSnapshot(context.Background(), volume, resource.SnapshotCRInput{Name: name, Labels: labels})
	if err != nil || !s.CreateSnapshot || s.ReadyToUse {
		c.t.Fatalf("%+v, %v", s, err)
	}
	c.awaitSnapshot(volume, name)
}

func (c *cluster) awaitSnapshot(volume, name string) {
	c.t.Helper()
	c.eventually("snapshot "+name+" is ready", func(ctx context.Context) error {
		s, err := c.rest.SnapshotObject(ctx, volume, name)
		if err == nil && (!s.ReadyToUse || !s.UserCreated || s.CreationTime == "" || s.RestoreSize == 0) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

func (c *cluster) awaitNoSnapshot(volume, name string) {
	c.t.Helper()
	c.eventually("snapshot "+name+" is gone", func(ctx context.Context) error {
		s, err := c.rest.SnapshotObject(ctx, volume, name)
		switch {
		case restclient.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

func (c *cluster) awaitDetached(name string) {
	c.t.Helper()
	c.eventually(name+" is detached", func(context.Context) error {
		if v := c.volume(name); v.State != "detached" {
			return fmt.Errorf("state %s", v.State)
		}
		return nil
	})
}

// attachForMaintenance attaches a volume without its device.
func (c *cluster) attachForMaintenance(name string) {
	c.t.Helper()
	_, err := c.rest.AttachVolume(context.Background(), name,
		resource.AttachInput{HostID: "node-1", DisableFrontend: true})
	if err != nil {
		c.t.Fatal(err)
	}
	c.eventually(name+" is attached for maintenance", func(context.Context) error {
		v := c.volume(name)
		if v.State != "attached" || v.Robustness != "healthy" || v.Controllers[0].Endpoint != "" {
			return fmt.Errorf("%s, %s, %+v", v.State, v.Robustness, v.Controllers)
		}
		return nil
	})
}

// allocated is how many bytes the directories of a volume's replicas take on their disks.
func (c *cluster) allocated(volume string) (bytes int64) {
	c.t.Helper()
	for _, dir := range c.replicaDirs(volume) {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file that a purge has removed meanwhile
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return bytes
}
