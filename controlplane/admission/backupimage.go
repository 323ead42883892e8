package admission

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/target"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// backupImages are backups of backing images.
var backupImages = kind[*v1beta2.BackupBackingImage]{
	plural:     "backupbackingimages",
	create:     func() *v1beta2.BackupBackingImage { return &v1beta2.BackupBackingImage{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.BackupBackingImage]) error {
		if b := r.new; b.DeletionTimestamp == nil {
			addFinalizer(b)
			orElse(&b.Spec.BackupTargetName, naming.BackupTarget)
			addLabels(b, map[string]string{naming.LabelBackedUpImage: b.Spec.BackingImage,
				naming.LabelBackupTarget: b.Spec.BackupTargetName})
		}
		return nil
	},
	checker: func(ctx context.Context, w world, r request[*v1beta2.BackupBackingImage]) error {
		if !r.created() {
			return CheckBackupImage(r.old, r.new, nil, nil)
		}
		t, err := find(ctx, w, r.new.Spec.BackupTargetName, &v1beta2.BackupTarget{})
		if err != nil {
			return err
		}
		var all v1beta2.BackupBackingImageList
		if err := w.List(ctx, &all, client.InNamespace(w.namespace)); err != nil {
			return fmt.Errorf("list backups of backing images: %w", err)
		}
		return CheckBackupImage(nil, r.new, t, all.Items)
	},
}

// CheckBackupImage refuses the backup of a backing image that cannot be (old nil: creation). t is
// its target, nil for none; others are all that there are.
func CheckBackupImage(old, b *v1beta2.BackupBackingImage, t *v1beta2.BackupTarget,
	others []v1beta2.BackupBackingImage) error {
	image, at := b.Spec.BackingImage, b.Spec.BackupTargetName
	switch {
	case b.DeletionTimestamp != nil:
		return nil
	case old != nil && (old.Spec.BackingImage != image || old.Spec.BackupTargetName != at ||
		old.Spec.UserCreated != b.Spec.UserCreated):
		return invalid("image and backup target of backup %s of backing image %s cannot be changed", b.Name,
			old.Spec.BackingImage)
	case old != nil:
		return nil
	case naming.CheckName(image) != nil:
		return invalid("backup %s names no backing image: fill spec.backingImage", b.Name)
	case t == nil:
		return invalid("backup target %s of backup %s of backing image %s does not exist", at, b.Name, image)
	case t.Spec.BackupTargetURL == "":
		return invalid("backup target %s of backup %s of backing image %s has no URL: set it first", at, b.Name, image)
	case b.Spec.UserCreated && !t.Status.Available:
		return invalid("backup target %s of backup %s of backing image %s is not available: %s", at, b.Name, image,
			v1beta2.FindCondition(t.Status.Conditions, v1beta2.BackupTargetConditionUnavailable).Message)
	}
	for i := range others {
		if o := &others[i].Spec; o.BackingImage == image && o.BackupTargetName == at {
			return invalid("backup %s of backing image %s exists on backup target %s: delete that first", others[i].Name, image,
				at)
		}
	}
	return nil
}

// completeRestore gives an image that is restored the target of its backup, a bound, and the Secret
// that the backup is of.
func (w world) completeRestore(ctx context.Context, b *v1beta2.BackingImage) error {
	parameters := b.Spec.SourceParameters
	if b.Spec.SourceType != v1beta2.BackingImageSourceTypeRestore {
		return nil
	}
	if parameters[v1beta2.BackingImageParameterConcurrentLimit] == "" {
		values, err := w.settings(ctx)
		if err != nil {
			return err
		}
		parameters[v1beta2.BackingImageParameterConcurrentLimit] = fmt.Sprint(values.Int(setting.BackupConcurrentLimit))
	}
	var all v1beta2.BackupBackingImageList
	if err := w.List(ctx, &all, client.InNamespace(w.namespace)); err != nil {
		return fmt.Errorf("list backups of backing images: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if !sameImage(o.Status.URL, parameters[v1beta2.BackingImageParameterBackupURL]) {
			continue
		}
		if parameters[v1beta2.BackingImageParameterBackupTargetName] == "" {
			parameters[v1beta2.BackingImageParameterBackupTargetName] = o.Spec.BackupTargetName
		}
		if b.Spec.Secret == "" && parameters[v1beta2.BackingImageParameterBackupTargetName] == o.Spec.BackupTargetName {
			b.Spec.Secret, b.Spec.SecretNamespace = o.Status.Secret, o.Status.SecretNamespace
		}
	}
	return nil
}

// sameImage says whether two URLs name one backup.
func sameImage(a, b string) bool {
	one, err := target.ParseImage(a)
	other, wrong := target.ParseImage(b)
	return err == nil && wrong == nil && one.Name == other.Name && one.Target.String() == other.Target.String()
}

// CheckImageRestore refuses to restore an image from a target that does not have it. nil: there is
// no such target.
func CheckImageRestore(b *v1beta2.BackingImage, t *v1beta2.BackupTarget) error {
	name, url := b.Spec.SourceParameters[v1beta2.BackingImageParameterBackupTargetName],
		b.Spec.SourceParameters[v1beta2.BackingImageParameterBackupURL]
	refuse := func(why string) error {
		return invalid("backing image %s cannot be restored: %s", b.Name, why)
	}
	of, err := target.ParseImage(url)
	switch {
	case err != nil:
		return refuse(err.Error())
	case name == "":
		return refuse("no backup of a backing image has URL " + of.URL() + ": name its backup target (" +
			v1beta2.BackingImageParameterBackupTargetName + ")")
	case t == nil:
		return refuse("backup target " + name + " does not exist")
	}
	if at, err := target.Parse(t.Spec.BackupTargetURL); err != nil || at.String() != of.Target.String() {
		return refuse("the backup lies in " + of.Target.String() + ", which is not backup target " + name)
	}
	return nil
}
