package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// ext4Shutdown is EXT4_IOC_SHUTDOWN, and shutdownNoLog makes it end at once, as when a disk is
// pulled.
const (
	ext4Shutdown  = 0x8004587d
	shutdownNoLog = 2
)

// TestPlaces takes disks and nodes away on a cluster of four.
func TestPlaces(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Nodes: 4})
	if !networkEverywhere { // C6 is about nodes that have none
		c.each(t, []scenario{{"C6", withoutAddress}})
	}
	c.each(t, []scenario{{"F14", scenarioF14}, {"F18", scenarioF18}, {"F20", scenarioF20}, {"F13", scenarioF13}})
}

// scenarioF13 breaks the disk of one of three replicas under load, in each way that disks break.
// Nobody sees an error, the disk's condition says what is the matter, and when the disk is mended
// the volume is healthy again, by itself, on the same disk.
func scenarioF13(t *testing.T, c *cluster) {
	if os.Geteuid() != 0 {
		lack.Skip(t, "disks are mounted by root only")
	}
	c.setting("replica-replenishment-wait-interval", "600") // what is lost comes back
	c.patchNode("node-4", `{"spec":{"allowScheduling":false}}`)
	b := &brokenDisk{cluster: c, node: "node-3", at: filepath.Join(c.Nodes[2].Root, "data")}
	b.make("data")
	c.create("f13", 64*mib, 3)
	endpoint := c.attach("f13", "node-1", 3)
	d := c.device(endpoint)
	w := rig.StartLoad(t, d, 64*mib, 13)
	for _, f := range []struct {
		name        string
		breaks      func()
		kind        string // of the condition that is false then
		reason, say string
		mend        func()
	}{
		{"full", b.fill, longhorn.DiskConditionSchedulable, longhorn.DiskReasonDiskPressure, "free", b.empty},
		{"read-only", b.abort, longhorn.DiskConditionReady, longhorn.DiskReasonNoDiskInfo, "emergency_ro", b.repair},
		{"removed", b.pull, longhorn.DiskConditionReady, longhorn.DiskReasonDiskFilesystemChanged, "not mounted", b.repair},
		{"another disk", b.swap, longhorn.DiskConditionReady, longhorn.DiskReasonDiskFilesystemChanged, "and was", b.repair},
	} {
		w.AwaitMore(t, 100)
		t.Logf("disk %s after %d writes", f.name, w.Ops())
		f.breaks()
		c.eventually("the volume is degraded with its disk "+f.name, c.robustness("f13", "degraded"))
		b.await(f.name, f.kind, f.reason, f.say)
		b.othersReady(f.name)
		w.AwaitMore(t, 100)
		f.mend()
		b.await("mended", longhorn.DiskConditionReady, "", "")
		c.eventually("the volume is healthy after its disk was "+f.name, c.robustness("f13", "healthy"))
		if at := c.replicaDirs("f13")[c.replicaOn("f13", b.node)]; !strings.HasPrefix(at, b.at+"/") {
			t.Errorf("the replica of %s is at %s, want it in %s", b.node, at, b.at)
		}
	}
	w.Finish()
	t.Logf("longest pause %v", w.TakePause(time.Now()))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.detach("f13")
	c.identical("f13", 3)
}

// robustness is met when a volume has it.
func (c *cluster) robustness(volume, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		v, err := c.rest.Volume(ctx, volume)
		if err == nil && v.Robustness != want {
			err = fmt.Errorf("robustness %s", v.Robustness)
		}
		return err
	}
}

// replicaOn is the name of a volume's replica on a node.
func (c *cluster) replicaOn(volume, node string) string {
	c.t.Helper()
	var list longhorn.ReplicaList
	if err := c.kube.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range list.Items {
		if r.Spec.VolumeName == volume && r.Spec.NodeID == node {
			return r.Name
		}
	}
	c.t.Fatalf("volume %s has no replica on %s", volume, node)
	return ""
}

// brokenDisk is the only disk of a node, an ext4 in a file.
type brokenDisk struct {
	*cluster
	node, at string
	room     int64 // size in bytes, 1 GiB by default
	loop     string
}

// make creates the disk and makes it the node's only one.
func (b *brokenDisk) make(name string) {
	b.t.Helper()
	b.loop = b.loopDevice(b.t.TempDir())
	b.mount(b.loop)
	b.add(name)
	b.await("new", longhorn.DiskConditionSchedulable, "", "")
}

// add makes what is mounted the node's only disk.
func (b *brokenDisk) add(name string) {
	b.t.Helper()
	n, err := b.rest.Node(b.t.Context(), b.node)
	if err != nil {
		b.t.Fatal(err)
	}
	disks := map[string]resource.DiskUpdate{name: {Path: "/data", DiskType: "filesystem", AllowScheduling: true}}
	for other, d := range n.Disks {
		disks[other] = resource.DiskUpdate{Path: d.Path, DiskType: d.DiskType, StorageReserved: d.StorageReserved}
	}
	b.eventually("a disk of "+b.node, func(ctx context.Context) error {
		_, err := b.rest.UpdateDisks(ctx, b.node, resource.DiskUpdateInput{Disks: disks})
		return err
	})
}

// loopDevice is a new ext4, most of it a hole.
func (b *brokenDisk) loopDevice(dir string) string {
	b.t.Helper()
	file := filepath.Join(dir, "disk")
	f, err := os.Create(file)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(cmp.Or(b.room, 1<<30)), f.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.command("mkfs.ext4", "-q", file)
	loop := strings.TrimSpace(b.command("losetup", "--find", "--show", file))
	b.t.Cleanup(func() { b.command("losetup", "--detach", loop) })
	return loop
}

func (b *brokenDisk) command(name string, args ...string) string {
	b.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (b *brokenDisk) mount(device string) {
	b.t.Helper()
	if err := os.MkdirAll(b.at, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Mount(device, b.at, "ext4", 0, ""); err != nil {
		b.t.Fatalf("mount %s: %v", device, err)
	}
	b.t.Cleanup(func() { _ = unix.Unmount(b.at, unix.MNT_DETACH) }) // it may be off already
}

// await waits for a condition of the disk: true without a reason, else false with it, and with a
// message that has the words. The node's agent looks every 30 s, and when its Node is changed.
func (b *brokenDisk) await(what, kind, reason, words string) {
	b.t.Helper()
	changed := time.Time{}
	b.eventually(fmt.Sprintf("disk %s: %s %q", what, kind, reason), func(ctx context.Context) error {
		if time.Since(changed) > 3*time.Second {
			changed = time.Now()
			b.patchNode(b.node, fmt.Sprintf(`{"metadata":{"annotations":{"looked":%q}}}`, changed))
		}
		var n longhorn.Node
		if err := b.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: b.node}, &n); err != nil {
			return err
		}
		c := longhorn.FindCondition(n.Status.DiskStatus["data"].Conditions, kind)
		if (c.Status == longhorn.ConditionTrue) != (reason == "") || c.Reason != reason ||
			!strings.Contains(c.Message, words) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// othersReady checks the other disks of the node, of which one is on the file system that the
// disk's directory is on without it.
func (b *brokenDisk) othersReady(what string) {
	b.t.Helper()
	others := 0
	for name, d := range b.cluster.node(b.node).Status.DiskStatus {
		if name == "data" {
			continue
		}
		others++
		ready := longhorn.FindCondition(d.Conditions, longhorn.DiskConditionReady)
		if ready.Status != longhorn.ConditionTrue {
			b.t.Errorf("disk %s is not ready while another one of %s is %s: %+v", name, b.node, what, ready)
		}
	}
	if others == 0 {
		b.t.Errorf("%s has no other disk", b.node)
	}
}

// fill takes all space of the disk.
func (b *brokenDisk) fill() {
	b.t.Helper()
	f, err := os.Create(filepath.Join(b.at, "junk"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for piece := int64(64 * mib); piece >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, size, piece); err == nil {
			size += piece
		} else if piece /= 2; !errors.Is(err, unix.ENOSPC) {
			b.t.Fatal(err)
		}
	}
}

func (b *brokenDisk) empty() {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.at, "junk")); err != nil {
		b.t.Fatal(err)
	}
}

// abort has the file system do what it does after an error: it becomes read-only.
func (b *brokenDisk) abort() {
	b.t.Helper()
	b.command("mount", "-o", "remount,abort", b.at)
}

// shutdown ends all I/O of the file system.
func (b *brokenDisk) shutdown() {
	b.t.Helper()
	dir, err := os.Open(b.at)
	if err != nil {
		b.t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), ext4Shutdown, shutdownNoLog); err != nil {
		b.t.Fatalf("shut down %s: %v", b.at, err)
	}
}

// pull takes the disk away: I/O fails and nothing is mounted any more.
func (b *brokenDisk) pull() {
	b.t.Helper()
	b.shutdown()
	b.unmount()
}

// unmount waits for those who use the disk.
func (b *brokenDisk) unmount() {
	b.t.Helper()
	b.eventually(b.at+" is unmounted", func(context.Context) error { return powerdisk.Unmount(b.at) })
}

// swap mounts another disk, that was one of a cluster too.
func (b *brokenDisk) swap() {
	b.t.Helper()
	config, err := os.ReadFile(filepath.Join(b.at, "longhorn-disk.cfg"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.pull()
	b.mount(b.loopDevice(b.t.TempDir()))
	other := strings.Replace(string(config), `"diskUUID":"`, `"diskUUID":"ffffffff`, 1)
	if other == string(config) {
		b.t.Fatalf("no UUID in %s", config)
	}
	if err := os.WriteFile(filepath.Join(b.at, "longhorn-disk.cfg"), []byte(other), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// repair checks the disk and mounts it again, as a person does.
func (b *brokenDisk) repair() {
	b.t.Helper()
	if isMountPoint(b.at) {
		b.unmount()
	}
	if out, err := exec.Command("fsck.ext4", "-fy", b.loop).CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode()&^1 != 0 { // 1: errors were corrected
			b.t.Fatalf("fsck.ext4: %v\n%s", err, out)
		}
	}
	b.mount(b.loop)
}

// isMountPoint says whether something is mounted at a directory.
func isMountPoint(dir string) bool {
	var here, above unix.Stat_t
	return unix.Stat(dir, &here) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}
