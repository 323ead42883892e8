package instancemanager

import (
	"errors"
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/instance"
	imclient "ankole.storage/instancemanager/client"
)

// TestVersions is the table of releases of the reference and of what is to come: who can be used.
func TestVersions(t *testing.T) {
	for _, row := range []struct {
		name        string
		api, apiMin int
		ok          bool
	}{
		{"up to 1.2", 1, 1, true}, {"1.3.0", 1, 1, true}, {"1.3.2", 2, 1, true}, {"1.4", 3, 1, true}, {"1.5", 4, 1, true},
		{"1.6", 5, 1, true}, {"1.7", 6, 1, true}, {"1.11", 7, 1, true},
		{"one that still speaks ours", 9, 4, true}, {"one that does not any more", 9, 5, false},
		{"one from before there were versions", 0, 0, false},
	} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		s.Processes.APIVersion, s.Processes.APIMinVersion = row.api, row.apiMin
		decide(now, im, s)
		c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionCompatible)
		if (c.Status == v1beta2.ConditionTrue) != row.ok ||
			!row.ok && (c.Reason != "Incompatible" || !strings.Contains(c.Message, "upgrade the older")) {
			t.Errorf("%s: %+v", row.name, c)
		}
		if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning || im.Status.APIVersion != row.api {
			t.Errorf("%s: state %s, API %d: what runs in it is none of its fault", row.name, im.Status.CurrentState,
				im.Status.APIVersion)
		}
		im.Status.IP = "10.0.0.1"
		reached := errors.New("the instance manager was asked")
		callers := NewCallers(func(string) (*imclient.Client, error) { return nil, reached })
		if err := callers.Create(t.Context(), im, instance.Process{Name: "p"}); errors.Is(err, reached) != row.ok {
			t.Errorf("%s: create: %v", row.name, err)
		}
	}
}
