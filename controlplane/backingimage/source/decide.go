package source

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

const (
	// askEvery is the longest pause between questions to a process about its file, askFirst the
	// shortest; an askShare of the Pod's age is between them.
	askEvery = 2 * time.Second
	askFirst = 250 * time.Millisecond
	askShare = 8
	// certificateRetry is how soon a Pod that waits for a certificate is decided again.
	certificateRetry = 2 * time.Second
)

// notStarted is what is told of a data source before it has a Pod.
const notStarted = "the Pod that makes the file is not started yet"

// seen is what decide looks at besides the data source.
type seen struct {
	// Disk is the disk of the data source; nil if no node reports it.
	Disk *backingimage.Disk
	// Pod has the data source's name for Pods; nil if there is none.
	Pod *corev1.Pod
	// File is what the Pod's process says of the file; nil: it does not answer.
	File *file
	// Manager is the manager of the disk; nil if there is none.
	Manager *v1beta2.BackingImageManager
	// Image is what the Pod runs; Settings are baked into it.
	Image     string
	Settings  instancemanager.PodSettings
	Plaintext instancemanager.Plaintext
	// StartNotBefore is the end of the pause after Pods that ended.
	StartNotBefore time.Time
	// Export is of a data source that exports a volume, Clone of one that clones an image, Restore of
	// one that restores a backup.
	Export  exported
	Clone   cloned
	Restore restored
	// Tried is how the last order to this Pod, or to send to it, has ended.
	Tried attempt
	// Owner is the leader's node.
	Owner string
}

// file is a file as the process of a data source shows it.
type file struct {
	State           string `json:"state"`
	Progress        int    `json:"progress"`
	Size            int64  `json:"size"`
	CurrentChecksum string `json:"currentChecksum"`
	Message         string `json:"message"`
}

// decide is table "source" of docs/design/backing-images.md.
func decide(now time.Time, d *v1beta2.BackingImageDataSource, s seen) loop.Decision {
	p := &pass{now: now, d: d, s: s}
	st := &d.Status
	st.OwnerID = s.Owner
	switch taken := p.inManager(); {
	case d.DeletionTimestamp != nil:
		return p.end()
	case d.Spec.FileTransferred:
		return p.over()
	case taken.State == v1beta2.BackingImageStateReady:
		c := d.DeepCopy()
		c.Spec.FileTransferred = true
		return loop.Decision{Do: loop.Update{Object: c}, Events: []loop.Event{{Reason: naming.EventFetched,
			Message: "the backing image manager of disk " + d.Spec.DiskUUID + " has taken the file over"}}}
	case admission.RefusedSource(d.Spec.SourceType) != "":
		p.failed(admission.RefusedSource(d.Spec.SourceType))
		return loop.Decision{}
	case s.Disk == nil || !s.Disk.Up || s.Disk.Node != d.Spec.NodeID:
		return p.away()
	case s.Pod == nil:
		return p.start(taken)
	}
	return p.observe()
}

// pass is one judgement of a data source.
type pass struct {
	now time.Time
	d   *v1beta2.BackingImageDataSource
	s   seen
}

// inManager is the file as the manager of the disk has it; without a UUID: it does not know it.
func (p *pass) inManager() v1beta2.BackingImageFileInfo {
	if p.s.Manager == nil {
		return v1beta2.BackingImageFileInfo{}
	}
	f := p.s.Manager.Status.BackingImageFileMap[p.d.Name]
	if f.UUID != p.d.Spec.UUID {
		return v1beta2.BackingImageFileInfo{}
	}
	return f
}

func (p *pass) own() bool {
	return slices.ContainsFunc(p.s.Pod.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == p.d.UID })
}

// end lets the object go after its Pod, which writes to the disk.
func (p *pass) end() loop.Decision {
	if p.s.Pod != nil && p.own() {
		return loop.Decision{Do: loop.Delete{Object: p.s.Pod}}
	}
	if d := p.release(); d.Do != nil {
		return d
	}
	c := p.d.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return loop.Decision{}
	}
	return loop.Decision{Do: loop.Update{Object: c}}
}

// over is a data source whose file was taken over: it needs no Pod any more.
func (p *pass) over() loop.Decision {
	st := &p.d.Status
	st.CurrentState, st.Progress, st.Message, st.IP, st.StorageIP = v1beta2.BackingImageStateReady, 100, "", "", ""
	if p.s.Pod != nil && p.own() {
		return loop.Decision{Do: loop.Delete{Object: p.s.Pod}}
	}
	return p.release()
}

func (p *pass) failed(message string) {
	st := &p.d.Status
	st.CurrentState, st.Message, st.IP, st.StorageIP = v1beta2.BackingImageStateFailed, message, "", ""
}

// away is a data source that cannot be asked. One that has failed stays so.
func (p *pass) away() loop.Decision {
	st := &p.d.Status
	st.IP, st.StorageIP = "", ""
	if st.CurrentState != v1beta2.BackingImageStateFailed {
		st.CurrentState = v1beta2.BackingImageStateUnknown
		st.Message = "disk " + p.d.Spec.DiskUUID + " of node " + p.d.Spec.NodeID + " is not ready"
	}
	if p.s.Disk == nil || p.s.Disk.Up { // the disk is gone, or elsewhere: nobody goes on with it
		p.failed("node " + p.d.Spec.NodeID + " does not have disk " + p.d.Spec.DiskUUID + " any more")
		return p.release()
	}
	return loop.Decision{}
}

// start makes the Pod, once the manager of the disk notes what may lie there: whatever becomes of
// the Pod, it is removed with the image.
func (p *pass) start(taken v1beta2.BackingImageFileInfo) loop.Decision {
	st := &p.d.Status
	st.IP, st.StorageIP = "", ""
	if st.CurrentState != v1beta2.BackingImageStateFailed {
		// Who uploads waits until nothing is said here: then the process waits for him.
		st.CurrentState, st.Message, st.Progress = v1beta2.BackingImageStatePending, notStarted, 0
	}
	running := p.s.Manager != nil && p.s.Manager.Status.CurrentState == v1beta2.BackingImageManagerStateRunning
	switch {
	case (!running || taken.UUID == "") && st.CurrentState == v1beta2.BackingImageStateFailed:
		return loop.Decision{} // why it has failed stays to be seen
	case !running || taken.UUID == "":
		st.Message = "the backing image manager of disk " + p.d.Spec.DiskUUID + " is not ready yet"
		return loop.Decision{}
	case taken.State != v1beta2.BackingImageStateNew:
		return loop.Decision{} // it takes the file over, or removes a former one; its end wakes
	case p.s.Plaintext.Wait:
		return loop.Decision{After: certificateRetry}
	case p.now.Before(p.s.StartNotBefore):
		return loop.Decision{After: p.s.StartNotBefore.Sub(p.now)}
	}
	if ordered(p.d) {
		if d, ready := p.hold(); !ready {
			return d
		}
	}
	pod := podFor(p.d, p.parameters(), p.s.Image, p.s.Settings)
	p.s.Plaintext.Apply(pod)
	return loop.Decision{Do: loop.Create{Object: pod}, FailureReason: naming.EventFailedStarting}
}

// observe follows the Pod and what its process says.
func (p *pass) observe() loop.Decision {
	pod, st := p.s.Pod, &p.d.Status
	ready := instancemanager.PodReady(pod) && instancemanager.StorageIP(pod) != ""
	st.IP, st.StorageIP = "", ""
	switch {
	case !p.own() || pod.DeletionTimestamp != nil:
		return loop.Decision{} // its end wakes
	case instancemanager.PodEnded(pod):
		if st.CurrentState != v1beta2.BackingImageStateFailed {
			st.CurrentState, st.Message = v1beta2.BackingImageStatePending, notStarted
		}
		return loop.Decision{Do: loop.Delete{Object: pod}}
	case !ready:
		if st.CurrentState != v1beta2.BackingImageStateFailed {
			st.CurrentState, st.Message = v1beta2.BackingImageStateStarting, condition.PodProblem(pod)
		}
		return loop.Decision{}
	case p.s.File == nil:
		return loop.Decision{After: p.askAfter()}
	}
	f := p.s.File
	st.IP, st.StorageIP = pod.Status.PodIP, instancemanager.StorageIP(pod)
	st.CurrentState, st.Message = v1beta2.BackingImageState(f.State), f.Message
	st.Progress, st.Size, st.Checksum = f.Progress, f.Size, f.CurrentChecksum
	st.RunningParameters = p.parameters()
	if !ordered(p.d) {
		return loop.Decision{After: p.askAfter()}
	}
	return p.follow()
}

// askAfter is the pause before the next question to the process. It grows with the Pod's age: a
// small file is made at once, and one that takes minutes is not asked for often.
func (p *pass) askAfter() time.Duration {
	return min(askEvery, max(askFirst, p.now.Sub(p.s.Pod.CreationTimestamp.Time)/askShare))
}

// follow has sent what an export or a clone waits for, gives a restore its order, and drops what is
// not needed any more.
func (p *pass) follow() loop.Decision {
	d := loop.Decision{}
	switch p.d.Status.CurrentState {
	case v1beta2.BackingImageStatePending:
		return p.send()
	case v1beta2.BackingImageStateReadyForTransfer, v1beta2.BackingImageStateReady, v1beta2.BackingImageStateFailed:
		d = p.release()
	default:
		if exports(p.d) {
			d = p.ticket(true) // the volume stays attached, where it is now
		}
	}
	if d.Do == nil {
		d.After = p.askAfter()
	}
	return d
}
