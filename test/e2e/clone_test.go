package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
	"ankole.storage/test/rig"
)

const cloneSize = 32 * mib // what hashDevice reads

// scenarioF7: volumes are made from a snapshot and from a volume, which is in use, and at rest;
// processes of both are killed meanwhile. The content is equal to the byte, and changes of either
// leave the other as it is.
func scenarioF7(t *testing.T, c *cluster) {
	c.create("f7", cloneSize, 2)
	defer c.remove("f7")
	endpoint := c.attach("f7", "node-1", 2)
	d := c.device(endpoint)
	fill(t, d, 1)
	client, target := c.engineClient("f7")
	if _, err := client.SnapshotCreate(t.Context(), target,
		engineclient.SnapshotRequest{Name: "s", UserCreated: true}); err != nil {
		t.Fatal(err)
	}
	old := hashDevice(t, c, endpoint)
	c.eventually("the engine shows snapshot s", func(ctx context.Context) error {
		if e := c.engineOf("f7"); e.Status.Snapshots["s"].Name == "" {
			return fmt.Errorf("%v", e.Status.Snapshots)
		}
		return nil
	})
	fill(t, d, 2)
	now := hashDevice(t, c, endpoint)
	if old == now {
		t.Fatal("the source has not changed after the snapshot")
	}

	t.Log("a clone of the snapshot; the source's engine and the target's are killed")
	c.cloneOf("f7-a", "snap://f7/s", 2)
	defer c.remove("f7-a")
	c.eventually("the copy is begun", func(context.Context) error {
		if s := c.volume("f7-a").CloneStatus; s.State == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.killIfRuns("--engine-instance-name\x00f7-a-e-0")
	c.killIfRuns("--engine-instance-name\x00f7-e-0")
	c.cloned("f7-a", old)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	t.Log("a clone of the volume as it is, at rest; what is written to either is its own")
	c.detach("f7")
	c.cloneOf("f7-b", "vol://f7", 3)
	defer c.remove("f7-b")
	c.cloned("f7-b", now)
	endpoint = c.attach("f7-b", "node-3", 3)
	d = c.device(endpoint)
	fill(t, d, 3)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	endpoint = c.attach("f7", "node-2", 2)
	holds(t, c, endpoint, now, "writing to the clone has changed its source")
	c.eventually("the snapshot that was taken is removed", func(context.Context) error {
		for name, s := range c.engineOf("f7").Status.Snapshots {
			if s.Labels["longhorn.io/for-cloning-volume"] != "" && !s.Removed {
				return fmt.Errorf("snapshot %s is left", name)
			}
		}
		return nil
	})
	c.detach("f7")
	c.detach("f7-b")
	c.identical("f7-b", 3)
	c.refuseClones(t)
}

// refuseClones: what no clone can be made of.
func (c *cluster) refuseClones(t *testing.T) {
	for what, spec := range map[string]restclient.VolumeSpec{
		"does not exist": {Name: "f7-no", Size: strconv.Itoa(cloneSize), DataSource: "vol://nothing"},
		"has 33554432":   {Name: "f7-no", Size: strconv.Itoa(2 * cloneSize), DataSource: "vol://f7"},
		"no snapshot":    {Name: "f7-no", Size: strconv.Itoa(cloneSize), DataSource: "snap://f7/none"},
		"should be":      {Name: "f7-no", Size: strconv.Itoa(cloneSize), DataSource: "f7"},
	} {
		if _, err := c.rest.CreateVolume(context.Background(), spec); err == nil ||
			!strings.Contains(err.Error(), "failed to verify data source") || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v, want %q", spec, err, what)
		}
	}
}

// cloneOf orders a volume that is filled from a data source.
func (c *cluster) cloneOf(name, source string, replicas int) {
	c.t.Helper()
	_, err := c.rest.CreateVolume(context.Background(), restclient.VolumeSpec{Name: name,
		Size: strconv.Itoa(cloneSize), NumberOfReplicas: replicas, DataSource: source})
	if err != nil {
		c.t.Fatal(err)
	}
}

// cloned waits until a clone is complete and rests, and compares it: read by a user, and the
// replicas with each other.
func (c *cluster) cloned(name string, want [sha256.Size]byte) {
	c.t.Helper()
	var v *resource.Volume
	c.eventually(name+" is cloned and rests", func(context.Context) error {
		if v = c.volume(name); v.CloneStatus.State != "completed" || v.State != "detached" {
			return fmt.Errorf("%s %s, clone %+v", v.State, v.Robustness, v.CloneStatus)
		}
		return nil
	})
	endpoint := c.attach(name, "node-3", v.NumberOfReplicas)
	holds(c.t, c, endpoint, want, name+" has another content than its source had")
	c.detach(name)
	c.identical(name, v.NumberOfReplicas)
}

// fill writes drawn content to most of a device.
func fill(t *testing.T, d rig.Device, seed byte) {
	t.Helper()
	r := rand.NewChaCha8([32]byte{seed})
	p := make([]byte, mib)
	for off := int64(0); off < cloneSize; off += 2 * mib {
		_, _ = r.Read(p) // never fails
		if _, err := d.WriteAt(p, off+int64(seed)*4096%mib); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
}

// killIfRuns kills the process whose command line has the word, if there is one.
func (c *cluster) killIfRuns(word string) {
	c.t.Helper()
	if len(holding(c.Info.Dir, word)) == 1 {
		c.kill(word)
	}
}

// engineOf returns a volume's Engine object.
func (c *cluster) engineOf(volume string) *longhorn.Engine {
	c.t.Helper()
	var list longhorn.EngineList
	if err := c.kube.List(context.Background(), &list); err != nil {
		c.t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(e longhorn.Engine) bool { return e.Spec.VolumeName == volume })
	if i < 0 {
		c.t.Fatalf("volume %s has no engine", volume)
	}
	return &list.Items[i]
}
