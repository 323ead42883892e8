package work

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

// TestEncryptedByTheSecret: a worker encrypts with the key that comes with its order, says which
// one, and refuses a wrong one, before it writes, by an error that keeps its meaning.
func TestEncryptedByTheSecret(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	with := func(do string, v worker.Volume, current, old string) worker.Job {
		j := job(dir, v)
		j.Order.Do, j.Order.Volume, j.Order.Backup, j.Order.SizeBytes = do, "vol", "first", volumeBytes
		j.Order.Create = backup.CreateOptions{Volume: "vol", Backup: "first", Snapshot: "s1",
			SnapshotCreated: time.Unix(1e9, 0), Compression: "encrypted-lz4"}
		j.Order.Restore = backup.RestoreOptions{Volume: "vol", Backup: "first"}
		j.Order.Credentials = target.Credentials{encryption.Variable: current, encryption.OldVariable: old}
		return j
	}
	for what, current := range map[string]string{"of a password": "hunter2hunter2", "without a key": ""} {
		_, err := worker.Run(t.Context(), with(worker.Create, v, current, ""))
		if err == nil || !strings.Contains(err.Error(), "BACKUP_ENCRYPTION_KEY") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := worker.Run(t.Context(), with(worker.Create, v, key, "")); err != nil {
		t.Fatal(err)
	}
	out, err := worker.Run(t.Context(), with(worker.Inspect, nil, "", ""))
	var info BackupInfo
	if err != nil || json.Unmarshal(out, &info) != nil || info.CompressionMethod != "encrypted-lz4" ||
		len(info.Labels[keyLabel]) != 16 || info.SnapshotName != "s1" {
		t.Errorf("%s, %v", out, err)
	}
	got := &memory{data: make([]byte, volumeBytes)}
	if _, err := worker.Run(t.Context(), with(worker.Restore, got, "", "")); !errors.Is(err, encryption.ErrNoKey) ||
		!strings.Contains(err.Error(), info.Labels[keyLabel]) || !bytes.Equal(got.data, make([]byte, volumeBytes)) {
		t.Errorf("without its key: %v", err)
	}
	if _, err := worker.Run(t.Context(), with(worker.Verify, nil, "", "")); !errors.Is(err, encryption.ErrNoKey) {
		t.Errorf("verified without its key: %v", err)
	}
	if out, err := worker.Run(t.Context(), with(worker.Verify, nil, key, "")); err != nil ||
		!strings.Contains(string(out), `"Faults":[]`) {
		t.Errorf("%s, %v", out, err)
	}
	_, err = worker.Run(t.Context(), with(worker.Restore, got, "", key))
	if err != nil || !bytes.Equal(got.data, v.data) {
		t.Errorf("with its key among the old ones: %v", err)
	}
}

// TestBaseThatIsDamaged: a restore by what differs, whose earlier backup is damaged in the store,
// is refused as one without a base, so that it is done in full.
func TestBaseThatIsDamaged(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	for name, snapshot := range map[string]string{"first": "s1", "second": "s2"} {
		if _, err := create(t, dir, v, name, snapshot); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, format.BackupRecord("vol", "first")), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := job(dir, &memory{data: make([]byte, volumeBytes)})
	j.Order.Do = worker.Restore
	j.Order.Restore = backup.RestoreOptions{Volume: "vol", Backup: "second", From: "first", FromCreated: time.Unix(1, 0)}
	if _, err := worker.Run(t.Context(), j); !errors.Is(err, backup.ErrNoBase) {
		t.Error(err)
	}
}
