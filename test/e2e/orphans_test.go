package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ankole.storage/rest/resource"
)

// orphanedData: a replica's directory that no Replica names is reported, and goes with its Orphan.
// One that a Replica names is neither reported nor removed, whether or not its volume is attached.
func orphanedData(t *testing.T, c *cluster) {
	const volume, stray = "orphans", "lost-volume-1a2b3c4d"
	c.create(volume, 16*mib, 3)
	defer c.remove(volume)
	c.attach(volume, "node-1", 3)
	c.detach(volume)
	var used string
	for _, dir := range c.replicaDirs(volume) {
		if filepath.Base(dir) == c.directoryOn(volume, "node-1") {
			used = dir
		}
	}
	left := filepath.Join(filepath.Dir(used), stray)
	if err := os.CopyFS(left, os.DirFS(used)); err != nil {
		t.Fatal(err)
	}
	hour := time.Now().Add(-time.Hour) // neither is left alone because it was just changed
	for _, dir := range []string{left, used} {
		if err := os.Chtimes(dir, hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	var found resource.Orphan
	c.eventually("the stray directory is reported", func(ctx context.Context) error {
		all, err := c.rest.Orphans(ctx)
		for _, o := range all {
			switch o.Parameters["DataName"] {
			case filepath.Base(used):
				t.Fatalf("the directory of a replica is reported: %+v", o)
			case stray:
				found = o
			}
		}
		if err == nil && found.Name == "" {
			err = fmt.Errorf("not among %d orphans", len(all))
		}
		return err
	})
	if found.NodeID != "node-1" || found.OrphanType != "replica" || found.Parameters["DiskUUID"] == "" {
		t.Errorf("it is reported as %+v", found)
	}
	if err := c.rest.DeleteOrphan(context.Background(), found.Name); err != nil {
		t.Fatal(err)
	}
	c.eventually("the stray directory and its orphan are gone", func(ctx context.Context) error {
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %v", left, err)
		}
		all, err := c.rest.Orphans(ctx)
		if slices.ContainsFunc(all, func(o resource.Orphan) bool { return o.Name == found.Name }) {
			return fmt.Errorf("orphan %s is there", found.Name)
		}
		return err
	})
	c.identical(volume, 3)
}
