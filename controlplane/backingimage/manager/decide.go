package manager

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

const (
	// lostRetry is how soon a running Pod is looked at again whose process does not answer; its
	// watch usually wakes earlier.
	lostRetry = 5 * time.Second
	// certificateRetry is how soon a Pod that waits for a certificate is decided again: a Secret
	// wakes nobody.
	certificateRetry = 2 * time.Second
)

// seen is what decide looks at besides the manager.
type seen struct {
	// Disk is the disk of the manager; nil if no node reports it.
	Disk *backingimage.Disk
	// Pod has the name of the manager; nil if there is none.
	Pod *corev1.Pod
	// Files are those on the disk, as the Pod's process says now; nil while that is not known.
	Files *listing
	// Others: another manager's Pod has the disk.
	Others bool
	// Images are those of spec and status, by name.
	Images map[string]image
	// DefaultImage is what new Pods run; Settings are baked into them.
	DefaultImage string
	Settings     instancemanager.PodSettings
	Plaintext    instancemanager.Plaintext
	// Mounts: a backup target is a share, which Pods have to be allowed to mount.
	Mounts bool
	// StartNotBefore is the end of the pause after Pods that ended.
	StartNotBefore time.Time
	// Owner is the leader's node.
	Owner string
}

// image is what is known of one image elsewhere.
type image struct {
	// Checksum and Size are those of the image; empty and 0: not known yet.
	Checksum string
	Size     int64
	// Source makes the first file; nil: there is none.
	Source *v1beta2.BackingImageDataSource
	// Senders are the addresses of managers that have the file, the least busy one first.
	Senders []string
	// Used: a replica on the disk has the file open.
	Used bool
	// Tried is what is remembered of orders for the file in spec, and Dropped of that in status.
	Tried, Dropped attempts
}

// decide is table "manager" of docs/design/backing-images.md.
func decide(now time.Time, m *v1beta2.BackingImageManager, s seen) loop.Decision {
	p := &pass{now: now, m: m, s: s}
	if m.DeletionTimestamp != nil {
		return p.end()
	}
	p.observe()
	switch {
	case m.Spec.Image != s.DefaultImage && s.DefaultImage != "":
		return loop.Decision{Do: loop.Delete{Object: m}} // the files stay, for the manager of the new image
	case s.Disk == nil && len(m.Spec.BackingImages) == 0:
		return loop.Decision{Do: loop.Delete{Object: m}} // nobody can reach what may lie there
	case s.Disk == nil:
		return loop.Decision{}
	case m.Spec.NodeID != s.Disk.Node || m.Spec.DiskPath != s.Disk.Path:
		return p.move()
	}
	if d, done := p.pod(); done {
		return d
	}
	return p.files()
}

// pass is one judgement of a manager.
type pass struct {
	now time.Time
	m   *v1beta2.BackingImageManager
	s   seen
	// again is when to look once more, if nothing else wakes.
	again time.Duration
}

// own says whether the Pod was made for this object, and not for a former one of its name.
func (p *pass) own() bool {
	return p.s.Pod != nil && slices.ContainsFunc(p.s.Pod.OwnerReferences, func(
		r metav1.OwnerReference) bool {
		return r.UID == p.m.UID
	})
}

// end lets the object go after its Pod: two processes must not have one disk.
func (p *pass) end() loop.Decision {
	if p.own() {
		return loop.Decision{Do: loop.Delete{Object: p.s.Pod}}
	}
	c := p.m.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}

// move follows a disk that another node has now.
func (p *pass) move() loop.Decision {
	c := p.m.DeepCopy()
	c.Spec.NodeID, c.Spec.DiskPath = p.s.Disk.Node, p.s.Disk.Path
	c.Labels = naming.BackingImageManagerLabels(p.s.Disk.Node, p.m.Spec.DiskUUID)
	return loop.Decision{Do: loop.Update{Object: c}}
}

// observe writes what is seen into the status.
func (p *pass) observe() {
	st := &p.m.Status
	st.OwnerID = p.s.Owner
	before := st.CurrentState
	st.CurrentState = p.state()
	st.IP, st.StorageIP = "", ""
	if st.CurrentState == v1beta2.BackingImageManagerStateRunning {
		st.IP, st.StorageIP = p.s.Pod.Status.PodIP, instancemanager.StorageIP(p.s.Pod)
		st.APIVersion, st.APIMinVersion = p.s.Files.apiVersion, p.s.Files.apiMinimum
	}
	if st.BackingImageFileMap == nil {
		st.BackingImageFileMap = map[string]v1beta2.BackingImageFileInfo{}
	}
	for name, uuid := range p.m.Spec.BackingImages {
		// Another life of the name is deleted before this one begins.
		if known, there := st.BackingImageFileMap[name]; !there || known.UUID == uuid {
			st.BackingImageFileMap[name] = p.file(name, uuid, known)
		}
	}
	for name, known := range st.BackingImageFileMap {
		if p.m.Spec.BackingImages[name] != known.UUID && p.s.Images[name].Dropped.deleted {
			delete(st.BackingImageFileMap, name)
		}
	}
	if before == "" && st.CurrentState == v1beta2.BackingImageManagerStateStopped && len(st.BackingImageFileMap) == 0 {
		st.BackingImageFileMap = map[string]v1beta2.BackingImageFileInfo{}
	}
}

// file is what there is to tell of a file: what the process says, or that nobody can say it. A file
// that has failed stays so while nobody can.
func (p *pass) file(name, uuid string, known v1beta2.BackingImageFileInfo) v1beta2.BackingImageFileInfo {
	if p.m.Status.CurrentState == v1beta2.BackingImageManagerStateRunning {
		if f, there := p.s.Files.files[fileID{name, uuid}]; there {
			return f
		}
		return v1beta2.BackingImageFileInfo{Name: name, UUID: uuid}
	}
	known.Name, known.UUID, known.SendingReference = name, uuid, 0
	if known.State != v1beta2.BackingImageStateNew && known.State != v1beta2.BackingImageStateFailed {
		known.State = v1beta2.BackingImageStateUnknown
		known.Message = "the backing image manager of the disk is " + string(p.m.Status.CurrentState)
	}
	return known
}

// state follows disk, Pod and process.
func (p *pass) state() v1beta2.BackingImageManagerState {
	pod, before := p.s.Pod, p.m.Status.CurrentState
	switch {
	case p.s.Disk == nil || !p.s.Disk.Up:
		return v1beta2.BackingImageManagerStateUnknown
	case pod == nil && (before == "" || before == v1beta2.BackingImageManagerStateStopped):
		return v1beta2.BackingImageManagerStateStopped
	case pod == nil || !p.own() || pod.DeletionTimestamp != nil || instancemanager.PodEnded(pod) ||
		pod.Spec.NodeName != p.s.Disk.Node:
		return v1beta2.BackingImageManagerStateError
	case !instancemanager.PodReady(pod) || instancemanager.StorageIP(pod) == "":
		return v1beta2.BackingImageManagerStateStarting
	case p.s.Files == nil && before == v1beta2.BackingImageManagerStateRunning,
		p.s.Files == nil && before == v1beta2.BackingImageManagerStateUnknown:
		return v1beta2.BackingImageManagerStateUnknown // the process does not answer
	case p.s.Files == nil:
		return v1beta2.BackingImageManagerStateStarting
	}
	return v1beta2.BackingImageManagerStateRunning
}

// pod keeps the Pod: one that has ended, is elsewhere or differs from the settings or in its rights
// goes, a missing one comes. Not done: it runs.
func (p *pass) pod() (d loop.Decision, done bool) {
	pod := p.s.Pod
	switch {
	case !p.s.Disk.Up:
		return loop.Decision{}, true
	case pod != nil && (!p.own() || pod.DeletionTimestamp != nil):
		return loop.Decision{}, true // its end wakes
	case pod != nil && (instancemanager.PodEnded(pod) || pod.Spec.NodeName != p.s.Disk.Node):
		return loop.Decision{Do: loop.Delete{Object: pod}}, true
	case pod != nil && (len(p.s.Settings.Drift(pod)) > 0 || backingimage.MayMount(pod) != p.s.Mounts) && !p.busy():
		return loop.Decision{Do: loop.Delete{Object: pod}}, true
	case pod != nil:
		running := p.m.Status.CurrentState == v1beta2.BackingImageManagerStateRunning
		return loop.Decision{After: lostRetry}, !running
	case len(p.m.Spec.BackingImages) == 0 && len(p.m.Status.BackingImageFileMap) == 0:
		return loop.Decision{Do: loop.Delete{Object: p.m}}, true
	case p.s.Others:
		return loop.Decision{After: lostRetry}, true
	case p.s.Plaintext.Wait:
		return loop.Decision{After: certificateRetry}, true
	case p.now.Before(p.s.StartNotBefore):
		return loop.Decision{After: p.s.StartNotBefore.Sub(p.now)}, true
	}
	next := podFor(p.m, p.s.Settings, p.s.Mounts)
	p.s.Plaintext.Apply(next)
	return loop.Decision{Do: loop.Create{Object: next}, FailureReason: naming.EventFailedStarting}, true
}

// busy says whether a file is being made or sent: a Pod that only differs from the settings waits.
func (p *pass) busy() bool {
	if p.s.Files == nil {
		return false
	}
	for _, f := range p.s.Files.files {
		if under(f.State) || f.SendingReference > 0 {
			return true
		}
	}
	return false
}

// under says whether a file is being made.
func under(state v1beta2.BackingImageState) bool {
	switch state {
	case v1beta2.BackingImageStatePending, v1beta2.BackingImageStateStarting, v1beta2.BackingImageStateInProgress:
		return true
	}
	return false
}

// files gives the process its next order.
func (p *pass) files() loop.Decision {
	st := &p.m.Status
	for _, name := range slices.Sorted(maps.Keys(st.BackingImageFileMap)) {
		f := st.BackingImageFileMap[name]
		if p.m.Spec.BackingImages[name] != f.UUID {
			return p.remove(name, f.UUID)
		}
	}
	if len(p.m.Spec.BackingImages) == 0 {
		return loop.Decision{Do: loop.Delete{Object: p.m}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.m.Spec.BackingImages)) {
		if d := p.make(name, st.BackingImageFileMap[name]); d.Do != nil {
			return d
		}
	}
	return loop.Decision{After: p.again}
}

// make orders what brings a file to the disk, or another attempt.
func (p *pass) make(name string, f v1beta2.BackingImageFileInfo) loop.Decision {
	absent, failed := f.State == v1beta2.BackingImageStateNew, f.State == v1beta2.BackingImageStateFailed
	if !absent && !failed || p.m.Spec.BackingImages[name] != f.UUID {
		return loop.Decision{}
	}
	i := p.s.Images[name]
	source := i.Source
	first := source != nil && !source.Spec.FileTransferred
	ready := first && source.Status.CurrentState == v1beta2.BackingImageStateReadyForTransfer && source.Status.IP != ""
	mine := first && source.Spec.DiskUUID == p.m.Spec.DiskUUID
	var why string
	switch {
	case mine && ready:
		why = "fetch"
	case mine && failed && source.Status.IP == "" && !i.Used:
		return p.remove(name, f.UUID) // the source begins when nothing is in its way
	case !first && len(i.Senders) > 0 && absent:
		why = "sync"
	case !first && len(i.Senders) > 0 && !i.Used:
		why = "again"
	default:
		return loop.Decision{}
	}
	if wait := i.Tried.notBefore.Sub(p.now); wait > 0 && !(absent && i.Tried.deleted) {
		p.wakeIn(wait)
		return loop.Decision{}
	}
	switch why {
	case "fetch":
		return p.fetch(name, f.UUID, source)
	case "sync":
		return p.sync(name, f.UUID, i)
	}
	return p.remove(name, f.UUID) // a damaged file may lie there; the next step copies
}

func (p *pass) wakeIn(d time.Duration) {
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

func (p *pass) fetch(name, uuid string, source *v1beta2.BackingImageDataSource) loop.Decision {
	of := content{fileID{name, uuid}, source.Status.Size, source.Status.Checksum}
	return loop.Decision{
		Do: loop.Call{What: "take over backing image " + name + " on disk " + p.m.Spec.DiskUUID,
			Order: fetchOrder{p.m.Status.IP, backingimage.Address(source.Status.IP), of}},
		Events: []loop.Event{{Reason: naming.EventFetching, Message: "taking over the file of backing image " + name +
			" from its data source"}},
		FailureReason: naming.EventFailed, After: lostRetry,
	}
}

func (p *pass) sync(name, uuid string, i image) loop.Decision {
	from := i.Senders[0]
	return loop.Decision{
		Do: loop.Call{What: "copy backing image " + name + " to disk " + p.m.Spec.DiskUUID + " from " + from,
			Order: syncOrder{p.m.Status.IP, from, content{fileID{name, uuid}, i.Size, i.Checksum}}},
		Events: []loop.Event{{Reason: naming.EventSyncing, Message: "copying the file of backing image " + name + " from " +
			from}},
		FailureReason: naming.EventFailed, After: lostRetry,
	}
}

func (p *pass) remove(name, uuid string) loop.Decision {
	return loop.Decision{
		Do: loop.Call{What: "delete backing image " + name + "-" + uuid + " from disk " + p.m.Spec.DiskUUID,
			Order: deleteOrder{p.m.Status.IP, fileID{name, uuid}}},
		FailureReason: naming.EventFailedDeleting, After: time.Second,
	}
}
