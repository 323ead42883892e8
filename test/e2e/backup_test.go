package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	restclient "ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// scenarioBackup: a volume is backed up into a directory, while it is in use and at rest; the
// second backup sends what has changed. It is deleted and restored into another one, equal to the
// byte. An engine that is killed midway makes a backup fail, and the next one completes it. What is
// deleted is gone in the store. A store that is not there is told of.
func scenarioBackup(t *testing.T, c *cluster) {
	store := t.TempDir()
	c.target("vfs:///no/such/directory")
	c.eventually("the backup target tells that its store is not there", func(ctx context.Context) error {
		b := c.backupTarget()
		if b.Available || !strings.Contains(b.Message, "/no/such/directory") {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
	c.target("vfs://" + store)
	defer c.target("")
	c.eventually("the backup target is available", func(ctx context.Context) error {
		if b := c.backupTarget(); !b.Available {
			return errors.New(b.Message)
		}
		return nil
	})

	c.create("b1", cloneSize, 2)
	endpoint := c.attach("b1", "node-1", 2)
	d := c.device(endpoint)
	fill(t, d, 1)
	first := c.backUp("b1", "s1")
	c.complete("b1", first)
	old := hashDevice(t, c, endpoint)
	if _, err := d.WriteAt([]byte(strings.Repeat("second", 1000)), 4096); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	content := c.content(endpoint)
	now := sha256.Sum256(content)
	c.detach("b1")

	t.Log("a second backup, of the volume at rest")
	second := c.backUp("b1", "s2")
	b := c.complete("b1", second)
	if n, err := strconv.Atoi(b.NewlyUploadedDataSize); err != nil || n == 0 || n > 2*mib+4096 {
		t.Errorf("the second backup has sent %s bytes, of one block that has changed", b.NewlyUploadedDataSize)
	}
	c.eventually("the volume shows its newest backup, and rests", func(context.Context) error {
		if v := c.volume("b1"); v.LastBackup != second || v.State != "detached" {
			return fmt.Errorf("%s, %s", v.LastBackup, v.State)
		}
		return nil
	})

	t.Log("its backups are damaged, verified and repaired")
	c.verified(store, "b1", first, second, content)

	t.Log("a recurring job backs it up")
	scheduled(t, c, store)

	t.Log("the engine is killed in the middle of a backup")
	c.killedBackup(store)

	t.Log("the volume is deleted, and restored into another one")
	url, earlier := c.backup(second).URL, c.backup(first).URL
	c.remove("b1")
	c.restoreAndCompare("b2", url, now)
	c.restoreAndCompare("b3", earlier, old)

	c.deleteBackups(store, first, second)
}

// scheduled: a recurring job makes a backup of what is new, none where nothing is, and keeps as
// many as it retains, with the snapshot of the newest one.
func scheduled(t *testing.T, c *cluster, store string) {
	const job = "b1-job"
	j := &jobTest{cluster: c, t: t, kube: kubernetesOf(t, c)}
	defer j.undo(job)
	d := c.device(c.attach("b1", "node-1", 2))
	j.command("recurring-job", "create", job, "--task", "backup", "--cron", "0 0 29 2 *", "--retain", "1")
	j.command("recurring-job", "attach", "b1", job)
	var last string
	for n, write := range []bool{true, false, true} {
		if write {
			if _, err := d.WriteAt([]byte(strings.Repeat("by the job", 409)), 8192); err != nil {
				t.Fatal(err)
			}
		}
		if n == 2 { // of the volume at rest
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			c.detach("b1")
			j.setting(whileDetached, "true")
		}
		j.finish(j.run(job))
		j.eventually("one backup and one snapshot of the job are left", func(context.Context) error {
			var made []string
			for _, b := range c.backups("b1") {
				if b.Labels["RecurringJob"] == job {
					made = append(made, b.Name)
				}
			}
			if snapshots, _ := j.taken("b1", job); len(made) != 1 || !slices.Equal(snapshots, made) {
				return fmt.Errorf("backups %v, snapshots %v", made, snapshots)
			}
			if new := made[0] != last; new != write {
				return fmt.Errorf("backup %s after %s, new data: %v", made[0], last, write)
			}
			last = made[0]
			return nil
		})
	}
	j.awaitDetached("b1")
	j.restored(job, c.backup(last).URL)
	if err := c.rest.DeleteBackup(context.Background(), last); err != nil {
		t.Fatal(err)
	}
	c.eventually("the store has nothing of the job any more, and no lock", func(context.Context) error {
		if left := records(store); strings.Contains(left, last) || strings.Contains(left, ".lck") {
			return errors.New(left)
		}
		return nil
	})
}

// restored: a job that is deleted comes back with a volume that is restored from a backup of one
// that followed it.
func (j *jobTest) restored(job, url string) {
	const name = "b1-job-back"
	j.command("recurring-job", "delete", job, "--yes")
	if _, err := j.rest.CreateVolume(context.Background(), restclient.VolumeSpec{Name: name, NumberOfReplicas: 1,
		FromBackup: url, RestoreVolumeRecurringJob: "enabled"}); err != nil {
		j.t.Fatal(err)
	}
	defer j.remove(name)
	j.eventually("the restored volume follows the job again", func(context.Context) error {
		status, out, text := j.ankole(j.t, "recurring-job", "of", name, "-o", "name")
		if status != 0 || !strings.Contains(out, "recurring-job/"+job) {
			return fmt.Errorf("%s%s", out, text)
		}
		if v := j.volume(name); v.RestoreRequired || v.State != "detached" {
			return fmt.Errorf("%s, restore required %v", v.State, v.RestoreRequired)
		}
		return nil
	})
	list, err := j.rest.RecurringJobs(context.Background())
	if err != nil || !slices.ContainsFunc(list, func(r resource.RecurringJob) bool {
		return r.Name == job && r.Task == "backup" && r.Retain == 1
	}) {
		j.t.Errorf("%+v, %v", list, err)
	}
}

// deleteBackups deletes a backup, and then the backup volume with the other one.
func (c *cluster) deleteBackups(store, first, second string) {
	c.t.Log("a backup is deleted, then all that is left")
	if err := c.rest.DeleteBackup(context.Background(), first); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the store has it no more", func(context.Context) error {
		if left := records(store); strings.Contains(left, first) || !strings.Contains(left, second) {
			return errors.New(left)
		}
		return nil
	})
	var volumes []resource.BackupVolume
	c.eventually("the backup volume has the other one", func(ctx context.Context) (err error) {
		volumes, err = c.rest.BackupVolumes(ctx)
		if err != nil || len(volumes) != 1 || volumes[0].VolumeName != "b1" || volumes[0].LastBackupName != second {
			return fmt.Errorf("%+v %v", volumes, err)
		}
		return nil
	})
	if err := c.rest.DeleteBackupVolume(context.Background(), volumes[0].Name); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the store has nothing any more", func(ctx context.Context) error {
		all, err := c.rest.BackupVolumes(ctx)
		if left := records(store); err != nil || len(all) > 0 || left != "" {
			return fmt.Errorf("%v %v %s", all, err, left)
		}
		return nil
	})
}

// killedBackup kills the engine of volume b1 while it makes a backup: that fails, and the next one
// of the same snapshot is complete.
func (c *cluster) killedBackup(store string) {
	endpoint := c.attach("b1", "node-1", 2)
	d := c.device(endpoint)
	fill(c.t, d, 7)
	if err := d.Close(); err != nil {
		c.t.Fatal(err)
	}
	// A lock of another client has the backup wait: the engine is killed in that time.
	c.othersDeletion(store)
	killed := c.backUp("b1", "s3")
	c.eventually("the engine makes the backup", func(context.Context) error {
		if n := strings.Count(records(store), ".lck"); n < 2 {
			return fmt.Errorf("there are %d locks", n)
		}
		return nil
	})
	c.kill("--engine-instance-name\x00b1-e-0")
	c.eventually("the backup has failed", func(context.Context) error {
		if b := c.backup(killed); b.State != "Error" || b.Error == "" {
			return fmt.Errorf("%s %s", b.State, b.Error)
		}
		return nil
	})
	c.eventually("the volume is attached again", func(context.Context) error {
		if v := c.volume("b1"); v.State != "attached" || v.Robustness != "healthy" {
			return fmt.Errorf("%s %s", v.State, v.Robustness)
		}
		return nil
	})
	// They would stand for 150 s more.
	locks, err := filepath.Glob(filepath.Join(store, "backupstore/volumes/*/*/b1/locks/*.lck"))
	if err != nil || len(locks) == 0 {
		c.t.Fatalf("locks that are left: %v %v", locks, err)
	}
	for _, lock := range locks {
		if err := os.Remove(lock); err != nil {
			c.t.Fatal(err)
		}
	}
	again := c.order("b1", "s3")
	c.complete("b1", again)
	for _, name := range []string{killed, again} {
		if err := c.rest.DeleteBackup(context.Background(), name); err != nil {
			c.t.Fatal(err)
		}
	}
	c.eventually("they are deleted", func(ctx context.Context) error {
		if left := records(store); strings.Contains(left, killed) || strings.Contains(left, again) {
			return errors.New(left)
		}
		_, err := c.rest.Backup(ctx, again)
		if err == nil {
			return errors.New("the object is still there")
		}
		return nil
	})
	c.detach("b1")
}

// othersDeletion puts a lock of another client into the store, which deletes a backup of volume b1.
func (c *cluster) othersDeletion(store string) {
	c.t.Helper()
	folders, err := filepath.Glob(filepath.Join(store, "backupstore/volumes/*/*/b1"))
	if err != nil || len(folders) != 1 {
		c.t.Fatalf("%v, %v", folders, err)
	}
	const name = "lock-0123456789abcdef"
	err = os.MkdirAll(filepath.Join(folders[0], "locks"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(folders[0], "locks", name+".lck"),
			[]byte(`{"Name":"`+name+`","Type":2,"Acquired":true}`), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// target sets where the default backup target is.
func (c *cluster) target(url string) {
	c.t.Helper()
	_, err := c.rest.UpdateBackupTarget(context.Background(), resource.BackupTarget{Name: "default", BackupTargetURL: url,
		PollInterval: "300"})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) backupTarget() resource.BackupTarget {
	c.t.Helper()
	all, err := c.rest.BackupTargets(context.Background())
	if err != nil || len(all) != 1 || all[0].Name != "default" {
		c.t.Fatalf("%+v %v", all, err)
	}
	return all[0]
}

// backUp takes a snapshot of a volume and orders a backup of it.
func (c *cluster) backUp(volume, snapshot string) (backup string) {
	c.t.Helper()
	_, err := c.rest.OrderSnapshot(context.Background(), volume, resource.SnapshotCRInput{Name: snapshot})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.order(volume, snapshot)
}

// order orders a backup of a snapshot, and finds its name.
func (c *cluster) order(volume, snapshot string) (backup string) {
	c.t.Helper()
	before := map[string]bool{}
	for _, b := range c.backups(volume) {
		before[b.Name] = true
	}
	if _, err := c.rest.BackUp(context.Background(), volume, resource.SnapshotInput{Name: snapshot}); err != nil {
		c.t.Fatal(err)
	}
	for _, b := range c.backups(volume) {
		if !before[b.Name] && b.SnapshotName == snapshot {
			return b.Name
		}
	}
	c.t.Fatalf("a backup of snapshot %s of volume %s was ordered and there is none", snapshot, volume)
	return ""
}

func (c *cluster) backups(volume string) []resource.Backup {
	c.t.Helper()
	all, err := c.rest.Backups(context.Background(), "none", volume)
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

func (c *cluster) backup(name string) *resource.Backup {
	c.t.Helper()
	b, err := c.rest.Backup(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// complete waits for the end of a backup.
func (c *cluster) complete(volume, name string) (b *resource.Backup) {
	c.t.Helper()
	c.eventually("backup "+name+" is complete", func(context.Context) error {
		if b = c.backup(name); b.State == "Error" {
			c.t.Fatalf("backup %s: %s", name, b.Error)
		}
		if b.State != "Completed" || b.VolumeName != volume || b.URL == "" {
			return fmt.Errorf("%s %d %% %v", b.State, b.Progress, b.Messages)
		}
		return nil
	})
	return b
}

// restoreAndCompare restores a backup into a new volume, which a user compares then.
func (c *cluster) restoreAndCompare(name, url string, want [sha256.Size]byte) {
	c.t.Helper()
	if _, err := c.rest.CreateVolume(context.Background(), restclient.VolumeSpec{Name: name, NumberOfReplicas: 2,
		FromBackup: url}); err != nil {
		c.t.Fatal(err)
	}
	defer c.remove(name)
	c.eventually(name+" is restored and rests", func(context.Context) error {
		v := c.volume(name)
		if v.RestoreRequired || !v.RestoreInitiated || v.State != "detached" {
			return fmt.Errorf("%s %s, restore required %v: %+v", v.State, v.Robustness, v.RestoreRequired,
				v.Conditions["Restore"])
		}
		return nil
	})
	endpoint := c.attach(name, "node-2", 2)
	holds(c.t, c, endpoint, want, name+" has another content than its backup")
	c.detach(name)
	c.identical(name, 2)
}

// records names what a store has beside blocks.
func records(store string) string {
	var names []string
	_ = filepath.WalkDir(store, func(path string, d os.DirEntry, err error) error {
		leftover := strings.Contains(path, ".tmp.") // of whoever was killed; it goes when it is an hour old
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".blk") && !leftover {
			names = append(names, filepath.Base(path))
		}
		return nil
	})
	return strings.Join(names, " ")
}
