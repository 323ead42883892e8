package manager

import (
	"context"
	"log/slog"
	"time"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
)

// holdAgain is when an agent that could not listen for its node's instance managers tries again:
// another agent of the node may be ending.
const holdAgain = time.Second

// deviceDir is where engines make nodes of block devices, as the Pod sees it.
const deviceDir = "/dev/longhorn"

// removeDead removes what is left of a volume's device that nobody keeps any more. Without an
// instance manager on the node nobody else would.
func removeDead(volume string) {
	cfg := blockdev.Config{Volume: volume, DeviceDir: hostpath.Resolve(deviceDir)}
	if err := blockdev.RemoveLeft(context.Background(), cfg); err != nil {
		slog.Warn("something is left of a block device that nobody serves", "volume", volume, "error", err)
	}
}

// holdDevices keeps what the instance managers of the node keep of block devices too, so that the
// devices outlive the end of an instance manager. Without it everything else works as well.
func holdDevices(ctx context.Context) {
	socket := hostpath.Resolve(keeper.SecondSocket)
	told := false
	for ctx.Err() == nil {
		err := listener.RemoveStale(socket)
		if err == nil {
			var l listener.Unix
			if l, err = keeper.Listen(socket); err == nil {
				keeper.NewServer(slog.Default(), 0).WithEnded(removeDead).Serve(ctx, l)
				return
			}
		}
		if !told {
			slog.Warn("block devices of this node have no second holder: they fail when their instance manager ends; see "+
				"that the host's directory of the socket can be written; it is tried again every second", "socket",
				keeper.SecondSocket, "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(holdAgain):
		}
	}
}
