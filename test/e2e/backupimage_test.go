package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/format"
	"ankole.storage/rest/resource"
)

// backedUp: image mine, with the content, is backed up, although a manager is killed meanwhile;
// deleted and restored with the same bytes. Another look at the store finds what is there, and a
// deletion leaves nothing.
func (at *imageTest) backedUp(content []byte) {
	at.t.Helper()
	ctx, store := at.t.Context(), at.t.TempDir()
	at.target("vfs://" + store)

	at.t.Log("backed up, and the manager is killed")
	at.killedBackup(store)
	made := at.awaitImageBackup()
	if made.Size != int64(len(content)) || made.URL != "vfs://"+store+"?backingImage=mine" {
		at.t.Errorf("%+v", made)
	}
	if err := at.rest.BackUpImage(ctx, "mine", "default"); err == nil {
		at.t.Error("a second backup of the image is ordered")
	}
	if err := at.rest.RestoreBackupImage(ctx, made.Name); err == nil {
		at.t.Error("an image that is there is restored")
	}

	at.t.Log("deleted, and restored")
	if err := at.rest.DeleteBackingImage(ctx, "mine"); err != nil {
		at.t.Fatal(err)
	}
	at.awaitNothing()
	if err := at.rest.RestoreBackupImage(ctx, made.Name); err != nil {
		at.t.Fatal(err)
	}
	at.awaitImage("mine")
	if got := at.download("mine"); !bytes.Equal(got, content) {
		at.t.Errorf("%d bytes of another content were restored", len(got))
	}

	at.t.Log("found by another look, as by another cluster")
	at.target("")
	at.eventually("the object goes, and the store keeps the backup", func(ctx context.Context) error {
		return at.imageBackups(ctx, 0)
	})
	at.target("vfs://" + store)
	if found := at.awaitImageBackup(); found.URL != made.URL || found.Created != made.Created {
		at.t.Errorf("%+v, was %+v", found, made)
	}

	at.t.Log("deleted in the store")
	if err := at.rest.DeleteBackupImage(ctx, made.Name); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("the backup is gone", func(ctx context.Context) error { return at.imageBackups(ctx, 0) })
	if left := records(store); left != "" {
		at.t.Errorf("%s stays", left)
	}
	if blocks, err := filepath.Glob(filepath.Join(store, string(format.ImagePool), "*/*/*")); err != nil ||
		len(blocks) > 0 {
		at.t.Errorf("blocks %v stay: %v", blocks, err)
	}
}

// killedBackup orders a backup of image mine, and kills the manager that has a lock of the store
// for it. Another manager goes on.
func (at *imageTest) killedBackup(store string) {
	at.t.Helper()
	locks := filepath.Join(store, format.LocksFolder(format.ImageLocks))
	others := []string{filepath.Join(locks, "lock-0123456789abcdef.lck")} // of a client that deletes: a backup waits
	err := os.MkdirAll(locks, 0o700)
	if err == nil {
		err = os.WriteFile(others[0], []byte(`{"Name":"lock-0123456789abcdef","Type":2,"Acquired":true}`), 0o600)
	}
	if err != nil {
		at.t.Fatal(err)
	}
	at.eventually("the backup is ordered", func(ctx context.Context) error { // the target is looked at first
		return at.rest.BackUpImage(ctx, "mine", "default")
	})
	others = at.awaitLocks(locks, 2)
	at.killManager(at.directories()[0])
	at.awaitLocks(locks, 3)
	for _, lock := range others { // that of a process that was killed would stand for 150 s
		if err := os.Remove(lock); err != nil {
			at.t.Fatal(err)
		}
	}
}

// awaitLocks waits for so many locks in a folder of a store.
func (at *imageTest) awaitLocks(folder string, n int) (found []string) {
	at.t.Helper()
	at.eventually(fmt.Sprint(n, " clients have a lock"), func(context.Context) (err error) {
		if found, err = filepath.Glob(filepath.Join(folder, "*.lck")); err != nil || len(found) < n {
			return fmt.Errorf("%v, %v", found, err)
		}
		return nil
	})
	return found
}

// imageBackups fails unless there are so many backups of images.
func (at *imageTest) imageBackups(ctx context.Context, n int) error {
	all, err := at.rest.BackupImages(ctx)
	if err != nil || len(all) != n {
		return fmt.Errorf("%d backups of images, %v", len(all), err)
	}
	return nil
}

// awaitImage waits until an image has a copy that is ready.
func (at *imageTest) awaitImage(name string) {
	at.t.Helper()
	at.eventually("image "+name+" is ready", func(ctx context.Context) error {
		b, err := at.rest.BackingImage(ctx, name)
		if err != nil {
			return err
		}
		for _, f := range b.DiskFileStatusMap {
			if f.State == string(longhorn.BackingImageStateReady) {
				return nil
			}
		}
		return fmt.Errorf("%+v", b.DiskFileStatusMap)
	})
}

// awaitImageBackup waits until the one backup of an image is complete.
func (at *imageTest) awaitImageBackup() (made resource.BackupBackingImage) {
	at.t.Helper()
	at.eventually("the backup of the image is complete", func(ctx context.Context) error {
		all, err := at.rest.BackupImages(ctx)
		if err != nil || len(all) != 1 || all[0].State != string(longhorn.BackupStateCompleted) {
			return fmt.Errorf("%+v, %v", all, err)
		}
		made = all[0]
		return nil
	})
	return made
}
