package backup

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestOrderOfABackup: what settings, the volume and the Secret say of a backup is in the order.
func TestOrderOfABackup(t *testing.T) {
	b := ordered(v1beta2.BackupStatePending, func(b *v1beta2.Backup) { b.Spec.BackupMode = v1beta2.BackupModeFull })
	v := &v1beta2.Volume{Spec: v1beta2.VolumeSpec{BackupCompressionMethod: v1beta2.BackupCompressionGzip}}
	got := requestOf(b, v, nil, setting.Values{})
	if got.BandwidthMiB != 0 || got.Concurrency != 2 || got.Compression != "gzip" || !got.Full || got.Snapshot != "s" {
		t.Errorf("%+v", got)
	}
	got = requestOf(b, v, map[string]string{"BACKUP_ENCRYPTION_KEY": "k"},
		setting.Values{setting.BackupBandwidthLimit: "7", setting.BackupConcurrentLimit: "3"})
	if got.BandwidthMiB != 7 || got.Concurrency != 3 || got.Compression != "encrypted-gzip" || len(got.Credentials) != 1 {
		t.Errorf("%+v", got)
	}
}
