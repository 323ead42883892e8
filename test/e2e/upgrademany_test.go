package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/testcluster"
)

// Volumes of TestE9, each of two replicas; some are attached to each of the three nodes.
const (
	manyVolumes    = 60
	manyPerNode    = 16
	manyLimit      = 3
	manyVolumeSize = 16 * mib
)

// TestE9 brings sixty volumes to another engine image and, within a limit per node, back by
// themselves, while fio writes to each of the 48 that are attached and verifies what it has
// written. No fio sees an error, no volume is upgraded beyond the limit, and the replicas of all
// hold the same. volume.TestE9ThousandsOfVolumes has 2,000.
func TestE9(t *testing.T) {
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, NodeGrace: nodeGrace, Images: engineImages(t)})
	c.managersRun()
	c.addEngineImages(engineNext)
	c.setting("allow-live-engine-upgrade-on-same-image-commit", "true")
	names := c.createMany("many", manyVolumes, manyVolumeSize, 2)
	at := map[string]string{}
	for i, name := range names[:manyPerNode*len(c.Nodes)] {
		at[name] = c.Nodes[i%len(c.Nodes)].Name
	}
	began := time.Now()
	loads := c.fioOnAll(at)
	t.Logf("%d of %d volumes attached in %.1f s", len(at), len(names), time.Since(began).Seconds())
	check := func() {
		for _, f := range loads {
			f.Check()
		}
	}

	began = time.Now()
	for _, name := range names {
		c.upgrade(name, engineNext)
	}
	for _, name := range names {
		c.awaitEngineImage(name, engineNext)
	}
	check()
	c.awaitReferences(engineDefault, 0)
	t.Logf("by hand, all at once: %.1f s", time.Since(began).Seconds())

	began = time.Now()
	c.upgradesWithin(manyLimit, names, engineDefault)
	check()
	c.awaitReferences(engineNext, 0)
	t.Logf("by themselves, at most %d of a node at once: %.1f s", manyLimit, time.Since(began).Seconds())

	var longest []time.Duration
	written, verified := 0, 0
	for name, f := range loads {
		c.awaitUsable(name, at[name], 2)
		r := f.Stop()
		longest = append(longest, r.Longest)
		written, verified = written+r.Written, verified+r.Verified
	}
	slices.Sort(longest)
	t.Logf("sum: fio has written %d and verified %d blocks; slowest write of a volume: median %v, longest %v",
		written, verified, longest[len(longest)/2], longest[len(longest)-1])
	for name := range loads {
		c.detach(name)
		c.identical(name, 2)
	}
	c.removeMany(names)
}

// fioOnAll attaches volumes, at holds where, all at the same time, and runs fio on each.
func (c *cluster) fioOnAll(at map[string]string) map[string]*rig.Fio {
	c.t.Helper()
	loads := map[string]*rig.Fio{}
	for name, endpoint := range c.attachAll(at) {
		f := rig.StartFio(c.t, filepath.Join(c.t.TempDir(), "fio"), endpoint, "--iodepth=2",
			fmt.Sprint("--size=", manyVolumeSize/2), "--verify_backlog=64", "--rate_iops=5")
		if f == nil {
			lack.Skip(c.t, "fio is not here, or has no engine for ", endpoint)
		}
		loads[name] = f
	}
	return loads
}
