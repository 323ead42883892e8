package admission

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var volumeAttachments = kind[*v1beta2.VolumeAttachment]{
	plural:     "volumeattachments",
	create:     func() *v1beta2.VolumeAttachment { return &v1beta2.VolumeAttachment{} },
	onValidate: allThree,
	onMutate:   createUpdate,
	mutator:    mutateAttachment,
	checker:    checkAttachmentRequest,
}

func mutateAttachment(ctx context.Context, w world, r request[*v1beta2.VolumeAttachment]) error {
	va := r.new
	if va.Spec.AttachmentTickets == nil {
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	addFinalizer(va)
	for id, t := range va.Spec.AttachmentTickets {
		orElse(&t.ID, id)
		va.Spec.AttachmentTickets[id] = t
	}
	if r.updated() {
		orElse(&va.Spec.Volume, r.old.Spec.Volume)
		bumpGenerations(r.old, va)
		return nil
	}
	v, err := w.volume(ctx, va.Spec.Volume)
	if err != nil {
		return err
	}
	if v == nil {
		return invalid("volume attachment %s is for volume %q, which does not exist", va.Name, va.Spec.Volume)
	}
	addLabels(va, naming.VolumeLabels(v.Name))
	if len(va.OwnerReferences) == 0 {
		va.OwnerReferences = []metav1.OwnerReference{ownedByVolume(v)}
	}
	for id, t := range va.Spec.AttachmentTickets {
		t.Generation = max(t.Generation, 0)
		va.Spec.AttachmentTickets[id] = t
	}
	return nil
}

// bumpGenerations numbers tickets, so that a status entry, and a withdrawal, can be told to be
// about a former ticket of the same id. The status of that one may be gone: the object counts its
// own changes, and is changed by each ticket.
func bumpGenerations(old, va *v1beta2.VolumeAttachment) {
	for id, t := range va.Spec.AttachmentTickets {
		before, existed := old.Spec.AttachmentTickets[id]
		status, reported := old.Status.AttachmentTicketStatuses[id]
		switch {
		case !existed && reported:
			t.Generation = max(status.Generation+1, old.Generation)
		case !existed:
			t.Generation = max(t.Generation, old.Generation)
		case !sameTicket(before, t):
			t.Generation = max(before.Generation+1, old.Generation)
		default:
			t.Generation = before.Generation
		}
		va.Spec.AttachmentTickets[id] = t
	}
}

func sameTicket(a, b v1beta2.AttachmentTicket) bool {
	return a.ID == b.ID && a.NodeID == b.NodeID && a.Type == b.Type && maps.Equal(a.Parameters, b.Parameters)
}

// AttachmentFacts is what the cluster says about a volume attachment.
type AttachmentFacts struct {
	// Volume is nil if it is gone.
	Volume   *v1beta2.Volume
	Replicas []v1beta2.Replica
}

// maxMigrationTickets is the number of CSI tickets a volume under migration has: one for each node.
const maxMigrationTickets = 2

// CheckAttachment refuses tickets that cannot be (old nil: creation).
func CheckAttachment(old, va *v1beta2.VolumeAttachment, f AttachmentFacts) error {
	for id, t := range va.Spec.AttachmentTickets {
		if id != t.ID {
			return invalid("volume attachment %s: ticket %q has id %q; key and id must be equal", va.Name, id, t.ID)
		}
	}
	if old == nil {
		return nil
	}
	switch {
	case va.Spec.Volume != old.Spec.Volume:
		return invalid("volume attachment %s: spec.volume cannot be changed", va.Name)
	case len(old.OwnerReferences) > 0 && !equality.Semantic.DeepEqual(old.OwnerReferences, va.OwnerReferences):
		return invalid("volume attachment %s: its owner cannot be changed", va.Name)
	case old.Labels[naming.LabelVolume] != "" && old.Labels[naming.LabelVolume] != va.Labels[naming.LabelVolume]:
		return invalid("volume attachment %s: label %s cannot be changed", va.Name, naming.LabelVolume)
	}
	if f.Volume == nil {
		return nil
	}
	if err := checkMigrationTickets(va, f.Volume); err != nil {
		return err
	}
	return checkLocalTickets(old, va, f)
}

func checkMigrationTickets(va *v1beta2.VolumeAttachment, v *v1beta2.Volume) error {
	if !v.Spec.Migratable {
		return nil
	}
	csi := 0
	for _, t := range va.Spec.AttachmentTickets {
		if t.Type == v1beta2.AttacherTypeCSI {
			csi++
		}
	}
	switch {
	case csi > maxMigrationTickets:
		return invalid("volume %s can be migrated between two nodes at a time, not %d", v.Name, csi)
	case csi == maxMigrationTickets && v.Status.State != v1beta2.VolumeStateAttached:
		return forbidden("volume %s is %s; a migration starts from an attached volume", v.Name, v.Status.State)
	}
	return nil
}

// checkLocalTickets keeps a strict-local volume with its only replica.
func checkLocalTickets(old, va *v1beta2.VolumeAttachment, f AttachmentFacts) error {
	if f.Volume.Spec.DataLocality != v1beta2.DataLocalityStrictLocal {
		return nil
	}
	for id, t := range va.Spec.AttachmentTickets {
		if before, existed := old.Spec.AttachmentTickets[id]; existed && before.NodeID == t.NodeID {
			continue
		}
		for i := range f.Replicas {
			if at := f.Replicas[i].Spec.NodeID; at != "" && at != t.NodeID {
				return invalid("volume %s is strict-local and its replica is on node %s; it cannot be attached to node %s",
					f.Volume.Name, at, t.NodeID)
			}
		}
	}
	return nil
}

// CheckAttachmentDeletion refuses to delete what keeps a volume attached, or asks for that. volume
// is nil if it is gone.
func CheckAttachmentDeletion(va *v1beta2.VolumeAttachment, volume *v1beta2.Volume) error {
	if volume == nil || volume.DeletionTimestamp != nil || va.DeletionTimestamp != nil {
		return nil
	}
	const instead = "end what uses it, or detach it (ankole volume detach %s); the attachment goes with its volume"
	if len(va.Spec.AttachmentTickets) > 0 {
		var asked []string
		for _, id := range slices.Sorted(maps.Keys(va.Spec.AttachmentTickets)) {
			asked = append(asked, id+" for node "+va.Spec.AttachmentTickets[id].NodeID)
		}
		return forbidden("volume attachment %s has tickets, %s: without it volume %s would be detached under its users; "+
			instead, va.Name, strings.Join(asked, ", "), volume.Name, volume.Name)
	}
	if volume.Spec.NodeID != "" {
		return forbidden("volume %s is attached to node %s, and would be detached without its volume attachment; "+instead,
			volume.Name, volume.Spec.NodeID, volume.Name)
	}
	return nil
}

func checkAttachmentRequest(ctx context.Context, w world, r request[*v1beta2.VolumeAttachment]) error {
	switch {
	case r.created():
		return CheckAttachment(nil, r.new, AttachmentFacts{})
	case r.deleted():
		volume, err := w.volume(ctx, r.old.Spec.Volume)
		if err != nil {
			return err
		}
		return CheckAttachmentDeletion(r.old, volume)
	}
	if removesFinalizer(r.old, r.new) {
		return nil
	}
	var f AttachmentFacts
	var err error
	if f.Volume, err = w.volume(ctx, r.new.Spec.Volume); err != nil {
		return err
	}
	if f.Volume != nil && f.Volume.Spec.DataLocality == v1beta2.DataLocalityStrictLocal {
		if f.Replicas, err = w.replicasOf(ctx, f.Volume.Name); err != nil {
			return err
		}
	}
	return CheckAttachment(r.old, r.new, f)
}
