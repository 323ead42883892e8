package instancemanager

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/orphan"
	"ankole.storage/controlplane/object/naming"
)

// gatherOrphans finds the processes in the Pod that no object has, and one of them that is not
// reported yet. Processes that are not confirmed are not judged.
func (r *Reconciler) gatherOrphans(ctx context.Context, im *v1beta2.InstanceManager, s *seen) error {
	if s.Processes == nil || !s.UnconfirmedSince.IsZero() {
		return nil
	}
	s.Orphaned = map[string]bool{}
	for _, m := range []map[string]v1beta2.InstanceProcess{s.Processes.Engines, s.Processes.Replicas} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			p := m[name]
			owned, err := orphan.Owned(ctx, r.client, im.Namespace, name, p.Status.Type == v1beta2.InstanceTypeEngine)
			if err != nil {
				return err
			}
			if owned {
				continue
			}
			s.Orphaned[name] = true
			if s.Orphan != nil || p.Status.State == v1beta2.InstanceStateStopping {
				continue
			}
			o := orphan.Of(im, &p)
			reported, err := read(ctx, r.client, im.Namespace, o.Name, &v1beta2.Orphan{})
			if err != nil {
				return fmt.Errorf("look for the orphan of process %s: %w", name, err)
			}
			if reported == nil {
				s.Orphan = o
			}
		}
	}
	return nil
}

// report makes the Orphan of a process that belongs to nobody.
func report(im *v1beta2.InstanceManager, o *v1beta2.Orphan) loop.Decision {
	return loop.Decision{
		Do: loop.Create{Object: o},
		Events: []loop.Event{{On: o, Warning: true, Reason: naming.EventOrphaned, Message: "Process " +
			o.Spec.Parameters[v1beta2.OrphanParameterInstanceName] + " in " + im.Name + " has no object of its name"}},
	}
}

// engineIn names a process of an engine in the Pod, the first one by name, "" if there is none.
// Those that belong to nobody do not count: a drain does not wait for these.
func (s seen) engineIn() string {
	if s.Processes == nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(s.Processes.Engines)) {
		if !s.Orphaned[name] {
			return name
		}
	}
	return ""
}
