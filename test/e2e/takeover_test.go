package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	restclient "ankole.storage/rest/client"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

// TestTakesOverAnEarlierCluster starts this build on the folders that earlier builds left: nothing
// that a user has made is lost or changed, what was attached is attached again, every volume and
// snapshot has its content, in the replicas that were there, and the volumes can be used further.
func TestTakesOverAnEarlierCluster(t *testing.T) {
	t.Parallel()
	all := readFixtures(t)
	for _, archive := range slices.Sorted(maps.Keys(all)) {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		t.Run(name, func(t *testing.T) { takeOver(t, archive, all[archive]) })
	}
}

// takeover is a cluster that this build has taken over.
type takeover struct {
	*cluster
	had fixture
}

func takeOver(t *testing.T, archive string, had fixture) {
	dir := unpack(t, archive)
	folders := replicaFolders(t, dir)
	leaveEngines(t, dir)
	c := &takeover{had: had, cluster: startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace,
		Dir: dir, Permit: []string{testcluster.Restarts}})} // containers that ran are started again
	c.kept(t)
	for name, v := range had.Volumes {
		if v.Node != "" { // nobody asks for it again
			c.holds(name, c.awaitDevice(name, v.Node, v.Replicas), v.Sum, "in use")
		}
	}
	c.managersRun()
	for _, name := range slices.Sorted(maps.Keys(had.Volumes)) {
		v := had.Volumes[name]
		c.holds(name, c.attach(name, v.UseOn, v.Replicas), v.Sum, "attached")
		c.snapshots(name)
	}
	for name := range had.Volumes {
		c.goesOn(name)
	}
	c.kept(t)
	if now := replicaFolders(t, dir); !slices.Equal(now, folders) {
		t.Errorf("directories of replicas are %v, were %v", now, folders)
	}
	for _, stray := range had.Strays {
		if _, err := os.Stat(filepath.Join(dir, stray)); err != nil {
			t.Errorf("data that no Replica names: %v", err)
		}
	}
}

// awaitDevice waits until a volume is usable and its block device is there. Until a manager has
// looked at the volume, its status is what the earlier cluster said, so the device may be missing.
func (c *takeover) awaitDevice(name, node string, rw int) (endpoint string) {
	c.t.Helper()
	c.eventually(name+" has a block device on "+node, func(context.Context) error {
		endpoint = c.awaitUsable(name, node, rw)
		_, err := os.Stat(endpoint)
		return err
	})
	return endpoint
}

// leaveEngines puts something that is no engine where the earlier build had its engines: this
// build's images have the same names, and its own programs must run.
func leaveEngines(t *testing.T, dir string) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(dir, binaries, "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no folders of engines: %v", err)
	}
	for _, d := range folders {
		if err := os.WriteFile(filepath.Join(d, "longhorn"), []byte("#!/bin/sh\nexit 99\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// kept checks that every object that was there is, with what its user gave it.
func (c *takeover) kept(t *testing.T) {
	t.Helper()
	now, err := c.objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for kind, had := range c.had.Objects {
		for name, o := range had {
			is, ok := now[kind][name]
			if !ok {
				t.Errorf("%s %s is gone", kind, name)
				continue
			}
			if kind == "Volume" {
				delete(o.Spec, "nodeID") // where it is attached
			}
			for field, value := range o.Spec {
				if diff := lacks(is.Spec[field], value); diff != "" {
					t.Errorf("%s %s: %s%s", kind, name, field, diff)
				}
			}
			for label, value := range o.Labels {
				if is.Labels[label] != value {
					t.Errorf("%s %s: label %s is %q, was %q", kind, name, label, is.Labels[label], value)
				}
			}
		}
	}
	for name := range now["Replica"] {
		if _, ok := c.had.Objects["Replica"][name]; !ok {
			t.Errorf("replica %s is new", name)
		}
	}
	for name, value := range c.had.Settings {
		if is := c.settingValue(name); is != value {
			t.Errorf("setting %s is %q, was %q", name, is, value)
		}
	}
}

// lacks says what of a value that was is not so now; "" if nothing. There may be more now.
func lacks(now, had any) string {
	switch had := had.(type) {
	case map[string]any:
		is, _ := now.(map[string]any)
		for key, value := range had {
			if diff := lacks(is[key], value); diff != "" {
				return "." + key + diff
			}
		}
		return ""
	case []any:
		is, _ := now.([]any)
		if len(is) != len(had) {
			return fmt.Sprintf(" is %v, was %v", now, had)
		}
		for i := range had {
			if diff := lacks(is[i], had[i]); diff != "" {
				return fmt.Sprintf("[%d]%s", i, diff)
			}
		}
		return ""
	}
	if n, ok := now.(int64); ok { // the description's numbers are of JSON
		now = float64(n)
	}
	if !reflect.DeepEqual(now, had) {
		return fmt.Sprintf(" is %v, was %v", now, had)
	}
	return ""
}

// holds checks the content of a volume.
func (c *takeover) holds(name, endpoint, sum, what string) {
	c.t.Helper()
	if is := c.sum(endpoint); is != sum {
		wait.Final(c.t, "the content of volume "+name)
		c.t.Errorf("volume %s, %s, has content %s, had %s", name, what, is, sum)
	}
}

// snapshots reverts an attached volume to each of its snapshots. It is attached again afterwards.
func (c *takeover) snapshots(name string) {
	c.t.Helper()
	v := c.had.Volumes[name]
	for _, gone := range v.Removed {
		if s, err := c.rest.SnapshotObject(c.t.Context(), name, gone); !restclient.IsNotFound(err) {
			c.t.Errorf("snapshot %s, which was removed: %+v, %v", gone, s, err)
		}
	}
	for _, snapshot := range slices.Sorted(maps.Keys(v.Snapshots)) {
		c.detach(name)
		c.attachForMaintenance(name)
		if err := c.rest.RevertSnapshot(c.t.Context(), name, snapshot); err != nil {
			c.t.Fatalf("revert %s to %s: %v", name, snapshot, err)
		}
		c.detach(name)
		c.holds(name, c.attach(name, v.UseOn, v.Replicas), v.Snapshots[snapshot], "reverted to "+snapshot)
	}
}

// goesOn writes to an attached volume and takes a snapshot, and leaves it detached and healthy.
func (c *takeover) goesOn(name string) {
	c.t.Helper()
	v := c.had.Volumes[name]
	c.write(c.volume(name).Controllers[0].Endpoint, name+", taken over", 4, 50)
	c.orderSnapshot(name, "taken-over-"+name)
	c.eventually(name+" is healthy", c.robustness(name, "healthy"))
	c.detach(name)
	c.identical(name, v.Replicas)
}
