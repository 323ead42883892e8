// Package instance is the state machine that engines and replicas share: the life of one process in
// an instance manager, as the control plane sees it.
//
// Somebody writes spec.desireState (running or stopped) and, for the engine, spec.nodeID. The
// controller of the kind calls Step, which derives status.currentState from what is known of the
// instance manager and heard of its processes, and names at most one thing to do: create the
// process, or delete it. Six rules shape it:
//
//   - A process is created only from state stopped. Whoever wants a failed one back asks for
//     stopped first; an engine may also be told which run is over (Forget).
//   - A process that was seen running (status.started) and is not there any more is in error; one
//     that never ran is just stopped.
//   - A process is the object's by the order that it was made for, not by its name (Judge).
//   - A process that was ordered and is not listed may be there all the same: its instance manager
//     is asked before the instance counts as stopped (Ask).
//   - An instance manager that was not heard yet, by a new leader for instance, changes nothing: what
//     is recorded stays, and nothing is ordered.
//   - A node that is cut off makes the state unknown, never stopped or error: the process may well
//     be running. Asked to stop, such an instance counts as stopped all the same, because nobody
//     could stop it and the data path fences it (a newer epoch); the process is deleted when its
//     node comes back (Strays).
//
// The package is pure; Processes is the seam to the instance managers.
package instance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
)

// Process is what an instance manager is asked to run.
type Process struct {
	Name, Binary string
	Args         []string
	// PortCount ports are reserved; the first is appended to PortArgs.
	PortCount int
	PortArgs  []string
	// Environment is write-only: it holds the volume's secret and is never reported back.
	Environment map[string]string
	// Order is the order it is made for: status.order of the object.
	Order string
}

// Processes creates and deletes processes in instance managers.
type Processes interface {
	// Get returns the process of that name, nil if there is none.
	Get(ctx context.Context, im *v1beta2.InstanceManager, name string) (*v1beta2.InstanceProcess, error)
	// Create orders a process; one that exists already is no error if it was made for the same order.
	Create(ctx context.Context, im *v1beta2.InstanceManager, p Process) error
	// Delete orders the end of a process, only of that UUID unless it is empty; one that does not
	// exist is no error.
	Delete(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error
	// DeleteLast is Delete for a process that no other one of its name follows in that instance
	// manager.
	DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error
	// Replace has an engine's process hand its volume over to a new one of another binary, and returns
	// when that is done or has failed: then the old one serves, or its failure shows. ErrUnsettled if
	// neither is known.
	Replace(ctx context.Context, im *v1beta2.InstanceManager, p Process) error
}

// ErrUnsettled: nobody knows yet how a replacement has ended, or another one is under way. The same
// order tells, sent again.
var ErrUnsettled = errors.New("the replacement is not over")

// Action is what Step asks for.
type Action int

// Actions.
const (
	None Action = iota
	Create
	Delete
	// DeleteOther is to end the process in Seen.Process, by its UUID: it has the object's name and
	// was made for another order (Theirs, Over).
	DeleteOther
)

// Seen is what is known about an instance's process.
type Seen struct {
	// UID is the object's.
	UID string
	// Manager is the instance manager that holds or should hold the process, nil if there is none
	// (see Choose).
	Manager *v1beta2.InstanceManager
	// Process is the process in Manager, nil if it is not there.
	Process *v1beta2.InstanceProcess
	// Asked: Manager itself has said so (Ask); else its last list does.
	Asked bool
	// Silent: this leader has heard no list from Manager yet, so nobody knows what runs there.
	Silent bool
	// Young: Process has begun to start only a moment ago, and whoever looks is woken when it runs, or
	// when that moment is over.
	Young bool
	// Image is the one that Process was started from; empty if nobody can tell: then that of the spec,
	// unless the status names one.
	Image string
	// NodeDown: the node does not answer or is gone.
	NodeDown bool
}

// Find returns the process of that name in an instance manager with the lists that were heard from
// it (package heard), nil if it is not there.
func Find(im *v1beta2.InstanceManager, name string) *v1beta2.InstanceProcess {
	if im == nil {
		return nil
	}
	for _, m := range []map[string]v1beta2.InstanceProcess{im.Status.InstanceEngines, im.Status.InstanceReplicas} {
		if p, ok := m[name]; ok {
			return &p
		}
	}
	return nil
}

// StorageIP is the address at which the processes in a running instance manager are reached for
// data: that on the storage network if there is one, else the Pod's.
func StorageIP(im *v1beta2.InstanceManager) string {
	if im.Status.StorageIP != "" {
		return im.Status.StorageIP
	}
	return im.Status.IP // not recorded by an older manager
}

// Forget takes a run out of what is seen, if it has ended: the instance is stopped then, and not
// failed, and may be created anew, in place of the process that is still listed. It tells whether
// the run was there.
func Forget(status *v1beta2.InstanceStatus, seen *Seen, uuid string) bool {
	p := seen.Process
	if uuid == "" || p == nil || p.Status.UUID != uuid || !ended(p) {
		return false
	}
	seen.Process, status.Started = nil, false
	if status.UUID == uuid {
		status.Starting = false // else the next run is recorded already, and this is its process to come
	}
	return true
}

// ended tells whether a process that is listed has ended.
func ended(p *v1beta2.InstanceProcess) bool {
	return p.Status.State == v1beta2.InstanceStateError || p.Status.State == v1beta2.InstanceStateStopped
}

// Choose returns the instance manager for an instance: the recorded one while there is a record,
// else the one of type aio on the node, that of the default image before others.
func Choose(all []v1beta2.InstanceManager, recorded, node, defaultImage string) *v1beta2.InstanceManager {
	var found *v1beta2.InstanceManager
	for i := range all {
		im := &all[i]
		if recorded != "" {
			if im.Name == recorded {
				return im
			}
			continue
		}
		if node == "" || im.Spec.NodeID != node || im.Spec.Type != v1beta2.InstanceManagerTypeAllInOne ||
			im.DeletionTimestamp != nil {
			continue
		}
		if found == nil || im.Spec.Image == defaultImage {
			found = im
		}
	}
	return found
}

// Strays are running instance managers, other than the chosen one, that hold a process of that
// name. Such a process outlived a node's absence and must go. One that has ended in a Pod which is
// about to be removed goes with it.
func Strays(all []v1beta2.InstanceManager, chosen *v1beta2.InstanceManager, name string) []*v1beta2.InstanceManager {
	var out []*v1beta2.InstanceManager
	for i := range all {
		im := &all[i]
		if (chosen != nil && im.Name == chosen.Name) || im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
			continue
		}
		p := Find(im, name)
		if p == nil || p.Status.State == v1beta2.InstanceStateStopping || im.Status.ClosedPod != "" && ended(p) {
			continue
		}
		out = append(out, im)
	}
	slices.SortFunc(out, func(a, b *v1beta2.InstanceManager) int { return strings.Compare(a.Name, b.Name) })
	return out
}
