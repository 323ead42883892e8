package image

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uuid = "0a1b2c3d"

// scene is an image with what decide sees of it, on disks d1 to d3 of nodes n1 to n3.
type scene struct {
	b *v1beta2.BackingImage
	s seen
}

func disk(number string) backingimage.Disk {
	return backingimage.Disk{UUID: "d" + number, Node: "n" + number, Path: "/p" + number, Up: true, Takes: true,
		Space: schedule.Disk{Maximum: 100, Available: 100}}
}

func newScene(edits ...func(*scene)) *scene {
	c := &scene{
		b: &v1beta2.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: "iso", Namespace: "ns", UID: "u1",
			Finalizers: []string{v1beta2.Finalizer}},
			Spec: v1beta2.BackingImageSpec{SourceType: "download", MinNumberOfCopies: 2,
				SourceParameters: map[string]string{"url": "http://h/i"}},
			Status: v1beta2.BackingImageStatus{UUID: uuid, DiskFileStatusMap: map[string]v1beta2.BackingImageDiskFileStatus{},
				DiskLastRefAtMap: map[string]string{}}},
		s: seen{Disks: map[string]backingimage.Disk{"d1": disk("1"), "d2": disk("2"), "d3": disk("3")},
			Used: map[string]bool{}, CleanupWait: time.Hour, RecoveryWait: 5 * time.Minute, Replenish: 5, ManagerImage: "bim",
			Policy: schedule.Policy{OverProvisioningPercent: 100, AllowEmptyNodeSelector: true, AllowEmptyDiskSelector: true},
			UUID:   "ffffffff", Owner: "n1"},
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// on puts a copy on a disk that has been in a state, unused, for so long; and its manager, which
// says so.
func on(disk string, state v1beta2.BackingImageState, ago time.Duration) func(*scene) {
	return func(c *scene) {
		if c.b.Spec.DiskFileSpecMap == nil {
			c.b.Spec.DiskFileSpecMap = map[string]v1beta2.BackingImageDiskFileSpec{}
		}
		at := t0.Add(-ago).Format(time.RFC3339)
		c.b.Spec.DiskFileSpecMap[disk] = v1beta2.BackingImageDiskFileSpec{DataEngine: "v1"}
		shown := state
		if state == "" {
			shown = v1beta2.BackingImageStatePending
		}
		c.b.Status.DiskFileStatusMap[disk] = v1beta2.BackingImageDiskFileStatus{State: shown, LastStateTransitionTime: at}
		c.b.Status.DiskLastRefAtMap[disk] = at
		f := v1beta2.BackingImageFileInfo{Name: "iso", UUID: uuid, State: state}
		if state == v1beta2.BackingImageStateReady {
			f.Size, f.VirtualSize, f.RealSize, f.CurrentChecksum = 10, 20, 5, "sum"
		}
		c.s.Managers = append(c.s.Managers, v1beta2.BackingImageManager{
			ObjectMeta: metav1.ObjectMeta{Name: naming.BackingImageManagerName("bim", disk), Namespace: "ns"},
			Spec: v1beta2.BackingImageManagerSpec{Image: "bim", DiskUUID: disk, NodeID: c.s.Disks[disk].Node,
				BackingImages: map[string]string{"iso": uuid}},
			Status: v1beta2.BackingImageManagerStatus{CurrentState: v1beta2.BackingImageManagerStateRunning,
				BackingImageFileMap: map[string]v1beta2.BackingImageFileInfo{"iso": f}}})
	}
}

// from has a data source on disk d1.
func from(state v1beta2.BackingImageState, transferred bool) func(*scene) {
	return func(c *scene) {
		c.s.Source = &v1beta2.BackingImageDataSource{ObjectMeta: metav1.ObjectMeta{Name: "iso", Namespace: "ns"},
			Spec:   v1beta2.BackingImageDataSourceSpec{UUID: uuid, DiskUUID: "d1", NodeID: "n1", FileTransferred: transferred},
			Status: v1beta2.BackingImageDataSourceStatus{CurrentState: state, Progress: 40, Message: "told"}}
	}
}

var transferred = from("ready", true)

func edit(f func(*scene)) func(*scene) { return f }

func evicting(disk string) func(*scene) {
	return func(c *scene) {
		d := c.s.Disks[disk]
		d.Leaving, d.Takes = true, false
		c.s.Disks[disk] = d
		f := c.b.Spec.DiskFileSpecMap[disk]
		f.EvictionRequested = true
		c.b.Spec.DiskFileSpecMap[disk] = f
	}
}

func diskGone(disk string) func(*scene) { return func(c *scene) { delete(c.s.Disks, disk) } }

func used(disk string) func(*scene) { return func(c *scene) { c.s.Used[disk] = true } }

func copies(n int) func(*scene) { return func(c *scene) { c.b.Spec.MinNumberOfCopies = n } }

func upload(c *scene) { c.b.Spec.SourceType = "upload" }

// cloned is a clone, of which the checksum is known if it was ready once.
func cloned(encryption, sum string) func(*scene) {
	return func(c *scene) {
		c.b.Spec.SourceType, c.b.Status.Checksum = "clone", sum
		c.b.Spec.SourceParameters = map[string]string{"encryption": encryption}
	}
}

// outcome is what a decision asks for, in few words: the object, and the disks of an image.
func outcome(d loop.Decision) string {
	what := ""
	switch c := d.Do.(type) {
	case nil:
		what = "wait"
	case loop.Create:
		what = "create " + subject(c.Object)
	case loop.Update:
		what = "update " + subject(c.Object)
	case loop.Delete:
		what = "delete " + subject(c.Object)
	case loop.Call:
		what = c.What
		b := &v1beta2.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: "iso"}}
		if err := carry(context.Background(), b, seen{}, c.Order); err != nil {
			what = err.Error()
		}
	}
	if d.After > 0 {
		what += " after " + d.After.String()
	}
	return what
}

func subject(o any) string {
	switch o := o.(type) {
	case *v1beta2.BackingImage:
		if len(o.Finalizers) == 0 {
			return "image: no finalizer"
		}
		words := []string{"image:"}
		for _, d := range (&pass{b: o}).disks() {
			if o.Spec.DiskFileSpecMap[d].EvictionRequested {
				d += "(leaving)"
			}
			words = append(words, d)
		}
		return strings.Join(words, " ")
	case *v1beta2.BackingImageManager:
		return "manager of " + o.Spec.DiskUUID + " " + o.Spec.BackingImages["iso"]
	case *v1beta2.BackingImageDataSource:
		if o.Spec.FileTransferred {
			return "record of the source"
		}
		return "source on " + o.Spec.DiskUUID
	}
	return "another object"
}

// TestDecide is table "image" of docs/design/backing-images.md.
func TestDecide(t *testing.T) {
	const hour = time.Hour
	for _, tt := range []struct {
		name  string
		edits []func(*scene)
		want  string
	}{
		{"no UUID yet", []func(*scene){edit(func(c *scene) { c.b.Status.UUID = "" })}, "wait"},
		{"new", nil, "update image: d1"},
		{"new, older form of the map", []func(*scene){edit(func(c *scene) { c.b.Spec.Disks = map[string]string{"d2": ""} })},
			"update image: d2"},
		{"new, tags that no disk has", []func(*scene){edit(func(c *scene) { c.b.Spec.DiskSelector = []string{"nvme"} })},
			"no disk takes backing image iso: one must be schedulable, have free space, and the tags that its nodeSelector and " +
				"diskSelector name"},
		{"placed", []func(*scene){edit(func(c *scene) { c.b.Spec.DiskFileSpecMap = c.with("d1") })},
			"create manager of d1 " + uuid},
		{"placed, no image for managers", []func(*scene){edit(func(c *scene) {
			c.b.Spec.DiskFileSpecMap, c.s.ManagerImage = c.with("d1"), ""
		})}, "create source on d1"},
		{"manager of other images", []func(*scene){on("d1", "", 0), edit(func(c *scene) {
			c.s.Managers[0].Spec.BackingImages = nil
		})}, "update manager of d1 " + uuid},
		{"manager of another life", []func(*scene){on("d1", "", 0), edit(func(c *scene) {
			c.s.Managers[0].Spec.BackingImages["iso"] = "11111111"
		})}, "update manager of d1 " + uuid},
		{"manager of another version", []func(*scene){on("d1", "", 0), edit(func(c *scene) {
			c.s.Managers[0].Spec.Image = "bim:1"
		})}, "create manager of d1 " + uuid},
		{"manager being deleted", []func(*scene){on("d1", "ready", 0), transferred, copies(1), edit(func(c *scene) {
			c.s.Managers[0].DeletionTimestamp, c.s.Managers[0].Spec.BackingImages = &metav1.Time{Time: t0}, nil
		})}, "wait"},
		{"manager, no source", []func(*scene){on("d1", "", 0)}, "create source on d1"},
		{"manager, no source, disk down", []func(*scene){on("d1", "", 0), down("d1")}, "wait after 30s"},
		{"manager, no source, disk gone", []func(*scene){on("d1", "failed", 0), diskGone("d1")}, "update image: d1 d2"},
		{"a copy, no source", []func(*scene){on("d1", "ready", 0)}, "create record of the source"},
		{"a copy nobody can ask for, no source", []func(*scene){on("d1", "unknown", 0)}, "wait"},
		{"downloading", []func(*scene){on("d1", "", 0), from("in-progress", false)}, "wait"},
		{"download failed just now", []func(*scene){on("d1", "failed", 0), from("failed", false)}, "wait after 5m0s"},
		{"download failed long ago", []func(*scene){on("d1", "failed", hour), from("failed", false)}, "delete source on d1"},
		{"clone failed", []func(*scene){cloned("decrypt", "sum"), on("d1", "failed", hour), from("failed", false)},
			"delete source on d1"},
		{"encryption failed", []func(*scene){cloned("encrypt", ""), on("d1", "failed", hour), from("failed", false)},
			"delete source on d1"},
		{"encrypted image lost", []func(*scene){cloned("encrypt", "sum"), on("d1", "failed", hour), from("failed", false)},
			"wait"},
		{"upload failed", []func(*scene){upload, on("d1", "failed", hour), from("failed", false)}, "wait"},
		{"upload waits on a disk that is gone", []func(*scene){upload, on("d1", "failed", hour), from("failed", false),
			diskGone("d1")}, "delete source on d1"},
		{"every copy failed", []func(*scene){on("d1", "failed", hour), on("d2", "failed", 4*time.Minute), transferred},
			"wait after 1m0s"},
		{"every copy failed long ago", []func(*scene){on("d1", "failed", hour), on("d2", "failed", hour), transferred},
			"delete record of the source"},
		{"a replica on a disk without a copy", []func(*scene){on("d1", "ready", 0), transferred, copies(1), used("d3")},
			"update image: d1 d3"},
		{"a replica on a disk that is gone", []func(*scene){on("d1", "ready", 0), transferred, copies(1), used("d3"),
			diskGone("d3")}, "wait"},
		{"new, a replica has its place", []func(*scene){used("d2")}, "update image: d2"},
		{"every copy failed, one in use", []func(*scene){on("d1", "failed", hour), transferred, used("d1")}, "wait"},
		{"the only copy is away", []func(*scene){on("d1", "unknown", hour), on("d2", "failed", hour), transferred}, "wait"},
		{"too few copies", []func(*scene){on("d1", "ready", 0), transferred}, "update image: d1 d2"},
		{"too few copies, one comes", []func(*scene){copies(3), on("d1", "ready", 0), on("d2", "in-progress", 0),
			transferred},
			"wait"},
		{"too few copies, one failed just now", []func(*scene){on("d1", "ready", 0), on("d2", "failed", 0), transferred},
			"wait after 5m0s"},
		{"too few copies, one failed long ago", []func(*scene){on("d1", "ready", 0), on("d2", "failed", hour), transferred},
			"update image: d1 d2 d3"},
		{"too few copies, one failed and its disk is gone", []func(*scene){on("d1", "ready", 0), on("d2", "failed", 0),
			transferred,
			diskGone("d2")}, "update image: d1 d2 d3"},
		{"too few copies, one away", []func(*scene){on("d1", "ready", 0), on("d2", "unknown", 0), transferred}, "wait"},
		{"too few copies, setting 0", []func(*scene){on("d1", "ready", 0), transferred, edit(func(
			c *scene) {
			c.s.Replenish = 0
		})},
			"wait"},
		{"too few copies, nodes busy", []func(*scene){on("d1", "ready", 0), transferred, busy("2"), busy("3")},
			"wait after 30s"},
		{"too few copies, one node busy", []func(*scene){on("d1", "ready", 0), transferred, busy("2")},
			"update image: d1 d3"},
		{"enough copies", []func(*scene){on("d1", "ready", 0), on("d2", "ready", 0), transferred}, "wait"},
		{"one too many", []func(*scene){copies(1), on("d1", "ready", 59*time.Minute), on("d2", "ready", 59*time.Minute),
			transferred},
			"wait after 1m0s"},
		{"one too many for long", []func(*scene){copies(1), on("d1", "ready", hour), on("d2", "ready", hour), transferred},
			"update image: d2"},
		{"one too many, in use", []func(*scene){copies(1), on("d1", "ready", hour), on("d2", "ready", hour), transferred,
			used("d1")}, "update image: d1"},
		{"failed beside enough", []func(*scene){on("d1", "ready", 0), on("d2", "ready", 0), on("d3", "failed", hour),
			transferred},
			"update image: d1 d2"},
		{"on a disk that is gone", []func(*scene){on("d1", "ready", 0), on("d2", "ready", 0), on("d3", "failed", hour),
			diskGone("d3"), transferred, copies(3)}, "update image: d1 d2"},
		{"disk to be emptied", []func(*scene){on("d1", "ready", 0), on("d2", "ready", 0), transferred, edit(func(c *scene) {
			d := c.s.Disks["d1"]
			d.Leaving = true
			c.s.Disks["d1"] = d
		})}, "update image: d1(leaving) d2"},
		{"leaving, the only copy", []func(*scene){copies(1), on("d1", "ready", 0), transferred, evicting("d1")},
			"update image: d1(leaving) d2"},
		{"leaving, copies elsewhere", []func(*scene){copies(1), on("d1", "ready", 0), on("d2", "ready", 0), transferred,
			evicting("d1")}, "update image: d2"},
		{"leaving, in use", []func(*scene){copies(1), on("d1", "ready", 0), on("d2", "ready", 0), transferred, evicting("d1"),
			used("d1")}, "wait"},
		{"not wanted any more", []func(*scene){on("d1", "ready", 0), on("d2", "ready", 0), on("d3", "ready", 0), transferred,
			edit(func(c *scene) { delete(c.b.Spec.DiskFileSpecMap, "d2") })}, "update manager of d2 "},
		{"deleted", []func(*scene){on("d1", "ready", 0), transferred, gone}, "delete record of the source"},
		{"deleted, no source", []func(*scene){on("d1", "ready", 0), gone}, "update manager of d1 "},
		{"deleted, file not yet", []func(*scene){on("d1", "ready", 0), gone, edit(func(c *scene) {
			c.s.Managers[0].Spec.BackingImages = nil
		})}, "wait"},
		{"deleted, files gone", []func(*scene){on("d1", "ready", 0), gone, edit(func(c *scene) { c.s.Managers = nil })},
			"update image: no finalizer"},
		{"deleted, in use", []func(*scene){on("d1", "ready", 0), transferred, gone, used("d1")}, "wait"},
	} {
		c := newScene(tt.edits...)
		if got := outcome(decide(t0, c.b, c.s)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func (c *scene) with(disk string) map[string]v1beta2.BackingImageDiskFileSpec {
	return map[string]v1beta2.BackingImageDiskFileSpec{disk: {}}
}

func gone(c *scene) { c.b.DeletionTimestamp = &metav1.Time{Time: t0} }

func down(disk string) func(*scene) {
	return func(c *scene) {
		d := c.s.Disks[disk]
		d.Up, d.Takes = false, false
		c.s.Disks[disk] = d
	}
}

// busy has a node make as many copies of other images as it may.
func busy(number string) func(*scene) {
	return func(c *scene) {
		files := map[string]v1beta2.BackingImageFileInfo{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			files[name] = v1beta2.BackingImageFileInfo{State: v1beta2.BackingImageStateInProgress}
		}
		c.s.Managers = append(c.s.Managers, v1beta2.BackingImageManager{
			Spec:   v1beta2.BackingImageManagerSpec{Image: "bim", DiskUUID: "other" + number, NodeID: "n" + number},
			Status: v1beta2.BackingImageManagerStatus{BackingImageFileMap: files}})
	}
}

// TestObserve has what the user is told of a copy.
func TestObserve(t *testing.T) {
	type told = v1beta2.BackingImageDiskFileStatus
	for _, tt := range []struct {
		name  string
		edits []func(*scene)
		want  told
	}{
		{"wanted", []func(*scene){edit(func(c *scene) { c.b.Spec.DiskFileSpecMap = c.with("d1") })}, told{State: "pending"}},
		{"the source says", []func(*scene){on("d1", "", 0), from("in-progress", false)},
			told{State: "in-progress", Progress: 40, Message: "told"}},
		{"taken over", []func(*scene){on("d1", "ready", 0), from("ready-for-transfer", false)}, told{State: "ready",
			Progress: 100}},
		{"the manager says", []func(*scene){on("d1", "in-progress", 0), transferred}, told{State: "in-progress"}},
		{"the file was removed by hand", []func(*scene){on("d1", "", 0), transferred},
			told{State: "failed", Message: "the file is gone, and no other copy of it is known"}},
		{"removed by hand, another one is there", []func(*scene){on("d1", "", 0), on("d2", "ready", 0), transferred},
			told{State: "pending"}},
		{"the disk is gone", []func(*scene){on("d1", "ready", 0), transferred, diskGone("d1")},
			told{State: "failed", Message: "no node reports disk d1"}},
		{"the manager is gone", []func(*scene){on("d1", "ready", 0), transferred, edit(func(
			c *scene) {
			c.s.Managers = nil
		})},
			told{State: "unknown", Message: "the disk has no backing image manager now"}},
		{"the manager has another life of it", []func(*scene){on("d1", "ready", 0), transferred, edit(func(c *scene) {
			c.b.Status.UUID = "11111111"
		})}, told{State: "unknown", Message: "the disk has no backing image manager now"}},
	} {
		c := newScene(tt.edits...)
		decide(t0, c.b, c.s)
		got := c.b.Status.DiskFileStatusMap["d1"]
		got.LastStateTransitionTime, got.DataEngine = "", ""
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestStatus: what an image is, is learnt once; when a state has changed and since when a copy is
// unused is kept.
func TestStatus(t *testing.T) {
	c := newScene(on("d1", "ready", time.Hour), on("d2", "in-progress", time.Hour), transferred, used("d2"))
	c.b.Status.DiskFileStatusMap["d2"] = v1beta2.BackingImageDiskFileStatus{State: "pending",
		LastStateTransitionTime: "2020-01-01T00:00:00Z"}
	decide(t0, c.b, c.s)
	st := c.b.Status
	if st.Size != 10 || st.VirtualSize != 20 || st.RealSize != 5 || st.Checksum != "sum" || st.OwnerID != "n1" {
		t.Errorf("learnt %+v", st)
	}
	if got := st.DiskFileStatusMap["d1"].LastStateTransitionTime; got != t0.Add(-time.Hour).Format(time.RFC3339) {
		t.Errorf("ready since %s", got)
	}
	if got := st.DiskFileStatusMap["d2"].LastStateTransitionTime; got != t0.Format(time.RFC3339) {
		t.Errorf("in progress since %s", got)
	}
	if _, unused := st.DiskLastRefAtMap["d2"]; unused || st.DiskLastRefAtMap["d1"] == "" {
		t.Errorf("unused since %v", st.DiskLastRefAtMap)
	}
	c.s.Managers[0].Status.BackingImageFileMap["iso"] = v1beta2.BackingImageFileInfo{UUID: uuid, State: "ready", Size: 11,
		CurrentChecksum: "another"}
	decide(t0, c.b, c.s)
	if c.b.Status.Size != 10 || c.b.Status.Checksum != "sum" {
		t.Errorf("another content has changed what the image is: %+v", c.b.Status)
	}
}

// TestSourceHasTheKnownChecksum: a source that begins anew must bring the same content.
func TestSourceHasTheKnownChecksum(t *testing.T) {
	for _, tt := range []struct{ asked, known, want string }{{"", "", ""}, {"", "b", "b"}, {"a", "b", "a"}} {
		c := newScene(on("d1", "", 0))
		c.b.Spec.Checksum, c.b.Status.Checksum = tt.asked, tt.known
		made := decide(t0, c.b, c.s).Do.(loop.Create).Object.(*v1beta2.BackingImageDataSource)
		if made.Spec.Checksum != tt.want || made.OwnerReferences[0].UID != "u1" ||
			made.Spec.Parameters["url"] != "http://h/i" {
			t.Errorf("%+v: %+v", tt, made.Spec)
		}
	}
}

// TestSpread: a copy goes to a node without one, if there is one.
func TestSpread(t *testing.T) {
	c := newScene(on("d1", "ready", 0), transferred)
	beside := disk("1")
	beside.UUID = "d0"
	c.s.Disks["d0"] = beside
	if got := outcome(decide(t0, c.b, c.s)); got != "update image: d1 d2" {
		t.Error(got)
	}
	for _, d := range []string{"d2", "d3"} {
		down(d)(c)
	}
	if got := outcome(decide(t0, c.b, c.s)); got != "update image: d0 d1" {
		t.Error(got)
	}
	full := c.s.Disks["d0"]
	full.Space.Scheduled = 95
	c.s.Disks["d0"] = full
	if got := outcome(decide(t0, c.b, c.s)); got != "wait after 30s" {
		t.Error("a disk without room:", got)
	}
}
