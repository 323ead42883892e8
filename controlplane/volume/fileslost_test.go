package volume

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestLostFilesAreToldOfTheVolume: what the engine says of files that were removed under its only
// replica is a condition of the volume, with one warning, and goes with the engine's.
func TestLostFilesAreToldOfTheVolume(t *testing.T) {
	v, e := &v1beta2.Volume{}, &v1beta2.Engine{}
	kind := v1beta2.ConditionReplicaFilesLost
	for i, step := range []struct {
		told, want v1beta2.ConditionStatus
		events     int
	}{
		{"", v1beta2.ConditionUnknown, 0},
		{v1beta2.ConditionTrue, v1beta2.ConditionTrue, 1},
		{v1beta2.ConditionTrue, v1beta2.ConditionTrue, 0},
		{v1beta2.ConditionFalse, v1beta2.ConditionFalse, 0},
	} {
		if step.told != "" {
			e.Status.Conditions, _ = v1beta2.SetCondition(e.Status.Conditions,
				v1beta2.Condition{Type: kind, Status: step.told, Message: "gone"}, now)
		}
		p := newPass(now, v, seen{Engine: e})
		p.noteFilesLost()
		if got := v1beta2.FindCondition(v.Status.Conditions, kind); got.Status != step.want || len(p.events) != step.events {
			t.Errorf("step %d: %+v, events %+v", i, got, p.events)
		}
	}
}
