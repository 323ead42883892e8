package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// verified damages two blocks of a volume's backups, of which the volume holds both: a verification
// finds them and no other, the backups say so, and what is repaired is sound again, with the bytes
// that it had.
func (c *cluster) verified(store, volume, first, second string) {
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

var checksum = regexp.MustCompile(`"BlockChecksum":"([0-9a-f]{64})"`)

// blocksOf are the files of the blocks that backups list, each once.
func blocksOf(c *cluster, store, volume string, backups ...string) (files []string) {
	c.t.Helper()
	folder := filepath.Join(store, "backupstore/volumes/*/*", volume)
	for _, b := range backups {
		records, err := filepath.Glob(filepath.Join(folder, "backups", "backup_"+b+".cfg"))
		if err != nil || len(records) != 1 {
			c.t.Fatalf("records of backup %s: %v %v", b, records, err)
		}
		text, err := os.ReadFile(records[0])
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range checksum.FindAllStringSubmatch(string(text), -1) {
			files = append(files, filepath.Join(filepath.Dir(filepath.Dir(records[0])), "blocks", m[1][:2], m[1][2:4],
				m[1]+".blk"))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}
