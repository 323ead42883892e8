package volume

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/clone"
)

// creating makes the objects that a volume consists of, and their keys. It is the part of a pass
// that ensureObjects stands for.
type creating struct{ *pass }

// ensureObjects makes what every volume has: finalizer, attachment object, master key, engine, and
// on a new volume its replicas.
//
// Crash windows: after each creation the next pass finds the object and makes the next one. Names
// of engine and attachment are fixed, so nothing is made twice; replicas are counted, and
// the loop never counts in a cache older than its own last write.
func (p creating) ensureObjects() loop.Change {
	v := p.v
	if v.Status.State == v1beta2.VolumeStateNew {
		v.Status.State = v1beta2.VolumeStateCreating
		v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
	}
	if v.Status.CurrentImage == "" {
		v.Status.CurrentImage = p.image
	}
	if c := v.DeepCopy(); addFinalizer(c) {
		return loop.Update{Object: c}
	}
	if p.s.Attachment == nil {
		return loop.Create{Object: p.newAttachment()}
	}
	p.keepKey()
	if p.engine == nil {
		return loop.Create{Object: p.newEngine()}
	}
	if v.Status.State != v1beta2.VolumeStateCreating {
		return nil
	}
	if have, want := len(p.live()), clone.Replicas(v); have < want {
		p.changeEvents = []loop.Event{{Reason: naming.EventCreate,
			Message: fmt.Sprintf("Creating replica %d of %d", have+1, want)}}
		return loop.Create{Object: p.newReplica("", 0)}
	}
	return nil
}

func (p creating) meta(name string, finalizer bool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: p.v.Namespace, Name: name, Labels: naming.VolumeLabels(p.v.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1beta2.GroupVersion.String(), Kind: "Volume", Name: p.v.Name, UID: p.v.UID,
		}},
	}
	if finalizer {
		m.Finalizers = []string{v1beta2.Finalizer}
	}
	return m
}

func (p creating) newAttachment() *v1beta2.VolumeAttachment {
	return &v1beta2.VolumeAttachment{
		ObjectMeta: p.meta(p.v.Name, true),
		Spec:       v1beta2.VolumeAttachmentSpec{Volume: p.v.Name, AttachmentTickets: p.heldTickets()},
	}
}

func (p creating) instanceSpec() v1beta2.InstanceSpec {
	v := p.v
	return v1beta2.InstanceSpec{
		VolumeName: v.Name, VolumeSize: v.DeviceBytes(), Image: p.image, DesireState: v1beta2.InstanceStateStopped,
		RevisionCounterDisabled: v.Spec.RevisionCounterDisabled, SnapshotMaxCount: p.snapshotMaxCount(),
		SnapshotMaxSize: p.snapshotMaxSize(), DataEngine: v1beta2.DataEngineTypeV1,
	}
}

func (p *pass) snapshotMaxCount() int {
	if p.v.Spec.SnapshotMaxCount != 0 {
		return p.v.Spec.SnapshotMaxCount
	}
	return p.s.Settings.Int(setting.SnapshotMaxCount)
}

// rebuildConcurrency is how many of a rebuild's steps go on at once.
func (p *pass) rebuildConcurrency() int {
	if own := p.v.Spec.RebuildConcurrentSyncLimit; own != 0 {
		return own
	}
	return p.s.Settings.Int(setting.ReplicaRebuildConcurrentSyncLimit)
}

func (p *pass) trimMarksRemoved() bool {
	return p.v.Spec.UnmapMarkSnapChainRemoved.Or(p.s.Settings.Bool(setting.RemoveSnapshotsDuringFilesystemTrim))
}

func (p creating) newEngine() *v1beta2.Engine {
	return &v1beta2.Engine{
		ObjectMeta: p.meta(naming.EngineName(p.v.Name, 0), true),
		Spec: v1beta2.EngineSpec{
			InstanceSpec: p.instanceSpec(), Active: true, Frontend: p.v.Spec.Frontend, DisableFrontend: p.v.Spec.DisableFrontend,
			RebuildConcurrentSyncLimit:       p.rebuildConcurrency(),
			ReplicaRebuildingBandwidthLimit:  p.v.Spec.ReplicaRebuildingBandwidthLimit,
			UnmapMarkSnapChainRemovedEnabled: p.trimMarksRemoved(), ReplicaAddressMap: map[string]string{},
		},
	}
}

// newReplica describes a replica without a place, of the engine's image: an attached volume of
// which another image is wanted runs on with its present one, and only replicas of that are
// started. retries is where its count of failed rebuilds starts: a replica that replaces another is
// not worth reusing if its first rebuild fails.
func (p creating) newReplica(hardNode string, retries int) *v1beta2.Replica {
	engine, spec := naming.EngineName(p.v.Name, 0), p.instanceSpec()
	if p.engine != nil {
		engine, spec.Image = p.engine.Name, p.engine.Spec.Image
	}
	return &v1beta2.Replica{
		ObjectMeta: p.meta(naming.ReplicaName(p.v.Name, p.s.Suffixes[0]), true),
		Spec: v1beta2.ReplicaSpec{
			InstanceSpec: spec, Active: true, EngineName: engine, BackingImage: p.v.Spec.BackingImage,
			HardNodeAffinity: hardNode, RebuildRetryCount: retries, UnmapMarkDiskChainRemovedEnabled: p.trimMarksRemoved(),
		},
	}
}

// upgradeDetached gives a detached volume's engine and replicas the image that the volume wants, at
// once.
func (p upgrading) upgradeDetached() loop.Change {
	v := p.v
	if v.Status.State != v1beta2.VolumeStateDetached || !p.closed() || p.upgradeUnderWay() {
		return nil
	}
	if p.engine.Spec.Image != p.image {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.Image, s.EngineImage = p.image, "" })
	}
	for _, r := range p.live() {
		if r.Spec.Image != p.image {
			return editReplica(r, func(s *v1beta2.ReplicaSpec) { s.Image, s.EngineImage = p.image, "" })
		}
	}
	if v.Status.CurrentImage == p.image {
		return nil
	}
	v.Status.CurrentImage = p.image
	p.events = append(p.events, loop.Event{Reason: naming.EventUpgrade,
		Message: "Upgraded the engine of the detached volume to " + p.image})
	return nil
}
