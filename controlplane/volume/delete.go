package volume

import (
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// delete removes a volume's objects: snapshots, then engines, then replicas, then the claim that is
// bound to it and its PersistentVolume, then the attachment object, then the volume's own
// finalizer. The secret goes with its owner. Nobody waits for claim and PersistentVolume:
// Kubernetes keeps them as long as Pods use them.
//
// Crash windows: every step is repeated until the objects are gone. A replica's data is removed
// before its object is.
func (p *pass) delete() loop.Change {
	if p.v.Status.State != v1beta2.VolumeStateDeleting {
		p.tell(false, naming.EventDelete, "Deleting volume %s", p.v.Name)
	}
	p.v.Status.State = v1beta2.VolumeStateDeleting
	if change, wait := p.deleteSnapshots(); wait {
		return change
	}
	for i := range p.s.Engines {
		if e := &p.s.Engines[i]; e.DeletionTimestamp == nil {
			return loop.Delete{Object: e}
		}
	}
	if len(p.s.Engines) > 0 {
		return nil // their processes are being stopped
	}
	for _, r := range p.replicas {
		if r.DeletionTimestamp == nil {
			return loop.Delete{Object: r}
		}
	}
	if len(p.replicas) > 0 {
		return nil // their data is being removed
	}
	if c := p.s.PVC; c != nil && c.DeletionTimestamp == nil {
		return loop.Delete{Object: c}
	}
	if pv := p.s.PV; pv != nil && pv.DeletionTimestamp == nil {
		return loop.Delete{Object: pv}
	}
	if a := p.s.Attachment; a != nil && a.DeletionTimestamp == nil {
		return loop.Delete{Object: a}
	}
	c := p.v.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, v1beta2.Finalizer) {
		return nil
	}
	return loop.Update{Object: c}
}
