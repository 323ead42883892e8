package daemon

import (
	"context"
	"log/slog"
	"time"

	"ankole.storage/instancemanager/filesystem"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/readonly"
)

// frozenMarks is where it is noted which file systems are frozen, as the Pod sees it: on the node's
// disk, so that the next instance manager finds it.
const frozenMarks = "/host/var/lib/longhorn/frozen"

// thawPeriod is that between two looks for file systems that a killed instance manager beside this
// one has left frozen.
const thawPeriod = time.Minute

// fileSystems is what is done with file systems that are mounted from volumes.
type fileSystems struct{ filesystem.Node }

// readOnly looks for file systems that have gone read-only and has them made writable.
func (f *fileSystems) readOnly(processes *process.Manager, log *slog.Logger) *readonly.Checker {
	return &readonly.Checker{Manager: processes, Mounts: filesystem.Mounts, Remount: f.Remount, Log: log,
		Period: readonly.Period}
}

// thawLeft thaws what has been left frozen, until ctx ends.
func (f *fileSystems) thawLeft(ctx context.Context) {
	tick := time.NewTicker(thawPeriod)
	defer tick.Stop()
	f.Recover(ctx, tick.C)
}

func newFileSystems(log *slog.Logger) *fileSystems {
	return &fileSystems{filesystem.Node{Quiescer: &filesystem.Quiescer{Marks: frozenMarks, Log: log,
		SyncLimit: filesystem.DefaultSyncLimit, FreezeLimit: filesystem.DefaultFreezeLimit}}}
}
