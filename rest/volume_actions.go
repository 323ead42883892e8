package rest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/rest/resource"
)

// Bounds of the number of replicas of a volume.
const (
	minReplicas = 1
	maxReplicas = 20
)

// volumeEdit is an action that changes the wishes for a volume: in is its input, edit judges and
// makes the change. An input that asks for what is wanted already changes nothing.
func volumeEdit[T any](what string, edit func(v *lh.Volume, in T) error) handler {
	return func(q *request) (any, error) {
		var in T
		if err := q.decode(&in); err != nil {
			return nil, err
		}
		name := q.params["name"]
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			var v lh.Volume
			if err := q.server.get(q.Context(), name, &v); err != nil {
				return err
			}
			before := v.DeepCopy()
			if err := edit(&v, in); err != nil {
				return err
			}
			if equality.Semantic.DeepEqual(before.Spec, v.Spec) {
				return nil
			}
			return q.server.cfg.Client.Update(q.Context(), &v)
		})
		if err != nil {
			return nil, fmt.Errorf("unable to update %s of volume %s: %w", what, name, err)
		}
		return q.volume(name)
	}
}

var updateReplicaCount = volumeEdit("replica count", func(v *lh.Volume, in resource.UpdateReplicaCountInput) error {
	switch {
	case v.Status.State != lh.VolumeStateAttached:
		return fmt.Errorf("invalid volume state to update replica count: the volume is %s, attach it first", volumeState(v))
	case in.ReplicaCount < minReplicas || in.ReplicaCount > maxReplicas:
		return fmt.Errorf("the replica count is %d, it must between %d to %d", in.ReplicaCount, minReplicas, maxReplicas)
	case v.Spec.DataLocality == lh.DataLocalityStrictLocal && in.ReplicaCount != minReplicas:
		return errors.New("number of replica count should be 1 when data locality is strict-local")
	case v.Status.CurrentImage != "" && v.Status.CurrentImage != v.Spec.Image:
		return errors.New("the engine is being upgraded; wait until that is done")
	case v.Spec.MigrationNodeID != "":
		return errMigrating
	}
	v.Spec.NumberOfReplicas = in.ReplicaCount
	return nil
})

var updateDataLocality = volumeEdit("data locality", func(v *lh.Volume, in resource.UpdateDataLocalityInput) error {
	to := lh.DataLocality(in.DataLocality)
	if !slices.Contains([]lh.DataLocality{lh.DataLocalityDisabled, lh.DataLocalityBestEffort,
		lh.DataLocalityStrictLocal}, to) {
		return fmt.Errorf("invalid data locality mode: %q", in.DataLocality)
	}
	strict := to == lh.DataLocalityStrictLocal || v.Spec.DataLocality == lh.DataLocalityStrictLocal
	if to != v.Spec.DataLocality && strict && v.Status.State != lh.VolumeStateDetached {
		return fmt.Errorf(
			"data locality cannot be changed to or from strict-local while the volume is %s; detach it first", volumeState(v))
	}
	v.Spec.DataLocality = to
	return nil
})

var updateAutoBalance = volumeEdit("replica auto balance",
	func(v *lh.Volume, in resource.UpdateReplicaAutoBalanceInput) error {
		to := lh.ReplicaAutoBalance(in.ReplicaAutoBalance)
		if !slices.Contains([]lh.ReplicaAutoBalance{lh.ReplicaAutoBalanceIgnored, lh.ReplicaAutoBalanceDisabled,
			lh.ReplicaAutoBalanceLeastEffort, lh.ReplicaAutoBalanceBestEffort}, to) {
			return fmt.Errorf("invalid replica auto balance option: %q", in.ReplicaAutoBalance)
		}
		v.Spec.ReplicaAutoBalance = to
		return nil
	})

// overrideEdit is volumeEdit for the fields that override a setting.
func overrideEdit[T any](what string, value func(T) string, field func(*lh.VolumeSpec) *lh.Override) handler {
	return volumeEdit(what, func(v *lh.Volume, in T) error {
		to := lh.Override(value(in))
		if !slices.Contains([]lh.Override{lh.OverrideIgnored, lh.OverrideEnabled, lh.OverrideDisabled}, to) {
			return fmt.Errorf("invalid %s: %q; use one of ignored, enabled, disabled", what, to)
		}
		*field(&v.Spec) = to
		return nil
	})
}

var (
	updateNodeAffinity = overrideEdit("replica soft anti-affinity",
		func(in resource.UpdateReplicaSoftAntiAffinityInput) string { return in.ReplicaSoftAntiAffinity },
		func(s *lh.VolumeSpec) *lh.Override { return &s.ReplicaSoftAntiAffinity })
	updateZoneAffinity = overrideEdit("replica zone soft anti-affinity",
		func(in resource.UpdateReplicaZoneSoftAntiAffinityInput) string { return in.ReplicaZoneSoftAntiAffinity },
		func(s *lh.VolumeSpec) *lh.Override { return &s.ReplicaZoneSoftAntiAffinity })
	updateDiskAffinity = overrideEdit("replica disk soft anti-affinity",
		func(in resource.UpdateReplicaDiskSoftAntiAffinityInput) string { return in.ReplicaDiskSoftAntiAffinity },
		func(s *lh.VolumeSpec) *lh.Override { return &s.ReplicaDiskSoftAntiAffinity })
)

var updateSnapshotMaxCount = volumeEdit("snapshot max count",
	func(v *lh.Volume, in resource.UpdateSnapshotMaxCountInput) error {
		v.Spec.SnapshotMaxCount = in.SnapshotMaxCount // judged at admission, with the snapshots there are
		return nil
	})

var updateSnapshotMaxSize = volumeEdit("snapshot max size",
	func(v *lh.Volume, in resource.UpdateSnapshotMaxSizeInput) error {
		bytes, err := parseSize("snapshotMaxSize", in.SnapshotMaxSize)
		v.Spec.SnapshotMaxSize = bytes
		return err
	})

func removeReplica(q *request) (any, error) {
	var in resource.ReplicaRemoveInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if err := q.server.removeReplica(q.Context(), name, in.Name); err != nil {
		return nil, fmt.Errorf("failed to remove replica %s of volume %s: %w", in.Name, name, err)
	}
	return q.volume(name)
}

// removeReplica deletes a replica unless it is the last good copy. The controllers take it out of
// the engine first.
func (s *Server) removeReplica(ctx context.Context, volume, name string) error {
	p, err := s.volumeParts(ctx, volume)
	if err != nil {
		return err
	}
	var r lh.Replica
	if err := s.get(ctx, name, &r); err != nil {
		return err
	}
	if r.Spec.VolumeName != volume {
		return fmt.Errorf("it belongs to volume %s", r.Spec.VolumeName)
	}
	if err := admission.CheckReplicaDeletion(&r, p.volume, p.engines, p.replicas); err != nil {
		return err
	}
	return s.cfg.Client.Delete(ctx, &r)
}

func salvageVolume(q *request) (any, error) {
	var in resource.SalvageInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	name := q.params["name"]
	if err := q.server.salvage(q.Context(), name, in.Names); err != nil {
		return nil, fmt.Errorf("unable to salvage volume %s: %w", name, err)
	}
	return q.volume(name)
}

// salvage lifts the failure marks of replicas, all of which are judged first. Whether their data is
// enough to start from is not decided here but by the next engine.
func (s *Server) salvage(ctx context.Context, name string, names []string) error {
	p, err := s.volumeParts(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case p.volume.Status.State != lh.VolumeStateDetached:
		return fmt.Errorf("invalid volume state to salvage: %s; it must be detached", volumeState(p.volume))
	case p.volume.Status.Robustness != lh.VolumeRobustnessFaulted:
		return fmt.Errorf("invalid robustness state to salvage: %s; only a faulted volume is salvaged",
			p.volume.Status.Robustness)
	case len(names) == 0:
		return errors.New("no replica named")
	}
	for _, n := range names {
		if err := s.checkSalvage(ctx, p, n); err != nil {
			return fmt.Errorf("replica %s: %w", n, err)
		}
	}
	for _, n := range names {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			var r lh.Replica
			if err := s.get(ctx, n, &r); err != nil || r.Spec.FailedAt == "" {
				return err
			}
			r.Spec.FailedAt = ""
			return s.cfg.Client.Update(ctx, &r)
		})
		if err != nil {
			return fmt.Errorf("replica %s: %w", n, err)
		}
	}
	return nil
}

// checkSalvage says why a replica cannot be salvaged.
func (s *Server) checkSalvage(ctx context.Context, p volumeParts, name string) error {
	i := slices.IndexFunc(p.replicas, func(r lh.Replica) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("it is not a replica of volume %s", p.volume.Name)
	}
	r := &p.replicas[i]
	var n lh.Node
	if err := s.get(ctx, r.Spec.NodeID, &n); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("its node %q does not exist", r.Spec.NodeID)
		}
		return err
	}
	if !lh.IsConditionTrue(n.Status.Conditions, lh.NodeConditionReady) {
		return fmt.Errorf("its node %s is down", n.Name)
	}
	for _, d := range n.Status.DiskStatus {
		if d.DiskUUID == r.Spec.DiskID {
			if !lh.IsConditionTrue(d.Conditions, lh.DiskConditionSchedulable) {
				return fmt.Errorf("its disk %s on node %s is not schedulable", d.DiskPath, n.Name)
			}
			return nil
		}
	}
	return fmt.Errorf("its disk %s is not on node %s", r.Spec.DiskID, n.Name)
}
