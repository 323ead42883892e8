package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uuid = "0a1b2c3d"

type info = v1beta2.BackingImageFileInfo

// told is an order in a few words.
func told(order any) string {
	switch o := order.(type) {
	case fetchOrder:
		return strings.Join([]string{"fetch", o.File.name, o.File.uuid, o.File.Checksum, "from", o.Source, "at", o.IP}, " ")
	case syncOrder:
		return strings.Join([]string{"sync", o.File.name, o.File.uuid, o.File.Checksum, "from", o.From, "at", o.IP}, " ")
	case deleteOrder:
		return strings.Join([]string{"delete", o.File.name, o.File.uuid, "at", o.IP}, " ")
	}
	return fmt.Sprintf("%T", order)
}

type scene struct {
	m *v1beta2.BackingImageManager
	s seen
}

// newScene is a manager of disk d1 that runs and is to have image iso.
func newScene(edits ...func(*scene)) *scene {
	c := &scene{
		m: &v1beta2.BackingImageManager{ObjectMeta: metav1.ObjectMeta{Name: "bim-1", Namespace: "ns", UID: "u1",
			Finalizers: []string{v1beta2.Finalizer}},
			Spec: v1beta2.BackingImageManagerSpec{Image: "bim", NodeID: "n1", DiskUUID: "d1", DiskPath: "/p",
				BackingImages: map[string]string{"iso": uuid}},
			Status: v1beta2.BackingImageManagerStatus{BackingImageFileMap: map[string]info{}}},
		s: seen{Disk: &backingimage.Disk{UUID: "d1", Path: "/p", Node: "n1", Up: true}, DefaultImage: "bim", Owner: "n9",
			Files:  &listing{files: map[fileID]info{}, apiVersion: 3, apiMinimum: 3},
			Images: map[string]image{"iso": {Checksum: "sum", Size: 7}}},
	}
	c.s.Pod = podFor(c.m, c.s.Settings, false)
	c.s.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
	for _, e := range edits {
		e(c)
	}
	return c
}

func noPod(c *scene) { c.s.Pod, c.s.Files = nil, nil }

// file has the process list the file of image iso.
func file(state v1beta2.BackingImageState) func(*scene) {
	return func(c *scene) { c.s.Files.files[fileID{"iso", uuid}] = info{Name: "iso", UUID: uuid, State: state} }
}

// image changes what is known of image iso.
func known(edit func(*image)) func(*scene) {
	return func(c *scene) {
		i := c.s.Images["iso"]
		edit(&i)
		c.s.Images["iso"] = i
	}
}

var sender = known(func(i *image) { i.Senders = []string{"10.0.0.2:8000", "10.0.0.3:8000"} })

func source(disk string, state v1beta2.BackingImageState, ip string) func(*scene) {
	return known(func(i *image) {
		i.Source = &v1beta2.BackingImageDataSource{
			Spec:   v1beta2.BackingImageDataSourceSpec{DiskUUID: disk, UUID: uuid},
			Status: v1beta2.BackingImageDataSourceStatus{CurrentState: state, IP: ip, Checksum: "made", Size: 9}}
	})
}

var transferred = known(func(i *image) {
	i.Source = &v1beta2.BackingImageDataSource{Spec: v1beta2.BackingImageDataSourceSpec{UUID: uuid, FileTransferred: true}}
})

var used = known(func(i *image) { i.Used = true })

func tried(ago time.Duration, deleted bool) func(*scene) {
	return known(func(i *image) { i.Tried = attempts{count: 1, notBefore: t0.Add(firstPause - ago), deleted: deleted} })
}

func (c *scene) outcome(d loop.Decision) string {
	what := "wait"
	switch do := d.Do.(type) {
	case loop.Create:
		what = "create the Pod"
	case loop.Update:
		o := do.Object.(*v1beta2.BackingImageManager)
		what = "update: " + strings.Join(append(o.Finalizers, o.Spec.NodeID, o.Spec.DiskPath), " ")
	case loop.Delete:
		what = "delete the object"
		if _, pod := do.Object.(*corev1.Pod); pod {
			what = "delete the Pod"
		}
	case loop.Call:
		return told(do.Order)
	}
	if d.After > 0 {
		what += " after " + d.After.String()
	}
	return what
}

// TestDecide is table "manager" of docs/design/backing-images.md.
func TestDecide(t *testing.T) {
	const remove = "delete iso " + uuid + " at 10.0.0.1"
	for _, tt := range []struct {
		name  string
		edits []func(*scene)
		want  string
	}{
		{"no Pod", []func(*scene){noPod}, "create the Pod"},
		{"no Pod, disk not ready", []func(*scene){noPod, func(c *scene) { c.s.Disk.Up = false }}, "wait"},
		{"no Pod, too early", []func(*scene){noPod, func(c *scene) { c.s.StartNotBefore = t0.Add(time.Second) }},
			"wait after 1s"},
		{"no Pod, another one has the disk", []func(*scene){noPod, func(c *scene) { c.s.Others = true }}, "wait after 5s"},
		{"no Pod, no certificate", []func(*scene){noPod, func(c *scene) { c.s.Plaintext.Wait = true }}, "wait after 2s"},
		{"no Pod, nothing to do", []func(*scene){noPod, func(c *scene) { c.m.Spec.BackingImages = nil }},
			"delete the object"},
		{"no Pod, a file to delete", []func(*scene){noPod, func(c *scene) {
			c.m.Spec.BackingImages, c.m.Status.BackingImageFileMap["iso"] = nil, info{UUID: uuid}
		}}, "create the Pod"},
		{"Pod of another object", []func(*scene){func(c *scene) { c.s.Pod.OwnerReferences[0].UID = "u0" }}, "wait"},
		{"Pod being deleted", []func(*scene){func(c *scene) { c.s.Pod.DeletionTimestamp = &metav1.Time{Time: t0} }}, "wait"},
		{"Pod ended", []func(*scene){func(c *scene) { c.s.Pod.Status.Phase = corev1.PodFailed }}, "delete the Pod"},
		{"Pod on another node", []func(*scene){func(c *scene) { c.s.Pod.Spec.NodeName = "n2" }}, "delete the Pod"},
		{"Pod not ready", []func(*scene){func(c *scene) { c.s.Pod.Status.ContainerStatuses = nil }}, "wait after 5s"},
		{"process does not answer", []func(*scene){func(c *scene) { c.s.Files = nil }}, "wait after 5s"},
		{"settings have changed", []func(*scene){func(c *scene) { c.s.Settings.PriorityClass = "high" }}, "delete the Pod"},
		{"settings have changed, a copy comes", []func(*scene){file("in-progress"),
			func(c *scene) { c.s.Settings.PriorityClass = "high" }}, "wait"},
		{"disk on another node", []func(*scene){func(c *scene) { c.s.Disk.Node, c.s.Disk.Path = "n2", "/q" }},
			"update: longhorn.io n2 /q"},
		{"disk gone", []func(*scene){func(c *scene) { c.s.Disk = nil }}, "wait"},
		{"disk gone, nothing wanted", []func(*scene){func(c *scene) { c.s.Disk, c.m.Spec.BackingImages = nil, nil }},
			"delete the object"},
		{"another version runs", []func(*scene){func(c *scene) { c.s.DefaultImage = "bim:2" }}, "delete the object"},
		{"deleted", []func(*scene){deleted}, "delete the Pod"},
		{"deleted, no Pod", []func(*scene){deleted, noPod}, "update: n1 /p"},

		{"no file, nothing to make it from", nil, "wait"},
		{"no file, the source works", []func(*scene){source("d1", "in-progress", "10.0.0.9")}, "wait"},
		{"no file, the source is ready", []func(*scene){source("d1", "ready-for-transfer", "10.0.0.9")},
			"fetch iso " + uuid + " made from 10.0.0.9:8000 at 10.0.0.1"},
		{"no file, the source of another disk is ready", []func(*scene){source("d2", "ready-for-transfer", "10.0.0.9"),
			sender},
			"wait"},
		{"no file, another disk has it", []func(*scene){transferred, sender},
			"sync iso " + uuid + " sum from 10.0.0.2:8000 at 10.0.0.1"},
		{"no file, no source, another disk has it", []func(*scene){sender},
			"sync iso " + uuid + " sum from 10.0.0.2:8000 at 10.0.0.1"},
		{"no file, tried just now", []func(*scene){transferred, sender, tried(4*time.Second, false)}, "wait after 6s"},
		{"no file, tried long ago", []func(*scene){transferred, sender, tried(time.Minute, false)},
			"sync iso " + uuid + " sum from 10.0.0.2:8000 at 10.0.0.1"},
		{"deleted to be made again", []func(*scene){transferred, sender, tried(0, true)},
			"sync iso " + uuid + " sum from 10.0.0.2:8000 at 10.0.0.1"},
		{"it comes", []func(*scene){file("in-progress"), transferred, sender}, "wait"},
		{"it is there", []func(*scene){file("ready"), transferred, sender}, "wait"},
		{"failed", []func(*scene){file("failed"), transferred, sender, tried(time.Minute, false)}, remove},
		{"failed, tried just now", []func(*scene){file("failed"), transferred, sender, tried(0, false)}, "wait after 10s"},
		{"failed, in use", []func(*scene){file("failed"), transferred, sender, used}, "wait"},
		{"failed, nothing to make it from", []func(*scene){file("failed"), transferred}, "wait"},
		{"failed, the source is to begin", []func(*scene){file("failed"), source("d1", "pending", "")}, remove},
		{"failed, the source is to begin, in use", []func(*scene){file("failed"), source("d1", "pending", ""), used}, "wait"},
		{"failed, the source works", []func(*scene){file("failed"), source("d1", "in-progress", "10.0.0.9")}, "wait"},
		{"failed, the source is ready", []func(*scene){file("failed"), source("d1", "ready-for-transfer", "10.0.0.9")},
			"fetch iso " + uuid + " made from 10.0.0.9:8000 at 10.0.0.1"},
		{"not wanted any more", []func(*scene){file("ready"), func(c *scene) {
			c.m.Spec.BackingImages, c.m.Status.BackingImageFileMap["iso"] = nil, info{UUID: uuid}
		}}, remove},
		{"not wanted any more, gone", []func(*scene){known(func(i *image) { i.Dropped.deleted = true }), func(c *scene) {
			c.m.Spec.BackingImages, c.m.Status.BackingImageFileMap["iso"] = nil, info{UUID: uuid}
		}}, "delete the object"},
		{"another life of the name", []func(*scene){transferred, sender, func(c *scene) {
			c.m.Status.BackingImageFileMap["iso"] = info{UUID: "11111111", State: "ready"}
		}}, "delete iso 11111111 at 10.0.0.1"},
		{"a file that nobody has ordered", []func(*scene){file("ready"), func(c *scene) {
			c.s.Files.files[fileID{"stray", "22222222"}] = info{Name: "stray", UUID: "22222222", State: "ready"}
		}}, "wait"},
	} {
		c := newScene(tt.edits...)
		if got := c.outcome(decide(t0, c.m, c.s)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func deleted(c *scene) { c.m.DeletionTimestamp = &metav1.Time{Time: t0} }

// TestState has the states of a manager, and what becomes of what it said of a file.
func TestState(t *testing.T) {
	for _, tt := range []struct {
		name, before string
		edits        []func(*scene)
		want         string
		file         v1beta2.BackingImageState
	}{
		{"new", "", []func(*scene){noPod}, "stopped", "unknown"},
		{"new Pod", "stopped", []func(*scene){func(c *scene) { c.s.Pod.Status.ContainerStatuses = nil }}, "starting",
			"unknown"},
		{"nothing listed yet", "starting", []func(*scene){func(c *scene) { c.s.Files = nil }}, "starting", "unknown"},
		{"listed", "starting", []func(*scene){file("ready")}, "running", "ready"},
		{"listed, without the file", "running", nil, "running", ""},
		{"connection lost", "running", []func(*scene){func(c *scene) { c.s.Files = nil }}, "unknown", "unknown"},
		{"Pod lost", "running", []func(*scene){noPod}, "error", "unknown"},
		{"Pod ended", "running", []func(*scene){func(c *scene) { c.s.Pod.Status.Phase = corev1.PodFailed }}, "error",
			"unknown"},
		{"disk not ready", "running", []func(*scene){func(c *scene) { c.s.Disk.Up = false }}, "unknown", "unknown"},
		{"disk gone", "running", []func(*scene){func(c *scene) { c.s.Disk = nil }}, "unknown", "unknown"},
		{"storage network, no address there yet", "starting", []func(*scene){func(c *scene) {
			c.s.Settings.StorageNetwork = "net/storage"
			c.s.Pod.Annotations = podFor(c.m, c.s.Settings, false).Annotations
		}}, "starting", "unknown"},
	} {
		c := newScene(tt.edits...)
		c.m.Status.CurrentState = v1beta2.BackingImageManagerState(tt.before)
		c.m.Status.BackingImageFileMap["iso"] = info{Name: "iso", UUID: uuid, State: "ready", Size: 7}
		decide(t0, c.m, c.s)
		st := c.m.Status
		if string(st.CurrentState) != tt.want || st.BackingImageFileMap["iso"].State != tt.file {
			t.Errorf("%s: %s, file %q, want %s and %q", tt.name, st.CurrentState, st.BackingImageFileMap["iso"].State, tt.want,
				tt.file)
		}
		if running := tt.want == "running"; (st.IP == "10.0.0.1") != running || (st.StorageIP == "10.0.0.1") != running {
			t.Errorf("%s: addresses %q and %q", tt.name, st.IP, st.StorageIP)
		}
	}
	c := newScene(noPod)
	c.m.Status.BackingImageFileMap["iso"] = info{Name: "iso", UUID: uuid, State: "failed", Message: "why"}
	decide(t0, c.m, c.s)
	if f := c.m.Status.BackingImageFileMap["iso"]; f.State != "failed" || f.Message != "why" {
		t.Errorf("a failed file of a Pod that is gone: %+v", f)
	}
}

// TestEntryBeforeTheOrder: the status names a file before anything can be ordered that makes it.
func TestEntryBeforeTheOrder(t *testing.T) {
	c := newScene(transferred, sender)
	delete(c.m.Status.BackingImageFileMap, "iso")
	decide(t0, c.m, c.s)
	if f := c.m.Status.BackingImageFileMap["iso"]; f.UUID != uuid {
		t.Errorf("entry %+v", f)
	}
}

// TestStorageAddress: where there is a storage network, data has its address there.
func TestStorageAddress(t *testing.T) {
	c := newScene(file("ready"))
	c.s.Settings.StorageNetwork = "net/storage"
	c.s.Pod.Annotations = podFor(c.m, c.s.Settings, false).Annotations
	c.s.Pod.Annotations[naming.AnnotationNetworkStatus] = `[{"interface":"lhnet1","ips":["10.9.0.1"]}]`
	decide(t0, c.m, c.s)
	if st := c.m.Status; st.IP != "10.0.0.1" || st.StorageIP != "10.9.0.1" {
		t.Errorf("%s, %s", st.IP, st.StorageIP)
	}
}

// TestPod compares the Pod with what the reference says of it.
func TestPod(t *testing.T) {
	c := newScene()
	s := instancemanager.PodSettings{ServiceAccount: "sa", PriorityClass: "high",
		NodeSelector: map[string]string{"a": "b"},
		Tolerations:  []corev1.Toleration{{Key: "k"}}, RegistrySecret: "r", StorageNetwork: "net/storage",
		ImagePullPolicy: corev1.PullAlways}
	pod := podFor(c.m, s, false)
	args := strings.Join(pod.Spec.Containers[0].Args, " ")
	const want = "backing-image-manager --debug daemon --listen $(POD_IP):8000 --sync-listen $(POD_IP):8001 --disk-uuid d1"
	if args != want {
		t.Errorf("arguments %s", args)
	}
	for key, want := range map[string]string{"longhorn.io/component": "backing-image-manager", "longhorn.io/node": "n1",
		"longhorn.io/disk-uuid": "d1", "longhorn.io/managed-by": "longhorn-manager"} {
		if pod.Labels[key] != want {
			t.Errorf("label %s is %q", key, pod.Labels[key])
		}
	}
	mount, volume := pod.Spec.Containers[0].VolumeMounts[0], pod.Spec.Volumes[0]
	if mount.MountPath != "/data/" || volume.HostPath.Path != "/p" || mount.Name != volume.Name {
		t.Errorf("disk %+v, %+v", mount, volume)
	}
	im, shared := instancemanager.BudgetVolume(), 0
	for i, v := range pod.Spec.Volumes {
		if v.Name == im.Name && v.HostPath.Path == "/var/lib/longhorn/backup-bandwidth" &&
			pod.Spec.Containers[0].VolumeMounts[i] == instancemanager.BudgetMount() {
			shared++
		}
	}
	if shared != 1 {
		t.Errorf("the bandwidth of backups is not that of the node: %+v", pod.Spec.Volumes)
	}
	if pod.Name != c.m.Name || pod.Spec.NodeName != "n1" || pod.OwnerReferences[0].Kind != "BackingImageManager" ||
		pod.Spec.PriorityClassName != "high" || pod.Spec.NodeSelector["a"] != "b" || pod.Spec.Tolerations[0].Key != "k" ||
		pod.Spec.ImagePullSecrets[0].Name != "r" || pod.Spec.ServiceAccountName != "sa" ||
		!strings.Contains(pod.Annotations[naming.AnnotationNetworks], "lhnet1") ||
		pod.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("%+v", pod)
	}
	if len(s.Drift(pod)) > 0 || len((instancemanager.PodSettings{}).Drift(pod)) != 4 {
		t.Errorf("drift %v, %v", s.Drift(pod), (instancemanager.PodSettings{}).Drift(pod))
	}
}

// TestMayMount: a Pod may mount shares while a backup target is one, and only then. One that
// differs is replaced while it makes and sends nothing.
func TestMayMount(t *testing.T) {
	mounts := func(c *scene) { c.s.Mounts = true }
	able := func(c *scene) {
		status := c.s.Pod.Status
		c.s.Pod = podFor(c.m, c.s.Settings, true)
		c.s.Pod.Status = status
	}
	sends := func(c *scene) {
		c.s.Files.files[fileID{"iso", uuid}] = info{Name: "iso", UUID: uuid, State: "ready", SendingReference: 1}
	}
	for _, tt := range []struct {
		name  string
		edits []func(*scene)
		want  bool
	}{
		{"no share", []func(*scene){file("ready")}, false},
		{"a share", []func(*scene){file("ready"), mounts}, true},
		{"a share, and it backs up", []func(*scene){sends, mounts}, false},
		{"a share, and it may", []func(*scene){file("ready"), mounts, able}, false},
		{"no share any more", []func(*scene){file("ready"), able}, true},
	} {
		c := newScene(tt.edits...)
		d, isDelete := decide(t0, c.m, c.s).Do.(loop.Delete)
		if pod, isPod := d.Object.(*corev1.Pod); isDelete != tt.want || tt.want && (!isPod || pod != c.s.Pod) {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
	c := newScene(noPod, mounts)
	made, ok := decide(t0, c.m, c.s).Do.(loop.Create)
	if !ok || !backingimage.MayMount(made.Object.(*corev1.Pod)) {
		t.Errorf("made %+v", made)
	}
	security := made.Object.(*corev1.Pod).Spec.Containers[0].SecurityContext
	if security.AllowPrivilegeEscalation != nil || security.Privileged != nil || len(security.Capabilities.Drop) != 1 {
		t.Errorf("%+v", security)
	}
}
