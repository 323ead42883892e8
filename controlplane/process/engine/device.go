package engine

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/instance"
)

// deviceManager is the instance manager that may keep the engine's block device, nil if it is not
// there any more.
func deviceManager(e *v1beta2.Engine, s seen) *v1beta2.InstanceManager {
	i := slices.IndexFunc(s.Managers, func(im v1beta2.InstanceManager) bool { return im.Name == e.Status.DeviceIn })
	if e.Status.DeviceIn == "" || i < 0 {
		return nil
	}
	return &s.Managers[i]
}

// noteDevice notes where the block device of a running engine is. Where it was before is told first
// that none follows there, unless nobody can be told.
func noteDevice(e *v1beta2.Engine, s seen) {
	if !follows(e, e.Spec.NodeID) {
		return
	}
	im := deviceManager(e, s)
	if im == nil || follows(e, im.Spec.NodeID) || im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		e.Status.DeviceIn = e.Status.InstanceManagerName
	}
}

// follows tells whether another process of the engine may follow on a node.
func follows(e *v1beta2.Engine, node string) bool {
	return e.DeletionTimestamp == nil && e.Spec.NodeID != "" && e.Spec.NodeID == node
}

// releaseDevice tells an instance manager that no engine follows there, for which it would keep the
// block device of one that has died: with the order to stop that is told of a process that is
// listed, this tells it of one that was deleted before.
//
// Crash window: it is told and a new leader does not know that; it is told again.
func releaseDevice(e *v1beta2.Engine, s seen) loop.Decision {
	im := deviceManager(e, s)
	switch {
	case im == nil || s.Released == e.Status.DeviceIn:
		e.Status.DeviceIn = ""
	case !follows(e, im.Spec.NodeID) && im.Status.CurrentState == v1beta2.InstanceManagerStateRunning &&
		!s.Silent[im.Name] && instance.Find(im, e.Name) == nil:
		return loop.Decision{Do: loop.Call{What: "release the block device of engine " + e.Name + " in " + im.Name,
			Order: releaseOrder{im}}}
	}
	return loop.Decision{}
}

func (r *Reconciler) release(ctx context.Context, e *v1beta2.Engine, im *v1beta2.InstanceManager) error {
	err := r.processes.DeleteLast(ctx, im, e.Name, noProcess)
	if err == nil {
		r.released.note(e)
	}
	return err
}

// noProcess is a UUID that no process has: the order is about what is kept for the name, and ends
// no process that has it by then.
const noProcess = "none"

// released are the engines whose instance manager has been told, by name.
type released struct {
	mu sync.Mutex
	of map[string]releasedFrom
}

type releasedFrom struct {
	uid types.UID
	in  string
}

func (r *released) note(e *v1beta2.Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]releasedFrom{}
	}
	r.of[e.Name] = releasedFrom{e.UID, e.Status.DeviceIn}
}

// by is the instance manager that was told of the engine. One without a device is forgotten: what
// it has next is another one.
func (r *released) by(e *v1beta2.Engine) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Status.DeviceIn == "" || r.of[e.Name].uid != e.UID {
		delete(r.of, e.Name)
	}
	return r.of[e.Name].in
}

func (r *released) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, name)
}
