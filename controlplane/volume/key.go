package volume

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
)

// ConditionSecretPresent of a Volume is False while the master key is gone from which its processes
// have what they show each other. It is our addition.
const (
	ConditionSecretPresent = "SecretPresent"
	ReasonSecretGone       = "SecretGone"
)

// keepKey has a volume take the newest master key when its processes begin to run, and no other one
// beside processes that run already: these would refuse them.
func (p *pass) keepKey() {
	v := p.v
	begins := v.Status.State == v1beta2.VolumeStateDetached && v.Spec.NodeID != ""
	closed := p.closed()
	if closed && (begins || !p.s.HasKey) {
		v.Status.ProcessKey = p.s.NewestKey
	}
	if closed || p.s.HasKey {
		if v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent).Status == v1beta2.ConditionFalse {
			p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionTrue})
		}
		return
	}
	p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionFalse,
		Reason: ReasonSecretGone, Message: "key " + v.Status.ProcessKey + " of Secret " + naming.SecretVolumeKeys +
			" is gone, and processes of volume " + v.Name + " run that were started with it: no replica can be rebuilt, " +
			"and no engine started, until the volume is detached and attached again; put the entry back if you have a copy " +
			"of the Secret"})
}
