package cluster

import (
	"context"
	"time"

	"ankole.storage/dataplane/device/blockdev"
)

// sweepWait bounds the search for block devices without a server; a user who keeps one open cannot
// hold the stop up.
const sweepWait = 15 * time.Second

// sweepDevices removes the block devices that engines left when they were killed: mounts, loop
// devices and nodes outlive their server, and every use of them fails.
func (c *Cluster) sweepDevices() {
	if !blockdev.Possible() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepWait)
	defer cancel()
	seen := map[string]bool{}
	for k := 1; k <= c.cfg.Nodes; k++ {
		dir := c.cfg.deviceDir(c.dir.Path(), k)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if err := blockdev.Sweep(ctx, dir); err != nil {
			c.out.line("block devices of killed engines are left in %s: %v", dir, err)
		}
	}
}
