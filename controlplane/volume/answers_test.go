package volume

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// settle decides until status and events are out, and returns the change that is wanted then. What
// lasts has been seen to since its condition says so: there is one clock.
func settle(v *v1beta2.Volume, s *seen) loop.Decision {
	for range 5 {
		c := v1beta2.FindCondition(v.Status.Conditions, ConditionWaitForReplicas)
		if since, err := time.Parse(time.RFC3339, c.LastTransitionTime); err == nil && c.Status == v1beta2.ConditionTrue {
			s.WaitsSince = since
		}
		if d := decides(v, *s); d.Do != nil || len(d.Events) == 0 {
			return d
		}
	}
	return loop.Decision{}
}

// update is the object that a decision writes, reserved or not.
func update(d loop.Decision) (loop.Update, bool) {
	if r, ok := d.Do.(loop.Reserving); ok {
		d.Do = r.Change
	}
	u, ok := d.Do.(loop.Update)
	return u, ok
}

func describe(d loop.Decision) string {
	u, ok := update(d)
	if !ok {
		if d.Do == nil {
			return ""
		}
		return d.Do.String()
	}
	switch o := u.Object.(type) {
	case *v1beta2.Replica:
		mark := ""
		if o.Spec.FailedAt != "" {
			mark = " failed"
		}
		return "replica " + o.Name + " " + string(o.Spec.DesireState) + mark
	case *v1beta2.Engine:
		after := ""
		if o.Spec.RestartAfter != "" {
			after = " after " + o.Spec.RestartAfter
		}
		return "engine " + string(o.Spec.DesireState) + " on " + o.Spec.NodeID + " with " +
			keys(o.Spec.ReplicaAddressMap) + after
	}
	return u.String()
}

func keys(m map[string]string) string {
	out := ""
	for _, k := range []string{"a", "b", "c"} {
		if m[k] != "" {
			out += k
		}
	}
	return out
}

// comesLate has the engine start without b, one of the volume's first replicas, whose process runs
// only now.
func comesLate(v *v1beta2.Volume, s *seen) {
	delete(s.Engine.Spec.ReplicaAddressMap, "b")
	delete(s.Engine.Status.ReplicaModeMap, "b")
	s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.LastHealthyAt = "", ""
	degrade(v, 0)
}
