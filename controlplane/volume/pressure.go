package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
)

// gatherTurns finds the replicas of the volume that may leave a disk under pressure. One at a time
// does, so that a disk is not left by more than it takes: of the replicas there that are in sync
// and of a healthy volume that balances with best effort, the first by name.
func (r *Reconciler) gatherTurns(ctx context.Context, v *v1beta2.Volume, s *seen) error {
	if !leaves(v, s.Settings) {
		return nil
	}
	policy := scheduling{newPass(r.cfg.Now(), v, *s)}.policy()
	if policy.BalancePressurePercent <= 0 {
		return nil
	}
	if s.Partial { // any of them may report the disk
		all, err := r.gatherAll(ctx, v, *s)
		if err != nil {
			return err
		}
		*s = all
	}
	p := newPass(r.cfg.Now(), v, *s)
	pressed := schedule.PressedDisks(scheduling{p}.scheduleNodes(), policy)
	for i := range s.Replicas {
		rep := &s.Replicas[i]
		if !pressed[rep.Spec.DiskID] || !healthy(rep) {
			continue
		}
		first, err := r.firstOn(ctx, v.Namespace, rep.Spec.DiskID, s.Settings)
		if err != nil {
			return err
		}
		if first == rep.Name {
			if s.MayLeave == nil {
				s.MayLeave = map[string]bool{}
			}
			s.MayLeave[first] = true
		}
	}
	return nil
}

// leaves says whether a volume's replicas leave disks under pressure now.
func leaves(v *v1beta2.Volume, settings setting.Values) bool {
	return v.DeletionTimestamp == nil && v.Status.State == v1beta2.VolumeStateAttached &&
		v.Status.Robustness == v1beta2.VolumeRobustnessHealthy &&
		balancingOf(v, settings) == v1beta2.ReplicaAutoBalanceBestEffort
}

// firstOn is the replica whose turn it is to leave a disk, empty if there is none.
func (r *Reconciler) firstOn(ctx context.Context, namespace, disk string, settings setting.Values) (string, error) {
	var list v1beta2.ReplicaList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), index.OnDisk(disk),
		client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list replicas on disk %s: %w", disk, err)
	}
	there := make([]*v1beta2.Replica, 0, len(list.Items))
	for i := range list.Items {
		if rep := &list.Items[i]; healthy(rep) && rep.Spec.Active && rep.DeletionTimestamp == nil {
			there = append(there, rep)
		}
	}
	slices.SortFunc(there, func(a, b *v1beta2.Replica) int { return strings.Compare(a.Name, b.Name) })
	for _, rep := range there {
		var of v1beta2.Volume
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: rep.Spec.VolumeName}, &of,
			client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("get volume %s: %w", rep.Spec.VolumeName, err)
		}
		if err == nil && leaves(&of, settings) {
			return rep.Name, nil
		}
	}
	return "", nil
}
