package engine

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

// TestLostFilesAreTold: the condition comes with one warning when the engine tells of files that
// were removed under a replica that it keeps, and goes with it.
func TestLostFilesAreTold(t *testing.T) {
	e, s := running()
	condition := v1beta2.ConditionReplicaFilesLost
	const lost = "volume-head-000.img was removed"
	for i, step := range []struct {
		lost   string
		mode   engineclient.Mode
		want   v1beta2.ConditionStatus
		events string
	}{
		{"", engineclient.ModeRW, v1beta2.ConditionUnknown, ""},
		{lost, engineclient.ModeRW, v1beta2.ConditionTrue, condition},
		{lost, engineclient.ModeRW, v1beta2.ConditionTrue, ""},
		{"", engineclient.ModeRW, v1beta2.ConditionFalse, ""},
		{lost, engineclient.ModeRW, v1beta2.ConditionTrue, condition},
		{lost, engineclient.ModeERR, v1beta2.ConditionFalse, "Faulted"}, // another one has it all
	} {
		s.State.Replicas[0].Lost, s.State.Replicas[0].Mode = step.lost, step.mode
		var reasons []string
		events, _ := settle(e, s)
		for _, event := range events {
			reasons = append(reasons, event.Reason)
		}
		got := v1beta2.FindCondition(e.Status.Conditions, condition)
		if got.Status != step.want || strings.Join(reasons, " ") != step.events ||
			strings.Contains(got.Message, lost) != (step.want == v1beta2.ConditionTrue) {
			t.Errorf("step %d: %+v, events %v", i, got, reasons)
		}
	}
}
