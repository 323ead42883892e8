package engine

import (
	"context"
	"fmt"

	"ankole.storage/api/longhorn/v1beta2"
)

// The orders that decide names, and that carry carries out.
type (
	// order is one that says everything by its name.
	order string
	// startOrder starts the engine's process in an instance manager, in place of the run After, if one
	// is named.
	startOrder struct {
		In    *v1beta2.InstanceManager
		After string
	}
	// stopOrder ends a process of the engine's name. Last: none follows it there.
	stopOrder struct {
		In   *v1beta2.InstanceManager
		UUID string
		Last bool
	}
	// logOrder has the end of the log of the engine's process copied.
	logOrder struct{ In *v1beta2.InstanceManager }
	// releaseOrder tells an instance manager that no process of the engine follows there.
	releaseOrder struct{ In *v1beta2.InstanceManager }
	// handOrder begins to hand the volume over to a process of spec.image.
	handOrder struct{ In *v1beta2.InstanceManager }
	// addOrder and removeOrder are about the replica at an address.
	addOrder    struct{ Address string }
	removeOrder struct{ Address string }
)

const (
	orderExpand  order = "expand to spec.volumeSize"
	orderLimits  order = "set the limits of snapshots"
	orderPace    order = "set the pace of rebuilds"
	orderClone   order = "fill the volume from another one"
	orderRestore order = "fill the volume from a backup"
	orderPurge   order = "purge snapshots"
)

func (r *Reconciler) carry(ctx context.Context, e *v1beta2.Engine, s seen, what any) error {
	switch o := what.(type) {
	case startOrder:
		return r.start(ctx, e, o)
	case stopOrder:
		if o.Last {
			return r.processes.DeleteLast(ctx, o.In, e.Name, o.UUID)
		}
		return r.processes.Delete(ctx, o.In, e.Name, o.UUID)
	case logOrder:
		return r.logs.Fetch(ctx, o.In, e.Name, string(e.UID))
	case releaseOrder:
		return r.release(ctx, e, o.In)
	case handOrder:
		return r.handOn(ctx, o.In, e)
	case addOrder:
		return r.add(ctx, e, o.Address)
	case removeOrder:
		_, err := r.engines.ReplicaRemove(ctx, target(e), o.Address)
		return err
	}
	switch what {
	case orderExpand:
		return r.engines.Expand(ctx, target(e), e.Spec.VolumeSize)
	case orderLimits:
		return r.setLimits(ctx, e)
	case orderPace:
		return r.setPace(ctx, e, s.Pace)
	case orderClone:
		return r.beginClone(ctx, e, s.Clone)
	case orderRestore:
		return r.beginRestore(ctx, e, s.Restore)
	case orderPurge:
		return r.cfg.Purge(ctx, target(e), true)
	}
	return fmt.Errorf("engine %s: nobody carries out %T %v", e.Name, what, what)
}
