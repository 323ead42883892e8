package store

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/format"
)

// TestCompression: with a key in the Secret an order has a method that no engine of before
// encryption knows.
func TestCompression(t *testing.T) {
	for _, tt := range []struct{ method, key, want string }{{"lz4", "", "lz4"}, {"", "", ""},
		{"gzip", "k", "encrypted-gzip"}, {"", "k", "encrypted-lz4"}} {
		v := &v1beta2.Volume{}
		v.Spec.BackupCompressionMethod = v1beta2.BackupCompressionMethod(tt.method)
		got := Compression(v, map[string]string{"BACKUP_ENCRYPTION_KEY": tt.key, "AWS_CERT": "c"})
		if got != tt.want || tt.key != "" && format.Compression(got).Check() == nil {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
