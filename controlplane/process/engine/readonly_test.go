package engine

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestReadOnlyFileSystemIsTold: the condition comes with one warning when the instance manager
// tells of a file system that has gone read-only, goes with it, and is not there while there was
// nothing to tell.
func TestReadOnlyFileSystemIsTold(t *testing.T) {
	e, s := running()
	condition := v1beta2.EngineConditionFilesystemReadOnly
	tell := func(conditions map[string]bool) []string {
		for i := range s.Managers {
			for name, p := range s.Managers[i].Status.InstanceEngines {
				p.Status.Conditions = conditions
				s.Managers[i].Status.InstanceEngines[name] = p
			}
		}
		var reasons []string
		events, _ := settle(e, s)
		for _, event := range events {
			reasons = append(reasons, event.Reason)
		}
		return reasons
	}
	for i, step := range []struct {
		told   map[string]bool
		want   v1beta2.ConditionStatus
		events string
	}{
		{nil, v1beta2.ConditionUnknown, ""},
		{map[string]bool{condition: true}, v1beta2.ConditionTrue, condition},
		{map[string]bool{condition: true}, v1beta2.ConditionTrue, ""},
		{map[string]bool{condition: false}, v1beta2.ConditionFalse, ""},
		{map[string]bool{condition: true}, v1beta2.ConditionTrue, condition},
		{nil, v1beta2.ConditionFalse, ""}, // another process
	} {
		events := tell(step.told)
		if got := v1beta2.FindCondition(e.Status.Conditions, condition); got.Status != step.want ||
			strings.Join(events, " ") != step.events {
			t.Errorf("step %d: %+v, events %v", i, got, events)
		}
	}
}
