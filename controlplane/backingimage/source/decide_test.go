package source

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const imageUUID = "0a1b2c3d"

type scene struct {
	d *v1beta2.BackingImageDataSource
	s seen
}

// newScene is a data source whose Pod runs and says that it downloads.
func newScene(edits ...func(*scene)) *scene {
	c := &scene{
		d: &v1beta2.BackingImageDataSource{ObjectMeta: metav1.ObjectMeta{Name: "iso", Namespace: "ns", UID: "u1",
			Finalizers: []string{v1beta2.Finalizer}},
			Spec: v1beta2.BackingImageDataSourceSpec{NodeID: "n1", DiskUUID: "d1", DiskPath: "/p", UUID: imageUUID,
				SourceType: "download", Parameters: map[string]string{"url": "http://h/i"}}},
		s: seen{Disk: &backingimage.Disk{UUID: "d1", Path: "/p", Node: "n1", Up: true}, Image: "bim", Owner: "n9",
			File: &file{State: "in-progress", Progress: 30},
			Manager: &v1beta2.BackingImageManager{Status: v1beta2.BackingImageManagerStatus{
				CurrentState:        v1beta2.BackingImageManagerStateRunning,
				BackingImageFileMap: map[string]v1beta2.BackingImageFileInfo{"iso": {UUID: imageUUID}}}}},
	}
	c.s.Pod = podFor(c.d, c.d.Spec.Parameters, "bim", c.s.Settings)
	c.s.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
	for _, e := range edits {
		e(c)
	}
	return c
}

func noPod(c *scene) { c.s.Pod, c.s.File = nil, nil }

func taken(state v1beta2.BackingImageState) func(*scene) {
	return func(c *scene) {
		c.s.Manager.Status.BackingImageFileMap["iso"] = v1beta2.BackingImageFileInfo{UUID: imageUUID, State: state}
	}
}

func says(f file) func(*scene) { return func(c *scene) { c.s.File = &f } }

func before(state v1beta2.BackingImageState) func(*scene) {
	return func(c *scene) { c.d.Status.CurrentState = state }
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "the Pod"
	case *v1beta2.Snapshot:
		return "the snapshot"
	}
	return fmt.Sprintf("%T", o)
}

func outcome(d loop.Decision) string {
	what := "wait"
	switch do := d.Do.(type) {
	case loop.Create:
		what = "create " + kindOf(do.Object)
	case loop.Delete:
		what = "delete " + kindOf(do.Object)
	case loop.Update:
		what = "no finalizer"
		if a, ok := do.Object.(*v1beta2.VolumeAttachment); ok {
			what = fmt.Sprintf("%d tickets", len(a.Spec.AttachmentTickets))
		} else if do.Object.(*v1beta2.BackingImageDataSource).Spec.FileTransferred {
			what = "transferred"
		}
	case loop.Call:
		what = do.What
	}
	if d.After > 0 {
		what += " after " + d.After.String()
	}
	return what
}

// TestDecide is table "source" of docs/design/backing-images.md.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edits   []func(*scene)
		want    string
		state   v1beta2.BackingImageState
		message string
	}{
		{"no Pod", []func(*scene){noPod}, "create the Pod", "pending", notStarted},
		{"no Pod, no manager", []func(*scene){noPod, func(c *scene) { c.s.Manager = nil }}, "wait", "pending",
			"the backing image manager of disk d1 is not ready yet"},
		{"no Pod, the manager starts", []func(*scene){noPod, func(c *scene) {
			c.s.Manager.Status.CurrentState = v1beta2.BackingImageManagerStateStarting
		}}, "wait", "pending", "the backing image manager of disk d1 is not ready yet"},
		{"no Pod, the manager does not know the image", []func(*scene){noPod, func(c *scene) {
			c.s.Manager.Status.BackingImageFileMap = nil
		}}, "wait", "pending", "the backing image manager of disk d1 is not ready yet"},
		{"no Pod, the manager has a file", []func(*scene){noPod, taken("failed")}, "wait", "pending", notStarted},
		{"no Pod, the manager takes it over", []func(*scene){noPod, taken("in-progress")}, "wait", "pending", notStarted},
		{"no Pod, no certificate", []func(*scene){noPod, func(c *scene) { c.s.Plaintext.Wait = true }}, "wait after 2s",
			"pending", notStarted},
		{"no Pod, too early", []func(*scene){noPod, func(c *scene) { c.s.StartNotBefore = t0.Add(time.Second) }},
			"wait after 1s", "pending", notStarted},
		{"no Pod, it had failed", []func(*scene){noPod, before("failed")}, "create the Pod", "failed", ""},
		{"Pod starts", []func(*scene){func(c *scene) { c.s.Pod.Status.ContainerStatuses, c.s.File = nil, nil }}, "wait",
			"starting", ""},
		{"Pod of another object", []func(*scene){func(c *scene) { c.s.Pod.OwnerReferences[0].UID = "u0" }}, "wait", "", ""},
		{"Pod being deleted", []func(*scene){func(c *scene) { c.s.Pod.DeletionTimestamp = &metav1.Time{Time: t0} }}, "wait",
			"", ""},
		{"Pod ended", []func(*scene){func(c *scene) { c.s.Pod.Status.Phase = corev1.PodSucceeded }}, "delete the Pod",
			"pending", notStarted},
		{"Pod ended, it had failed", []func(*scene){before("failed"), func(
			c *scene) {
			c.s.Pod.Status.Phase = corev1.PodFailed
		}},
			"delete the Pod", "failed", ""},
		{"process does not answer", []func(*scene){before("in-progress"), func(c *scene) { c.s.File = nil }}, "wait after 2s",
			"in-progress", ""},
		{"downloads", nil, "wait after 2s", "in-progress", ""},
		{"has failed", []func(*scene){says(file{State: "failed", Message: "404"})}, "wait after 2s", "failed", "404"},
		{"ready", []func(*scene){says(file{State: "ready-for-transfer", Size: 7, CurrentChecksum: "sum"})}, "wait after 2s",
			"ready-for-transfer", ""},
		{"taken over", []func(*scene){taken("ready"), before("ready-for-transfer")}, "transferred", "ready-for-transfer", ""},
		{"another life was taken over", []func(*scene){func(c *scene) {
			c.s.Manager.Status.BackingImageFileMap["iso"] = v1beta2.BackingImageFileInfo{UUID: "11111111", State: "ready"}
		}}, "wait after 2s", "in-progress", ""},
		{"transferred", []func(*scene){transferred}, "delete the Pod", "ready", ""},
		{"transferred, no Pod", []func(*scene){transferred, noPod}, "wait", "ready", ""},
		{"transferred, disk gone", []func(*scene){transferred, noPod, func(c *scene) { c.s.Disk = nil }}, "wait", "ready",
			""},
		{"disk not ready", []func(*scene){func(c *scene) { c.s.Disk.Up = false }}, "wait", "unknown",
			"disk d1 of node n1 is not ready"},
		{"disk not ready, it had failed", []func(*scene){before("failed"), func(c *scene) { c.s.Disk.Up = false }}, "wait",
			"failed", ""},
		{"disk gone", []func(*scene){func(c *scene) { c.s.Disk = nil }}, "wait", "failed",
			"node n1 does not have disk d1 any more"},
		{"disk on another node", []func(*scene){func(c *scene) { c.s.Disk.Node = "n2" }}, "wait", "failed",
			"node n1 does not have disk d1 any more"},
		{"unknown", []func(*scene){func(c *scene) { c.d.Spec.SourceType = "x" }, noPod}, "wait", "failed",
			`source type "x" is unknown; download, upload, export-from-volume, clone and restore are possible`},
		{"deleted", []func(*scene){deleted}, "delete the Pod", "", ""},
		{"deleted, no Pod", []func(*scene){deleted, noPod}, "no finalizer", "", ""},
		{"deleted, Pod of another object", []func(*scene){deleted, func(c *scene) { c.s.Pod.OwnerReferences[0].UID = "u0" }},
			"no finalizer", "", ""},
	} {
		c := newScene(tt.edits...)
		got := outcome(decide(t0, c.d, c.s))
		if st := c.d.Status; got != tt.want || st.CurrentState != tt.state || st.Message != tt.message {
			t.Errorf("%s: %s, %q, %q; want %s, %q, %q", tt.name, got, st.CurrentState, st.Message, tt.want, tt.state, tt.message)
		}
	}
}

func transferred(c *scene) { c.d.Spec.FileTransferred = true }

func deleted(c *scene) { c.d.DeletionTimestamp = &metav1.Time{Time: t0} }

// TestStatus has what is taken over from the process.
func TestStatus(t *testing.T) {
	c := newScene(says(file{State: "ready-for-transfer", Progress: 100, Size: 7, CurrentChecksum: "sum"}))
	decide(t0, c.d, c.s)
	st := c.d.Status
	if st.IP != "10.0.0.1" || st.StorageIP != "10.0.0.1" || st.Progress != 100 || st.Size != 7 || st.Checksum != "sum" ||
		st.OwnerID != "n9" || st.RunningParameters["url"] != "http://h/i" {
		t.Errorf("%+v", st)
	}
}

// TestPod has the command line, with what a user has written in it.
func TestPod(t *testing.T) {
	c := newScene()
	for _, tt := range []struct{ url, want string }{
		{"http://h/i", "--parameters url=http://h/i"},
		{"http://h/a,b", "--parameters url=http://h/a,b"},
		{"http://h/i?a=1", "--parameters url=http://h/i?a=1"},
		{"http://h/i?a=1,b=2", `--parameters "url=http://h/i?a=1,b=2"`},
		{"http://h/$(POD_IP)", "--parameters url=http://h/$$(POD_IP)"},
	} {
		c.d.Spec.Parameters["url"], c.d.Spec.Checksum = tt.url, "sum"
		pod := podFor(c.d, c.d.Spec.Parameters, "bim", c.s.Settings)
		want := "backing-image-manager --debug data-source --listen $(POD_IP):8000 --sync-listen $(POD_IP):8001 --disk-uuid d1 " +
			"--name iso --uuid " + imageUUID + " --source-type download " + tt.want + " --checksum sum"
		if got := strings.Join(pod.Spec.Containers[0].Args, " "); got != want {
			t.Errorf("%s:\n%s, want\n%s", tt.url, got, want)
		}
		if pod.Name != "backing-image-ds-iso" || pod.Labels["longhorn.io/backing-image-data-source"] != "iso" ||
			pod.Labels["longhorn.io/component"] != "backing-image-data-source" || pod.Spec.Volumes[0].HostPath.Path != "/p" {
			t.Errorf("%+v", pod)
		}
	}
}
