package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

func removeReplica(q *serve.Request) (any, error) {
	var in resource.ReplicaRemoveInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if err := deleteReplica(q.Context(), q.Objects, name, in.Name); err != nil {
		return nil, fmt.Errorf("failed to remove replica %s of volume %s: %w", in.Name, name, err)
	}
	return show(q, name)
}

// removeReplica deletes a replica unless it is the last good copy. The controllers take it out of
// the engine first.
func deleteReplica(ctx context.Context, o *serve.Objects, volume, name string) error {
	p, err := readVolume(ctx, o, volume)
	if err != nil {
		return err
	}
	var r lh.Replica
	if err := o.Get(ctx, name, &r); err != nil {
		return err
	}
	if r.Spec.VolumeName != volume {
		return fmt.Errorf("it belongs to volume %s", r.Spec.VolumeName)
	}
	var nodes lh.NodeList
	if err := o.Live.List(ctx, &nodes, client.InNamespace(o.Namespace)); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if err := admission.CheckReplicaDeletion(&r, p.volume, p.engines, p.replicas, nodes.Items); err != nil {
		return err
	}
	return o.Client.Delete(ctx, &r)
}

// activateVolume has a standby volume become an ordinary one, with the frontend that it is to have.
// It is answered before that: the volume takes the newest backup first (docs/design/backups.md).
func activateVolume(q *serve.Request) (any, error) {
	var in resource.ActivateInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	err := conflict.Retry(func() error {
		var v lh.Volume
		if err := q.Objects.Get(q.Context(), name, &v); err != nil {
			return err
		}
		switch {
		case !v.Status.IsStandby && !v.Spec.Standby:
			return fmt.Errorf("volume %s is already in active mode", name)
		case !v.Spec.Standby:
			return fmt.Errorf("volume %s is being activated", name)
		case in.Frontend == "" || volumefield.Get("frontend").Check(in.Frontend) != nil:
			return fmt.Errorf("invalid frontend %q of volume %s", in.Frontend, name)
		}
		v.Spec.Standby, v.Spec.Frontend = false, lh.VolumeFrontend(in.Frontend)
		return q.Objects.Client.Update(q.Context(), &v)
	})
	if err != nil {
		return nil, fmt.Errorf("unable to activate volume %s: %w", name, err)
	}
	return show(q, name)
}

func salvageVolume(q *serve.Request) (any, error) {
	var in resource.SalvageInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	if err := salvage(q.Context(), q.Objects, name, in.Names); err != nil {
		return nil, fmt.Errorf("unable to salvage volume %s: %w", name, err)
	}
	return show(q, name)
}

// salvage lifts the failure marks of replicas, all of which are judged first. Whether their data is
// enough to start from is not decided here but by the next engine.
func salvage(ctx context.Context, o *serve.Objects, name string, names []string) error {
	p, err := readVolume(ctx, o, name)
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
		if err := checkSalvage(ctx, o, p, n); err != nil {
			return fmt.Errorf("replica %s: %w", n, err)
		}
	}
	for _, n := range names {
		err := conflict.Retry(func() error {
			var r lh.Replica
			if err := o.Get(ctx, n, &r); err != nil || r.Spec.FailedAt == "" {
				return err
			}
			r.Spec.FailedAt = ""
			return o.Client.Update(ctx, &r)
		})
		if err != nil {
			return fmt.Errorf("replica %s: %w", n, err)
		}
	}
	return nil
}

// checkSalvage says why a replica cannot be salvaged.
func checkSalvage(ctx context.Context, o *serve.Objects, p volumeParts, name string) error {
	i := slices.IndexFunc(p.replicas, func(r lh.Replica) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("it is not a replica of volume %s", p.volume.Name)
	}
	r := &p.replicas[i]
	var n lh.Node
	if err := o.Get(ctx, r.Spec.NodeID, &n); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("its node %q does not exist", r.Spec.NodeID)
		}
		return err
	}
	if !lh.IsConditionTrue(n.Status.Conditions, lh.NodeConditionReady) {
		return fmt.Errorf("its node %s is down", n.Name)
	}
	d, ok := n.Status.DiskStatus[condition.DiskOf(&n, r)]
	if !ok {
		return fmt.Errorf("its disk %s is not on node %s", r.Spec.DiskID, n.Name)
	}
	if c := lh.FindCondition(d.Conditions, lh.DiskConditionSchedulable); c.Status != lh.ConditionTrue {
		return fmt.Errorf("its disk %s on node %s is not schedulable: %s", d.DiskPath, n.Name, c.Message)
	}
	return nil
}
