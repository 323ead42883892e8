package cli

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// backups are a target, and what it has of a volume: a backup, and one that has failed.
func backups() []client.Object {
	of := map[string]string{"backup-volume": "demo", "backup-target": "default"}
	target := &lh.BackupTarget{ObjectMeta: resttest.Meta("default"), Spec: lh.BackupTargetSpec{
		BackupTargetURL: "s3://b@r/", CredentialSecret: "aws-secret", PollInterval: "300s"}}
	target.Status.Available = true
	volume := &lh.BackupVolume{ObjectMeta: resttest.Meta("demo-1a2b3c4d"), Spec: lh.BackupVolumeSpec{VolumeName: "demo",
		BackupTargetName: "default"}}
	whole := &lh.Backup{ObjectMeta: resttest.Meta("backup-1"), Spec: lh.BackupSpec{SnapshotName: "s1"},
		Status: lh.BackupStatus{State: lh.BackupStateCompleted, Progress: 100, VolumeName: "demo"}}
	failed := &lh.Backup{ObjectMeta: resttest.Meta("backup-2"), Spec: lh.BackupSpec{SnapshotName: "s2"},
		Status: lh.BackupStatus{State: lh.BackupStateError, Progress: 40, Error: "no space in the store"}}
	volume.Labels, whole.Labels, failed.Labels = of, of, of
	return []client.Object{target, volume, whole, failed}
}
