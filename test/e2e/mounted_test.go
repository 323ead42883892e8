package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
)

// mountedVolume: a snapshot of a volume with a mounted file system has what was written before it,
// although nobody has synced it, and its file system is clean where the volume asks for a freeze. A
// trim gives the space of deleted files back.
func mountedVolume(t *testing.T, c *cluster) {
	c.create("mounted", cloneSize, 2)
	endpoint := c.attach("mounted", "node-2", 2)
	defer c.remove("mounted")
	if strings.HasPrefix(endpoint, "nbd+unix:") {
		lack.Skip(t, "there is no block device here to make a file system on: the endpoint is ", endpoint)
	}
	command(t, "mkfs.ext4", "-q", endpoint)
	at := filepath.Join(c.Info.Dir, "mnt-mounted")
	unmount := mountDevice(t, endpoint, at)
	for i, freeze := range []longhorn.Override{longhorn.OverrideDisabled, longhorn.OverrideEnabled} {
		var v longhorn.Volume
		key := types.NamespacedName{Namespace: namespace, Name: "mounted"}
		if err := c.kube.Get(t.Context(), key, &v); err != nil {
			t.Fatal(err)
		}
		patch := client.MergeFrom(v.DeepCopy())
		v.Spec.FreezeFilesystemForSnapshot = freeze
		if err := c.kube.Patch(t.Context(), &v, patch); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("mounted-%d", i)
		content := bytes.Repeat([]byte(name+" "), 1000)
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.rest.CreateSnapshot(t.Context(), "mounted", resource.SnapshotInput{Name: name}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, name), []byte("written after it"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.eventually("the snapshot is listed", func(context.Context) error {
			if e := c.engineOf("mounted"); e.Status.Snapshots[name].Name == "" {
				return fmt.Errorf("%v", e.Status.Snapshots)
			}
			return nil
		})
		c.lookAtCopy(t, name, content, freeze == longhorn.OverrideEnabled)
	}
	c.trim("mounted", at, func() {
		status, out, stderr := c.ankole(t, "volume", "trim", "mounted")
		if status != 0 || !strings.Contains(out, "was trimmed") {
			t.Fatalf("status %d: %s%s", status, out, stderr)
		}
	})
	c.nodeComesBack(endpoint)
	unmount()
	if status, _, stderr := c.ankole(t, "volume", "trim", "mounted"); status == 0 ||
		!strings.Contains(stderr, "not mounted on this node") {
		t.Errorf("a trim of what is not mounted: status %d, %s", status, stderr)
	}
}

// nodeComesBack removes the node of a block device that is up, waits for the engine to make it
// again, and compares what it leads to.
func (c *cluster) nodeComesBack(endpoint string) {
	c.t.Helper()
	node, err := filepath.EvalSymlinks(endpoint)
	if err != nil {
		c.t.Fatal(err)
	}
	var before, after unix.Stat_t
	if err := unix.Stat(node, &before); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Remove(node); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the device's node is there again", func(context.Context) error { return unix.Stat(endpoint, &after) })
	if after.Rdev != before.Rdev {
		c.t.Errorf("the node is that of device %x, and was that of %x", after.Rdev, before.Rdev)
	}
}

// command runs a program and returns what it prints.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// lookAtCopy looks at the file system in a snapshot, by a volume that is filled with it: it has the
// file as it was then, and is clean if it was frozen.
func (c *cluster) lookAtCopy(t *testing.T, name string, content []byte, frozen bool) {
	t.Helper()
	copied := name + "-copy"
	c.cloneOf(copied, "snap://mounted/"+name, 1)
	c.eventually(copied+" is complete and rests", func(context.Context) error {
		if v := c.volume(copied); v.CloneStatus.State != "completed" || v.State != "detached" {
			return fmt.Errorf("%s, clone %+v", v.State, v.CloneStatus)
		}
		return nil
	})
	device := c.attach(copied, "node-3", 1)
	journal := strings.Contains(command(t, "dumpe2fs", "-h", device), "needs_recovery")
	if journal == frozen {
		t.Errorf("frozen %v: the file system in the snapshot needs its journal: %v", frozen, journal)
	}
	end := mountDevice(t, device, filepath.Join(c.Info.Dir, "mnt-"+copied))
	got, err := os.ReadFile(filepath.Join(c.Info.Dir, "mnt-"+copied, name))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("frozen %v: the snapshot has %d bytes of the file, not the %d written before it (%v)", frozen, len(got),
			len(content), err)
	}
	end()
	c.detach(copied)
	c.remove(copied)
}

// trim deletes a large file of a file system that is mounted, on a volume of two replicas, and has
// the caller's trim give its space back.
func (c *cluster) trim(volume, at string, trim func()) {
	c.t.Helper()
	const size = 16 * mib
	large := filepath.Join(at, "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		c.t.Fatal(err)
	}
	command(c.t, "sync", "-f", large)
	before := c.allocated(volume)
	if err := os.Remove(large); err != nil {
		c.t.Fatal(err)
	}
	trim()
	if after := c.allocated(volume); before-after < 2*(size-2*mib) {
		c.t.Errorf("the directories of two replicas held %d bytes before and %d after a file of %d bytes was trimmed", before,
			after, size)
	}
}
