package volume

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// expandVolume asks for a larger size, of the claim where the volume is bound to one. It returns
// before the volume has it: isExpanding of the controller and size of the volume tell. The size
// that the volume has, or a smaller one, changes nothing.
func expandVolume(q *serve.Request) (any, error) {
	var in resource.ExpandInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	bytes, err := parseSize("size", in.Size)
	if err == nil && bytes == 0 {
		err = errors.New("no size given: name one, such as 20Gi")
	}
	grown := false
	if err == nil {
		grown, err = growClaim(q, name, bytes)
	}
	if err == nil && !grown {
		err = resize(q, name, func(p volumeParts) (int64, error) {
			return max(p.volume.Spec.Size, admission.RoundSize(bytes)), checkExpand(p.volume)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("unable to expand volume %s: %w", name, err)
	}
	return show(q, name)
}

// growClaim asks for the size in the claim that the volume is bound to, if that asks for less: then
// Kubernetes has the CSI driver expand the volume. So Pods see the size, and the claim tells it.
func growClaim(q *serve.Request, name string, bytes int64) (grown bool, err error) {
	err = conflict.Retry(func() error {
		p, err := readVolume(q.Context(), q.Objects, name)
		if err != nil {
			return err
		}
		claim, grows, err := admission.BoundClaim(q.Context(), q.Objects.Live, p.volume)
		if err != nil || claim == nil || bytes <= p.volume.Spec.Size {
			return err
		}
		asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if asked.Value() >= bytes || !grows { // without that admission refuses
			return nil
		}
		if err := checkExpand(p.volume); err != nil {
			return err
		}
		c := claim.DeepCopy()
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity.NewQuantity(bytes, quantity.BinarySI)
		if err := q.Objects.Client.Update(q.Context(), c); err != nil {
			return fmt.Errorf("expand claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		grown = true
		return nil
	})
	return grown, err
}

// cancelExpansion takes a wish for a larger size back, unless the engine has begun to fulfil it.
func cancelExpansion(q *serve.Request) (any, error) {
	name := q.Params["name"]
	if err := resize(q, name, checkCancelExpansion); err != nil {
		return nil, fmt.Errorf("unable to cancel the expansion of volume %s: %w", name, err)
	}
	return show(q, name)
}

// resize gives a volume the size that judge returns.
func resize(q *serve.Request, name string, judge func(volumeParts) (int64, error)) error {
	return conflict.Retry(func() error {
		p, err := readVolume(q.Context(), q.Objects, name)
		if err != nil {
			return err
		}
		size, err := judge(p)
		if err != nil || size == p.volume.Spec.Size {
			return err
		}
		v := p.volume.DeepCopy()
		v.Spec.Size = size
		return q.Objects.Client.Update(q.Context(), v)
	})
}

// checkExpand judges what a client can be told without a look at the rest of the cluster; admission
// has that. Two rules are of clients alone: a standby volume grows with its backup, and the driver
// may expand one that is being attached.
func checkExpand(v *lh.Volume) error {
	if v.Status.IsStandby {
		return fmt.Errorf("failed to manually expand standby volume %s", v.Name)
	}
	if err := admission.CheckExpansion(v); err != nil {
		return admission.Unnamed(err)
	}
	if v.Status.State != lh.VolumeStateAttached && v.Status.State != lh.VolumeStateDetached {
		return fmt.Errorf("invalid volume state to expand: volume %s is %s; it must be attached or detached", v.Name,
			volumeState(v))
	}
	return nil
}

// checkCancelExpansion returns the size that the volume goes back to.
func checkCancelExpansion(p volumeParts) (int64, error) {
	v := p.volume
	switch {
	case v.Status.IsStandby:
		return 0, errors.New("the expansion of a standby volume cannot be cancelled")
	case len(p.engines) != 1:
		return 0, fmt.Errorf("the volume has %d engines, not one", len(p.engines))
	}
	e := &p.engines[0]
	has := v.UserBytes(e.SizeBytes())
	switch {
	case has == 0:
		return 0, errors.New("the engine has no size yet, so there is none to go back to")
	case v.Spec.Size <= has:
		if v.Status.ExpansionRequired {
			return 0, errors.New("the expansion is already complete")
		}
		return 0, errors.New("volume expansion is not started")
	}
	return has, admission.CheckCancel(v, has, p.engines)
}
