package volume

import (
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

// keepSecret makes the Secret of the volume, and no other one beside processes that have it: these
// would refuse it, and those that are started later have to show the same.
func (p *pass) keepSecret() loop.Change {
	known := v1beta2.FindCondition(p.v.Status.Conditions, ConditionSecretPresent).Status
	switch {
	case p.s.HasSecret:
		if known == v1beta2.ConditionFalse {
			p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionTrue})
		}
		return nil
	case p.closed():
		return loop.Create{Object: p.newSecret()}
	}
	p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionFalse,
		Reason: ReasonSecretGone, Message: "Secret " + naming.VolumeSecretName(p.v.Name) + " is gone, and processes of " +
			"volume " + p.v.Name + " run that have it: no replica can be rebuilt, and no engine started, until the volume is detached and " +
			"attached again; put the Secret back if you have a copy of it"})
	return nil
}
