package backuptarget

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// dropAll deletes the objects of all that the target has, one at a time; the store keeps it.
func (p *pass) dropAll() loop.Change {
	change := store.Drop(p.s.Volumes, func(*v1beta2.BackupVolume) bool { return true })
	if change == nil {
		change = store.Drop(p.s.Images, func(*v1beta2.BackupBackingImage) bool { return true })
	}
	return change
}

// followImages makes the objects of backing images that the store has, and drops those of images
// that it has no more. A backup that this cluster makes, or has failed to make, is not in the store
// yet.
func (p *pass) followImages(began metav1.Time) loop.Change {
	there := p.s.Look.Result.Images
	if there == nil {
		return nil
	}
	change := store.Drop(p.s.Images, func(b *v1beta2.BackupBackingImage) bool {
		made := !b.Spec.UserCreated || b.Status.State == v1beta2.BackupStateCompleted
		younger := !b.CreationTimestamp.Time.Before(began.Time) || !b.Status.LastSyncedAt.Time.Before(began.Time)
		return made && !younger && !slices.Contains(there, b.Spec.BackingImage) // younger than the look
	})
	for _, image := range there {
		known := slices.IndexFunc(p.s.Images, func(b v1beta2.BackupBackingImage) bool {
			return b.Spec.BackingImage == image
		})
		if change == nil && known >= 0 {
			change = readAgain(&p.s.Images[known], began)
		}
		// The reference takes names for images that no object can have.
		possible := len(validation.IsDNS1123Subdomain(image)) == 0
		if change == nil && known < 0 && possible {
			change = loop.Create{Object: &v1beta2.BackupBackingImage{ObjectMeta: metav1.ObjectMeta{
				Namespace: p.t.Namespace, Name: naming.BackupImageName(image, p.t.Name),
				Finalizers: []string{v1beta2.Finalizer},
				Labels:     map[string]string{naming.LabelBackedUpImage: image, naming.LabelBackupTarget: p.t.Name}},
				Spec: v1beta2.BackupBackingImageSpec{BackingImage: image, BackupTargetName: p.t.Name, SyncRequestedAt: began}}}
		}
	}
	return change
}

// readAgain asks the object of a backup that another cluster makes to look once more.
func readAgain(b *v1beta2.BackupBackingImage, began metav1.Time) loop.Change {
	if b.Spec.UserCreated || b.Status.State != v1beta2.BackupStateInProgress || b.DeletionTimestamp != nil ||
		!b.Spec.SyncRequestedAt.Time.Before(began.Time) {
		return nil
	}
	c := b.DeepCopy()
	c.Spec.SyncRequestedAt = began
	return loop.Update{Object: c}
}
