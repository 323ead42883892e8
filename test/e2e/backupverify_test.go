package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verified damages two blocks of a volume's backups, of which the volume holds both: a verification
// finds them and no other, the backups say so, a restore that accepts it has zeroes there, and what
// is repaired is sound again, with the bytes that it had. content is that of the second backup.
func (c *cluster) verified(store, volume, first, second string, content []byte) {
	c.t.Helper()
	all := len(blocksOf(c, store, volume, first, second))
	if status, out, text := c.ankole(c.t, "backup", "verify", volume); status != 0 ||
		!strings.Contains(out, fmt.Sprintf("all sound, %d blocks were read", all)) {
		c.t.Fatalf("status %d of sound backups with %d blocks: %s%s", status, all, out, text)
	}
	newest := blocksOf(c, store, volume, second)
	missing, damaged := newest[0], newest[len(newest)-1]
	before, err := os.ReadFile(damaged)
	if err != nil {
		c.t.Fatal(err)
	}
	rotten := slices.Clone(before)
	rotten[len(rotten)/2] ^= 0x10
	if err := errors.Join(os.Remove(missing), os.WriteFile(damaged, rotten, 0o600)); err != nil {
		c.t.Fatal(err)
	}
	status, out, text := c.ankole(c.t, "backup", "verify", volume, "--bandwidth", "500")
	lines := strings.Count(out, "\n")
	if status != 1 || lines != 3 || !strings.Contains(text, "2 objects damaged or missing") {
		c.t.Fatalf("status %d of two damaged blocks: %s%s", status, out, text)
	}
	for file, kind := range map[string]string{missing: "missing", damaged: "damaged"} {
		row := regexp.MustCompile(volume + ` +` + kind + ` +` + filepath.Base(file) + ` +.*` + second)
		if !row.MatchString(out) {
			c.t.Errorf("no row like %s:\n%s", row, out)
		}
	}
	c.eventually("the backup says that it is hurt", func(context.Context) error {
		if m := c.backup(second).Messages["error"]; !strings.Contains(m, "2 of its blocks or records") {
			return errors.New(m)
		}
		return nil
	})
	c.restoredDamaged(store, volume, second, content, missing, damaged)
	c.command("backup", "verify", volume, "--repair")
	if after, err := os.ReadFile(damaged); err != nil || !slices.Equal(after, before) {
		c.t.Errorf("the damaged block is not what it was: %v", err)
	}
	if _, err := os.Stat(missing); err != nil || strings.Contains(records(store), ".mark") {
		c.t.Errorf("the missing block: %v; the store has %s", err, records(store))
	}
	c.eventually("the backup is sound", func(context.Context) error {
		if m := c.backup(second).Messages["error"]; m != "" {
			return errors.New(m)
		}
		return nil
	})
	for _, b := range c.backups(volume) {
		if strings.HasPrefix(b.SnapshotName, "repair-") {
			if err := c.rest.DeleteBackup(context.Background(), b.Name); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.eventually("the backup that has repaired it is deleted", func(context.Context) error {
		if n := len(c.backups(volume)); n != 2 || strings.Contains(records(store), ".lck") {
			return fmt.Errorf("%d backups, %s", n, records(store))
		}
		return nil
	})
}

// restoredDamaged restores a backup whose blocks in two files are damaged, which a person accepts:
// those blocks are zero, and the volume says so until it is acknowledged.
func (c *cluster) restoredDamaged(store, volume, backup string, content []byte, files ...string) {
	c.t.Helper()
	status, out, errors := c.ankole(c.t, "backup", "restore", backup, "b4", "--replicas", "1", "--accept-damage")
	defer c.remove("b4")
	if status != 0 || !strings.Contains(out, "volume b4 is not whole: ") {
		c.t.Fatalf("status %d of a restore with damage accepted: %s%s", status, out, errors)
	}
	want := slices.Clone(content)
	text, err := os.ReadFile(recordOf(c, store, volume, backup))
	if err != nil {
		c.t.Fatal(err)
	}
	damage := c.volume("b4").Conditions["BackupDamage"].Message
	for _, file := range files {
		sum := strings.TrimSuffix(filepath.Base(file), ".blk")
		m := regexp.MustCompile(`"Offset":([0-9]+),"BlockChecksum":"` + sum).FindSubmatch(text)
		if m == nil {
			c.t.Fatalf("backup %s does not list %s", backup, sum)
		}
		offset, err := strconv.Atoi(string(m[1]))
		if err != nil || !strings.Contains(damage, fmt.Sprint(offset)) {
			c.t.Errorf("%d: %v; the volume says %q", offset, err, damage)
		}
		clear(want[offset : offset+2*mib])
	}
	if got := c.content(c.attach("b4", "node-1", 1)); !slices.Equal(got, want) {
		c.t.Error("what was restored with damage accepted is not the backup with zeroes where it is damaged")
	}
	c.detach("b4")
	if _, out, _ := c.ankole(c.t, "volume", "describe", "b4"); !strings.Contains(out, damage) {
		c.t.Errorf("ankole volume describe does not say %q:\n%s", damage, out)
	}
	c.command("volume", "accept-backup-damage", "b4", "--yes")
	c.eventually("it is acknowledged", func(context.Context) error {
		if d := c.volume("b4").Conditions["BackupDamage"]; d.Status != "False" {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
}

// recordOf is the file of a backup's record.
func recordOf(c *cluster, store, volume, backup string) string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "backupstore/volumes/*/*", volume, "backups",
		"backup_"+backup+".cfg"))
	if err != nil || len(files) != 1 {
		c.t.Fatalf("records of backup %s: %v %v", backup, files, err)
	}
	return files[0]
}

var checksum = regexp.MustCompile(`"BlockChecksum":"([0-9a-f]{64})"`)

// blocksOf are the files of the blocks that backups list, each once.
func blocksOf(c *cluster, store, volume string, backups ...string) (files []string) {
	c.t.Helper()
	for _, b := range backups {
		record := recordOf(c, store, volume, b)
		text, err := os.ReadFile(record)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range checksum.FindAllStringSubmatch(string(text), -1) {
			files = append(files, filepath.Join(filepath.Dir(filepath.Dir(record)), "blocks", m[1][:2], m[1][2:4],
				m[1]+".blk"))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}
