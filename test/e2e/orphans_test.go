package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
)

// orphanTest has directories that no Replica names. Nodes list their disks every half minute: they
// are put there before other scenarios run, and looked for later.
type orphanTest struct{ used, byHand, byItself string }

const orphanVolume = "orphans"

// leave puts them beside those of a replica.
func (o *orphanTest) leave(t *testing.T, c *cluster) {
	c.create(orphanVolume, 16*mib, 3)
	c.attach(orphanVolume, "node-1", 3)
	c.detach(orphanVolume)
	for _, dir := range c.replicaDirs(orphanVolume) {
		if filepath.Base(dir) == c.directoryOn(orphanVolume, "node-1") {
			o.used = dir
		}
	}
	o.byHand = filepath.Join(filepath.Dir(o.used), "lost-volume-1a2b3c4d")
	o.byItself = filepath.Join(filepath.Dir(o.used), "lost-volume-5e6f7a8b")
	for _, dir := range []string{o.byHand, o.byItself} {
		if err := os.RemoveAll(dir); err != nil { // of a first try, before a scenario that has failed
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(o.used)); err != nil {
			t.Fatal(err)
		}
	}
	hour := time.Now().Add(-time.Hour) // none is left alone because it was just changed
	for _, dir := range []string{o.byHand, o.byItself, o.used} {
		if err := os.Chtimes(dir, hour, hour); err != nil {
			t.Fatal(err)
		}
	}
}

// found: a replica's directory that no Replica names is reported, and goes with its Orphan: when a
// person deletes that, or by itself where the setting says so. A directory that a Replica names is
// neither reported nor removed.
func (o *orphanTest) found(t *testing.T, c *cluster) {
	if _, err := os.Stat(o.used); err != nil { // it runs alone, or one before it has failed
		o.leave(t, c)
	}
	defer c.remove(orphanVolume)
	used, byHand, byItself := o.used, o.byHand, o.byItself
	found := c.reportedData(used, byHand, byItself)
	for _, o := range found {
		if o.NodeID != "node-1" || o.OrphanType != "replica" || o.Parameters["DiskUUID"] == "" {
			t.Errorf("it is reported as %+v", o)
		}
	}
	if err := c.rest.DeleteOrphan(context.Background(), found[byHand].Name); err != nil {
		t.Fatal(err)
	}
	c.orphanGone(found[byHand], byHand)
	if _, err := os.Stat(byItself); err != nil {
		t.Errorf("the other directory is gone too: %v", err)
	}
	c.setting(setting.OrphanResourceAutoDeletionGracePeriod, "0")
	c.setting(setting.OrphanResourceAutoDeletion, setting.OrphanKindReplicaData)
	c.orphanGone(found[byItself], byItself)
	c.setting(setting.OrphanResourceAutoDeletion, "")
	c.setting(setting.OrphanResourceAutoDeletionGracePeriod, "300")
	c.identical(orphanVolume, 3)
}

// reportedData waits until stray directories are reported, and returns their orphans. That of a
// replica must not be.
func (c *cluster) reportedData(used string, stray ...string) map[string]resource.Orphan {
	c.t.Helper()
	found := map[string]resource.Orphan{}
	c.eventually("stray directories are reported", func(ctx context.Context) error {
		all, err := c.rest.Orphans(ctx)
		for _, o := range all {
			dir := filepath.Join(filepath.Dir(used), o.Parameters["DataName"])
			if dir == used {
				c.t.Fatalf("the directory of a replica is reported: %+v", o)
			}
			if slices.Contains(stray, dir) {
				found[dir] = o
			}
		}
		if err == nil && len(found) < len(stray) {
			err = fmt.Errorf("%d of %d, among %d orphans", len(found), len(stray), len(all))
		}
		return err
	})
	return found
}

// orphanGone waits until an orphan and its directory are gone.
func (c *cluster) orphanGone(o resource.Orphan, dir string) {
	c.t.Helper()
	c.eventually("orphan and directory are gone: "+dir, func(ctx context.Context) error {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("directory: %v", err)
		}
		all, err := c.rest.Orphans(ctx)
		if slices.ContainsFunc(all, func(other resource.Orphan) bool { return other.Name == o.Name }) {
			return fmt.Errorf("orphan %s is there", o.Name)
		}
		return err
	})
}
