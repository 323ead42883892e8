package backup

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// deleteBackupImage deletes the backup of a backing image, in the store too; it is answered before
// that.
func deleteBackupImage(q *serve.Request) (any, error) {
	b := &lh.BackupBackingImage{ObjectMeta: metav1.ObjectMeta{Name: q.Params["name"], Namespace: q.Objects.Namespace}}
	if err := q.Objects.Client.Delete(q.Context(), b); err != nil {
		return nil, fmt.Errorf("unable to delete backup backing image %s: %w", b.Name, err)
	}
	return nil, nil
}

// restoreBackupImage makes the backing image of a backup again, under the name that it had; it is
// answered before there is a copy.
func restoreBackupImage(q *serve.Request) (any, error) {
	var in resource.BackingImageRestoreInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	var b lh.BackupBackingImage
	if err := q.Objects.Get(q.Context(), q.Params["name"], &b); err != nil {
		return nil, fmt.Errorf("failed to get backup backing image %s: %w", q.Params["name"], err)
	}
	name, s := b.Spec.BackingImage, &b.Status
	refuse := func(why error) error { return fmt.Errorf("unable to restore backing image %s: %w", name, why) }
	if s.State != lh.BackupStateCompleted {
		return nil, refuse(fmt.Errorf("backup %s is %s: wait until it is %s", b.Name, cmp.Or(s.State, lh.BackupStatePending),
			lh.BackupStateCompleted))
	}
	if lh.DataEngineType(in.DataEngine) != lh.DataEngineTypeV1 {
		return nil, refuse(fmt.Errorf("dataEngine is %.20q: give %s", in.DataEngine, lh.DataEngineTypeV1))
	}
	i := &lh.BackingImage{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.Objects.Namespace},
		Spec: lh.BackingImageSpec{SourceType: lh.BackingImageSourceTypeRestore, Checksum: s.Checksum,
			SourceParameters: map[string]string{lh.BackingImageParameterBackupURL: s.URL,
				lh.BackingImageParameterBackupTargetName: b.Spec.BackupTargetName},
			Secret:          cmp.Or(in.Secret, s.Secret),
			SecretNamespace: cmp.Or(in.SecretNamespace, s.SecretNamespace), DataEngine: lh.DataEngineTypeV1}}
	if err := q.Objects.Create(q.Context(), i); err != nil {
		return nil, refuse(err)
	}
	return nil, nil
}
