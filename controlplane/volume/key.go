package volume

import (
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// ConditionSecretPresent of a Volume is False while the master key is gone from which its processes
// have what they show each other. It is our addition.
const (
	ConditionSecretPresent = "SecretPresent"
	ReasonSecretGone       = "SecretGone"
)

// keepKey has a volume take the newest master key when its processes begin to run, and no other one
// beside processes that run already: these would refuse them.
func (p creating) keepKey() {
	v := p.v
	begins := v.Status.State == v1beta2.VolumeStateDetached && v.Spec.NodeID != ""
	ended := p.ended()
	if ended && !p.s.HasKey || begins && p.closed() {
		v.Status.ProcessKey = p.s.NewestKey
	}
	if ended || p.s.HasKey {
		if v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent).Status == v1beta2.ConditionFalse {
			p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionTrue})
		}
		return
	}
	gone := "key " + v.Status.ProcessKey + " of Secret " + naming.SecretVolumeKeys + " is gone, and processes of volume " +
		v.Name + " run that were started with it"
	if v.Status.ProcessKey == "" {
		gone = "processes of volume " + v.Name + " run that an earlier version has started, with a secret of their own"
	}
	p.setCondition(v1beta2.Condition{Type: ConditionSecretPresent, Status: v1beta2.ConditionFalse,
		Reason: ReasonSecretGone, Message: gone + ": no replica can be rebuilt, and no engine started, until the volume is " +
			"detached and attached again; I/O goes on"})
}

// ended: no process of the volume runs, whether some are to run or not. Of those of which nobody
// knows some may.
func (p creating) ended() bool {
	runs := func(s v1beta2.InstanceState) bool {
		return s != "" && s != v1beta2.InstanceStateStopped && s != v1beta2.InstanceStateError
	}
	return !slices.ContainsFunc(p.s.Engines, func(e v1beta2.Engine) bool { return runs(e.Status.CurrentState) }) &&
		!slices.ContainsFunc(p.s.Replicas, func(r v1beta2.Replica) bool { return runs(r.Status.CurrentState) })
}
