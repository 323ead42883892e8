package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resttest"
	"ankole.storage/test/lack"
)

// stored reads an object as the server has it.
func stored[T any, P interface {
	*T
	client.Object
}](b *bed, name string) P {
	b.t.Helper()
	o := P(new(T))
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, o); err != nil {
		b.t.Error(err)
	}
	return o
}

// ok runs a command that must succeed and returns what it printed.
func (b *bed) ok(args ...string) string {
	b.t.Helper()
	r := b.run(args...)
	if r.status != exitOK {
		b.t.Errorf("%v: status %d, %s", args, r.status, r.err)
	}
	return r.out
}

func TestNodeChanges(t *testing.T) {
	b := newBed(t, troubled()...)
	node := func() lh.NodeSpec { return stored[lh.Node](b, "node-2").Spec }
	if out := b.ok("node", "scheduling", "off", "node-2", "node-3"); out !=
		"node node-2 takes no new replicas\nnode node-3 takes no new replicas\n" || node().AllowScheduling {
		t.Errorf("%q %+v", out, node())
	}
	if out := b.ok("node", "scheduling", "on", "node-2"); !node().AllowScheduling ||
		out != "node node-2 takes new replicas\n" {
		t.Errorf("%q %+v", out, node())
	}
	if out := b.ok("node", "tag", "node-2", "--add", "rack-1,hdd", "--remove",
		"fast"); out != "node node-2 has tags hdd,rack-1\n" ||
		!node().AllowScheduling {
		t.Errorf("%q %+v", out, node())
	}
	// node-2 holds no replicas, so its eviction is done at once; node-1 holds two.
	if out := b.ok("node", "evict", "node-2"); out != "node node-2 holds no replicas\n" || !node().EvictionRequested ||
		node().AllowScheduling {
		t.Errorf("%q %+v", out, node())
	}
	if r := b.run("node", "evict", "node-1", "--timeout", "300ms"); r.status != exitError || !strings.Contains(r.err,
		"node node-1 still holds 2 replicas after 300ms; the eviction goes on, see why they stay with: "+
			"ankole node describe node-1") || !strings.Contains(r.err, "[  0%] node node-1: 2 replicas left") {
		t.Errorf("%+v", r)
	}
	if out := b.ok("node", "evict", "--cancel", "node-2"); out != "node node-2 is not evicted any more\n" ||
		node().EvictionRequested || node().AllowScheduling {
		t.Errorf("%q %+v", out, node())
	}
	if out := b.ok("node", "evict", "--wait=false", "node-2"); out != "node node-2 is being evicted\n" {
		t.Errorf("%q", out)
	}
}

// TestCancelledExpansionIsFollowed: what was asked of the engine before it was taken back may still
// be done. What the volume has then is told, and too late is a failure.
func TestCancelledExpansionIsFollowed(t *testing.T) {
	const has, larger = 1 << 30, 2 << 30
	for name, want := range map[string]struct {
		becomes int64
		result
	}{
		"in time":  {has, result{exitOK, "the expansion of volume demo was cancelled; it has 1073741824 bytes\n", ""}},
		"too late": {larger, result{exitError, "", "has 2147483648 bytes"}},
	} {
		b := newBed(t, cluster()...)
		var v lh.Volume
		var e lh.Engine
		b.change("demo", &v, func() { v.Spec.Size, v.Status.ExpansionRequired = larger, true })
		b.change("demo-e-0", &e, func() { e.Spec.VolumeSize, e.Status.CurrentSize = larger, has })
		var engine sync.WaitGroup
		engine.Go(func() { // the controllers
			for stored[lh.Volume](b, "demo").Spec.Size != has && t.Context().Err() == nil {
				runtime.Gosched()
			}
			b.change("demo-e-0", &e, func() { e.Spec.VolumeSize, e.Status.CurrentSize = want.becomes, want.becomes })
			b.change("demo", &v, func() { v.Spec.Size, v.Status.ExpansionRequired = want.becomes, false })
		})
		if r := b.run("volume", "expand", "demo", "--cancel", "--timeout", "30s"); r.status != want.status ||
			r.out != want.out || !strings.Contains(r.err, want.err) {
			t.Errorf("%s: %+v", name, r)
		}
		engine.Wait()
	}
}

// TestCancelledExpansionIsNotOver: while the engine may still do what it was asked for, nothing is
// settled.
func TestCancelledExpansionIsNotOver(t *testing.T) {
	b := newBed(t, cluster()...)
	var v lh.Volume
	var e lh.Engine
	b.change("demo", &v, func() { v.Spec.Size, v.Status.ExpansionRequired = 2<<30, true })
	b.change("demo-e-0", &e, func() { e.Spec.VolumeSize, e.Status.CurrentSize = 2<<30, 1<<30 })
	r := b.run("volume", "expand", "demo", "--cancel", "--timeout", "300ms")
	if r.status != exitError || r.out != "" || !strings.Contains(r.err, "is not of a settled size after 300ms") {
		t.Errorf("%+v", r)
	}
}

// TestEvictionIsFollowed: the wait ends when the last replica has left.
func TestEvictionIsFollowed(t *testing.T) {
	b := newBed(t, troubled()...)
	ctx, cancel := context.WithCancel(t.Context())
	var follower sync.WaitGroup
	defer follower.Wait()
	defer cancel()
	follower.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !stored[lh.Node](b, "node-1").Spec.Disks["disk-1"].EvictionRequested {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		var n lh.Node
		b.change("node-1", &n, func() {
			d := n.Status.DiskStatus["disk-1"]
			d.ScheduledReplica = nil
			n.Status.DiskStatus["disk-1"] = d
		})
	})
	if out := b.ok("disk", "evict", "node-1", "disk-1", "--timeout",
		"30s"); out != "disk disk-1 of node node-1 holds no replicas\n" {
		t.Errorf("%q", out)
	}
}

func TestDiskChanges(t *testing.T) {
	b := newBed(t, troubled()...)
	disks := func() map[string]lh.DiskSpec { return stored[lh.Node](b, "node-2").Spec.Disks }
	other := disks()["disk-1"]
	if out := b.ok("disk", "tag", "node-2", "slow", "--add", "hdd"); out != "disk slow of node node-2 has tags hdd\n" ||
		!slices.Equal(disks()["slow"].Tags, []string{"hdd"}) {
		t.Errorf("%q %+v", out, disks())
	}
	if out := b.ok("disk", "reserve", "node-2", "slow", "2Gi"); out != "disk slow of node node-2 leaves 2Gi free\n" ||
		disks()["slow"].StorageReserved != 2<<30 {
		t.Errorf("%q %+v", out, disks())
	}
	if b.ok("disk", "reserve", "node-2", "slow", "0"); disks()["slow"].StorageReserved != 0 {
		t.Errorf("%+v", disks())
	}
	if r := b.run("disk", "remove", "node-2", "slow", "--yes"); r.status != exitError || !strings.Contains(r.err,
		"takes replicas; end that with: ankole disk scheduling off node-2 slow") {
		t.Errorf("%+v", r)
	}
	if out := b.ok("disk", "scheduling", "off", "node-2", "slow", "disk-1"); disks()["slow"].AllowScheduling ||
		disks()["disk-1"].AllowScheduling || !strings.HasPrefix(out, "disk slow of node node-2 takes no new replicas\n") {
		t.Errorf("%q %+v", out, disks())
	}
	if b.ok("disk", "scheduling", "on", "node-2", "disk-1"); fmt.Sprint(disks()["disk-1"]) != fmt.Sprint(other) {
		t.Errorf("the other disk was changed from %+v to %+v", other, disks()["disk-1"])
	}
	if out := b.ok("disk", "remove", "node-2", "slow", "--yes"); len(disks()) != 1 ||
		out != "disk slow of node node-2 removed; its directory is left as it is\n" {
		t.Errorf("%q %+v", out, disks())
	}
	b.change("node-2", &lh.Node{}, func() {}) // as it is
	var n lh.Node
	b.change("node-2", &n, func() { delete(n.Status.DiskStatus, "slow") })
	if out := b.ok("disk", "add", "node-2", "new", "--path", "/srv/new", "--tag", "ssd", "--reserve",
		"1Gi"); !strings.HasPrefix(
		out, "disk new added to node node-2;") || disks()["new"].Path != "/srv/new" || !disks()["new"].AllowScheduling ||
		disks()["new"].StorageReserved != 1<<30 || fmt.Sprint(disks()["disk-1"]) != fmt.Sprint(other) {
		t.Errorf("%q %+v", out, disks())
	}
}

// terminalPair opens a terminal; what is written to keyboard is typed into it.
func terminalPair(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		lack.Skip(t, "a terminal (/dev/ptmx): "+err.Error())
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}

// TestDeletingAsks: on a terminal the answer counts, elsewhere nothing is deleted without --yes.
func TestDeletingAsks(t *testing.T) {
	ordered := &lh.Snapshot{ObjectMeta: resttest.Meta("ordered"), Spec: lh.SnapshotSpec{Volume: "demo",
		Labels: naming.OrderedByCSI()}}
	ordered.Labels = naming.VolumeLabels("demo")
	b := newBed(t, append(cluster(), ordered)...)
	ask := func(answer string, args ...string) (int, string) {
		keyboard, terminal := terminalPair(t)
		if _, err := keyboard.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		status := run(ctx, append([]string{"--server", b.url}, args...), terminal, &out, terminal)
		terminal.Close()
		shown, _ := io.ReadAll(keyboard) // a terminal that was closed ends with an error
		return status, out.String() + string(shown)
	}
	for _, answer := range []string{"no", "", "demo", "yes please"} {
		if status, text := ask(answer, "volume", "delete", "demo"); status != exitError ||
			!strings.Contains(text, "volume demo with all its data: 1Gi, detached") ||
			!strings.Contains(text, "with snapshots that VolumeSnapshots stand on: ordered") ||
			!strings.Contains(text, "Delete it? Type yes:") || !strings.Contains(text, "nothing was changed") {
			t.Errorf("%q: %d %s", answer, status, text)
		}
	}
	if status, text := ask("yes", "volume", "delete", "demo", "busy", "--wait=false"); status != exitOK ||
		!strings.Contains(text, "Delete these 2?") || !strings.Contains(text, "volume busy deleted") {
		t.Errorf("%d %s", status, text)
	}
	for _, args := range [][]string{{"volume", "delete", "wide"}, {"orphan", "delete", "orphan-1"},
		{"replica", "delete", "wide", "wide-r-11111111"}, {"node", "delete", "node-3"},
		{"engine-image", "delete", resttest.Image}} {
		if r := b.run(args...); r.status != exitError || !strings.Contains(r.err, "add --yes to go on") || r.out != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if out := b.ok("volume", "list", "-o", "name"); out != "volume/wide\n" {
		t.Errorf("left: %q", out)
	}
}

// TestSeveralNames: what fails is told by name, the others are done, the status is 1.
func TestSeveralNames(t *testing.T) {
	b := newBed(t, cluster()...)
	r := b.run("volume", "get", "demo", "nope", "wide", "-o", "name")
	if r.status != exitError || r.out != "volume/demo\nvolume/wide\n" || r.err !=
		"error: volume nope not found; list volumes with: ankole volume list\nerror: 1 of 3 failed\n" {
		t.Errorf("%+v", r)
	}
	r = b.run("volume", "delete", "nope", "wide", "demo", "--yes", "--wait=false")
	if r.status != exitError || r.out != "volume wide deleted\nvolume demo deleted\n" || !strings.Contains(r.err,
		"1 of 3 failed") {
		t.Errorf("%+v", r)
	}
	wg := b.attachSoon("busy", "/dev/longhorn/busy")
	if r := b.run("volume", "attach", "busy", "nope", "--timeout", "30s"); r.status != exitError ||
		!strings.Contains(r.out, "volume busy attached to node-1") || !strings.Contains(r.err, "volume nope not found") {
		t.Errorf("%+v", r)
	}
	wg.Wait()
}

// TestSeveralNamesWithValues: what one command is told of several objects is done to each; one that
// fails keeps none of the others from it.
func TestSeveralNamesWithValues(t *testing.T) {
	job := func(name string) *lh.RecurringJob {
		return &lh.RecurringJob{ObjectMeta: resttest.Meta(name), Spec: lh.RecurringJobSpec{Name: name, Task: "snapshot",
			Cron: "@daily", Retain: 1, Concurrency: 1}}
	}
	b, _ := snapshotBed(t, append(snapshotCluster(), job("a"), job("b"))...)
	const missing = "error: volume nope not found; list volumes with: ankole volume list\n"
	for command, want := range map[string]result{
		"volume expand busy nope demo --size 4Gi --wait=false": {1, "volume busy: size 4294967296 bytes\n" +
			"volume demo: size 4294967296 bytes\n", missing},
		"volume scale nope busy --replicas 2 --wait=false": {1, "volume busy has 2 replicas\n", missing},
		"volume set-locality busy nope demo best-effort --wait=false": {1, "volume busy: data locality best-effort",
			missing},
		"snapshot purge nope busy": {1, "snapshots of volume busy purged\n", missing},
		"recurring-job update a nope b --retain 3": {1, "recurring job a changed\nrecurring job b changed\n",
			"error: recurring-job nope not found; list recurring-jobs with: ankole recurring-job list\n"},
	} {
		r := b.run(strings.Fields(command)...)
		if r.status != want.status || !strings.HasPrefix(r.out, want.out) || !strings.HasPrefix(r.err, want.err) {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// TestDryRun: whatever a command would change is shown and not done, whatever it only reads is
// read.
func TestDryRun(t *testing.T) {
	b := newBed(t, troubled()...)
	before := b.ok("volume", "list", "-o", "json") + b.ok("node", "list", "-o", "json")
	for args, want := range map[string]string{
		"volume delete demo wide":             "would send: DELETE /v1/volumes/demo -\nwould send: DELETE /v1/volumes/wide -\n",
		"volume detach busy":                  `would send: POST /v1/volumes/busy?action=detach {"attachmentID":`,
		"node tag node-1 --add a":             `would send: PUT /v1/nodes/node-1 {"allowScheduling":false,"evictionRequested":true,"tags":["fast","a"]`,
		"setting set default-replica-count 2": `would send: PUT /v1/settings/default-replica-count {"value":"2"}`,
		"volume create x --size 1Gi":          `would send: POST /v1/volumes {"name":"x","size":"1Gi"`,
	} {
		r := b.run(append(strings.Fields(args), "--dry-run")...)
		if r.status != exitOK || !strings.HasPrefix(r.out, want) || r.err != "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	for _, args := range []string{"demo", "demo proposals", "replica export x y"} {
		if r := b.run(append(strings.Fields(args), "--dry-run")...); r.status != exitUsage ||
			!strings.Contains(r.err, "cannot be a dry run") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if after := b.ok("volume", "list", "-o", "json") + b.ok("node", "list", "-o", "json"); after != before {
		t.Errorf("changed:\n%s", after)
	}
}

// TestImageThatIsNotUnderstood: whoever waits for an image that no volume can have is told so, and
// its sheet has the range of command lines that is worked with.
func TestImageThatIsNotUnderstood(t *testing.T) {
	ours := resttest.DeployedImage("node-1")
	ours.Status.Version, ours.Status.CLIAPIVersion, ours.Status.CLIAPIMinVersion = "v2", 12, 8
	seen := func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if images, ok := list.(*lh.EngineImageList); ok {
			for i := range images.Items {
				if e := &images.Items[i]; e.Spec.Image != resttest.Image {
					e.Status = lh.EngineImageStatus{State: lh.EngineImageStateDeployed, Incompatible: true, Version: "v1",
						CLIAPIVersion: 7, CLIAPIMinVersion: 4}
				}
			}
		}
		return err
	}
	b := newBedOf(t, interceptor.Funcs{List: seen}, ours)
	r := b.run("engine-image", "create", "ankole/engine:old")
	if r.status != exitError || !strings.Contains(r.err, "is deployed, and no volume can have it: it is not compatible with") {
		t.Errorf("%+v", r)
	}
	for image, want := range map[string][]string{
		"ankole/engine:old": {"command line 4 to 7, controller",
			"command line 8 to 12, that of the default engine image: incompatible"},
		resttest.Image: {"command line 8 to 12, controller", "that of the default engine image: compatible"},
	} {
		out := b.ok("engine-image", "describe", image)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s lacks %q:\n%s", image, w, out)
			}
		}
	}
}

// TestEngineImages: they are put on the nodes, waited for, and removed when nothing uses them.
func TestEngineImages(t *testing.T) {
	b := newBed(t, cluster()...)
	if r := b.run("engine-image", "create", "ankole/engine:v2", "--timeout", "300ms"); r.status != exitError ||
		!strings.Contains(
			r.err, "not deployed after 300ms: it is unknown, on 0 of 0 nodes; see why with: ankole engine-image describe ei-") {
		t.Errorf("%+v", r)
	}
	if r := b.run("engine-image", "delete", "ankole/engine:v2", "--yes"); r.status != exitOK ||
		!strings.HasSuffix(r.out, "is being removed\n") {
		t.Errorf("%+v", r)
	}
	if out := b.ok("engine-image", "create", "ankole/engine:v3", "--wait=false"); !strings.Contains(out,
		"is being put on the nodes") {
		t.Errorf("%q", out)
	}
}
