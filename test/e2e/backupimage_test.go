package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

	at.t.Log("damaged, and written again")
	at.mended(store, made.Name)

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

// mended damages the blocks of image mine in the store: a verification finds them and no other, and
// the disk that has the image writes them again.
func (at *imageTest) mended(store, backup string) {
	at.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(store, string(format.ImagePool), "*/*/*"))
	if err != nil || len(blocks) == 0 {
		at.t.Fatalf("blocks %v, %v", blocks, err)
	}
	const verify = "backing-image-backup"
	if status, out, text := at.ankole(at.t, verify, "verify"); status != 0 ||
		!strings.Contains(out, fmt.Sprintf("all sound, %d block", len(blocks))) {
		at.t.Fatalf("status %d of a sound backup with %d blocks: %s%s", status, len(blocks), out, text)
	}
	before, err := os.ReadFile(blocks[0])
	if err != nil {
		at.t.Fatal(err)
	}
	rotten := slices.Clone(before)
	rotten[len(rotten)/2] ^= 0x10
	if err := os.WriteFile(blocks[0], rotten, 0o600); err != nil {
		at.t.Fatal(err)
	}
	for _, missing := range blocks[1:] {
		if err := os.Remove(missing); err != nil {
			at.t.Fatal(err)
		}
	}
	status, out, text := at.ankole(at.t, verify, "verify", backup, "--bandwidth", "500")
	if status != 1 || strings.Count(out, "\n") != 1+len(blocks) || strings.Count(out, " missing ") != len(blocks)-1 ||
		!strings.Contains(out, filepath.Base(blocks[0])) {
		at.t.Fatalf("status %d of %d damaged blocks: %s%s", status, len(blocks), out, text)
	}
	at.command(verify, "verify", backup, "--repair")
	if after, err := os.ReadFile(blocks[0]); err != nil || !slices.Equal(after, before) {
		at.t.Errorf("the damaged block is not what it was: %v", err)
	}
	if strings.Contains(records(store), ".mark") {
		at.t.Errorf("the store has %s", records(store))
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
