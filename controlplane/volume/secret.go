package volume

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/naming"
)

// ConditionSecretPresent of a Volume is False while the Secret that its processes have is gone. It
// is our addition.
const (
	ConditionSecretPresent = "SecretPresent"
	ReasonSecretGone       = "SecretGone"
)

// keepSecret keeps the Secret of the volume for as long as processes run that have it: those that
// are started later have to show the same. A finalizer keeps one that is deleted until then. Where
// it is gone all the same, none is made beside such processes: they would refuse every other one.
func (p *pass) keepSecret() loop.Change {
	secret := p.s.SecretObject
	switch {
	case secret == nil && !p.closed():
		name := naming.VolumeSecretName(p.v.Name)
		p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionFalse,
			Reason: ReasonSecretGone, Message: "Secret " + name + " is gone, and processes of volume " + p.v.Name +
				" run that have it: no replica can be rebuilt, and no engine started, until the volume is detached and " +
				"attached again; put the Secret back if you have a copy of it"})
		return nil
	case secret == nil:
		return loop.Create{Object: p.newSecret()}
	}
	if v1beta2.FindCondition(p.v.Status.Conditions, ConditionSecretPresent).Status == v1beta2.ConditionFalse {
		p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionTrue})
	}
	if secret.DeletionTimestamp != nil {
		if p.closed() {
			return p.releaseSecret()
		}
		return nil
	}
	if c := secret.DeepCopy(); addFinalizer(c) {
		return loop.Update{Object: c}
	}
	return nil
}

// releaseSecret lets a Secret go that is deleted, or whose volume is.
func (p *pass) releaseSecret() loop.Change {
	if p.s.SecretObject == nil || !slices.Contains(p.s.SecretObject.Finalizers, v1beta2.Finalizer) {
		return nil
	}
	c := p.s.SecretObject.DeepCopy()
	controllerutil.RemoveFinalizer(c, v1beta2.Finalizer)
	return loop.Update{Object: c}
}
