package proxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// backupMethods backs a snapshot up to a directory, looks at it there, fills another volume with
// it, and removes it.
func backupMethods(t *testing.T, v *volume) {
	if _, err := rig.Build("backup-worker"); err != nil { // beside the engine program
		t.Fatal(err)
	}
	store := "vfs://" + t.TempDir()
	further := []string{param("backup_target", store), param("snapshot_name", "b"), param("backup_name", "backup-1"),
		param("labels", map[string]string{"who": "x"}), param("compression_method", "lz4"), param("concurrent_limit", 2),
		param("envs", []string{"AWS_ACCESS_KEY_ID=unused"})}
	if a := v.must("SnapshotBackup", further...); at(a, "backup_id") != "backup-1" ||
		!slices.Contains(v.address, fmt.Sprint(at(a, "replica"))) {
		t.Errorf("%v", a)
	}
	of := param("backup_name", "backup-1")
	wait.Until(t, "the backup is complete", func() bool {
		a := v.must("SnapshotBackupStatus", of)
		if at(a, "state") == "error" {
			t.Fatal(a)
		}
		return at(a, "state") == "complete" && at(a, "progress") == 100.0 && at(a, "snapshot_name") == "b"
	})
	v.refused("SnapshotBackupStatus", codes.NotFound, "cannot find backup none", param("backup_name", "none"))
	v.refused("SnapshotBackup", codes.NotFound, "none", further[0], param("snapshot_name", "none"))
	v.refused("SnapshotBackup", codes.InvalidArgument, "begins with none", param("backup_target", "ftp://x"), further[1])
	v.refused("SnapshotBackup", codes.InvalidArgument, "number 1 is not KEY=VALUE", further[0], further[1],
		param("envs", []string{"secret"}))
	url := fmt.Sprint(at(v.must("SnapshotBackupStatus", of), "backup_url"))

	if all := v.n.look(t, "BackupVolumeList", store, ""); at(all, "one") == nil || at(all, "one", "Backups") != nil {
		t.Errorf("%v", all)
	}
	if all := v.n.look(t, "BackupVolumeList", store, "one"); at(all, "one", "Backups", "backup-1") == nil {
		t.Errorf("%v", all)
	}
	if a := v.n.look(t, "BackupVolumeGet", store+"?volume=one", ""); at(a, "LastBackupName") != "backup-1" {
		t.Errorf("%v", a)
	}
	if a := v.n.look(t, "BackupGet", url, ""); at(a, "SnapshotName") != "b" || at(a, "Labels", "who") != "x" {
		t.Errorf("%v", a)
	}
	if a := v.n.look(t, "BackupConfigMetaGet", url, ""); at(a, "ModificationTime") == "" {
		t.Errorf("%v", a)
	}
	restoreMethods(t, v, url)
	if _, err := v.n.storeCall(t, "BackupRemove", url, ""); err != nil {
		t.Error(err)
	}
	_, err := v.n.storeCall(t, "BackupGet", url, "")
	wantCode(t, "BackupGet of what is removed", err, codes.NotFound, "cannot find")
	_, err = v.n.storeCall(t, "BackupVolumeList", "vfs:///no/such/directory", "")
	wantCode(t, "BackupVolumeList of no directory", err, codes.Unavailable, "/no/such/directory")
	if _, err := v.n.out.call(t.Context(), "CleanupBackupMountPoints", "{}"); err != nil {
		t.Error(err)
	}
}

// restoreMethods fills a volume with a backup.
func restoreMethods(t *testing.T, v *volume, url string) {
	w := v.n.volume("restored", 32*mib, 2)          // the size that it was expanded to
	a := w.must("BackupRestore", param("url", url)) // a frontend is up
	text, err := base64.StdEncoding.DecodeString(fmt.Sprint(at(a, "taskError")))
	var told struct {
		ReplicaErrors []struct{ Address, Message string }
	}
	if err != nil || json.Unmarshal(text, &told) != nil || len(told.ReplicaErrors) != 1 ||
		!strings.Contains(told.ReplicaErrors[0].Message, "frontend") {
		t.Errorf("%v: %s", a, text)
	}
	w.must("VolumeFrontendShutdown")
	w.refused("BackupRestore", codes.InvalidArgument, "URL", param("url", "nothing"))
	if a := w.must("BackupRestore", param("url", url), param("concurrent_limit", 2)); at(a, "taskError") != nil &&
		at(a, "taskError") != "" {
		t.Fatal(a)
	}
	wait.Until(t, "the restore is complete", func() bool {
		all := at(w.must("BackupRestoreStatus"), "status")
		for _, address := range w.address {
			s := at(all, address)
			if at(s, "state") == "error" {
				t.Fatal(all)
			}
			if at(s, "is_restoring") == true || at(s, "last_restored") != "backup-1" || at(s, "backup_url") != url {
				return false
			}
		}
		return true
	})
	w.must("VolumeFrontendStart", param("frontend_start", map[string]any{"frontend": "tgt-blockdev"}))
	if got := [3]byte{w.read(0), w.read(mib), w.read(2 * mib)}; got != [3]byte{1, 2, 0} {
		t.Errorf("the restored volume reads %v", got)
	}
}

// storeCall calls a method of the backup store. The reference has no messages for them: these are
// our own.
func (n *node) storeCall(t *testing.T, method, url, volume string) (*imrpc.EngineBackupStoreProxyResponse, error) {
	t.Helper()
	n.out.called[method] = true
	c, q := imrpc.NewProxyEngineServiceClient(n.conn), &imrpc.EngineBackupStoreRequest{Url: url, VolumeName: volume}
	switch method {
	case "BackupVolumeList":
		return c.BackupVolumeList(t.Context(), q)
	case "BackupVolumeGet":
		return c.BackupVolumeGet(t.Context(), q)
	case "BackupGet":
		return c.BackupGet(t.Context(), q)
	case "BackupConfigMetaGet":
		return c.BackupConfigMetaGet(t.Context(), q)
	}
	_, err := c.BackupRemove(t.Context(), q)
	return nil, err
}

// look is what a method of the backup store answers.
func (n *node) look(t *testing.T, method, url, volume string) (out any) {
	t.Helper()
	a, err := n.storeCall(t, method, url, volume)
	if err == nil {
		err = json.Unmarshal(a.GetJson(), &out)
	}
	if err != nil {
		t.Fatalf("%s: %v: %v", method, a, err)
	}
	return out
}
