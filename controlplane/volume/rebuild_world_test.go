package volume_test

import (
	"slices"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestFailedRebuildIsTold: condition RebuildFailed of a replica whose process ends during its
// rebuild, until one succeeds; the log of the process is read after each failure.
func TestFailedRebuildIsTold(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 3, 3)
	onN3 := func() v1beta2.Replica {
		t.Helper()
		all := w.replicas()
		i := slices.IndexFunc(all, func(r v1beta2.Replica) bool { return r.Spec.NodeID == "n3" })
		if i < 0 {
			t.Fatalf("no replica is on n3\n%s", w.dump())
		}
		return all[i]
	}
	kill := func() {
		w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == "n3" })
		w.settle()
	}
	kill()
	r := onN3()
	if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionUnknown {
		t.Errorf("before a rebuild failed: %+v", c)
	}
	if r.Spec.LogRequested || r.Status.LogFetched {
		t.Errorf("its process runs again, and its log is asked for: %v, fetched %v", r.Spec.LogRequested, r.Status.LogFetched)
	}
	kill() // while it is rebuilt
	r = onN3()
	if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionTrue ||
		c.Reason != "Disconnection" || c.Message == "" {
		t.Errorf("after its rebuild failed: %+v\n%s", c, w.dump())
	}
	if !r.Spec.LogRequested || !r.Status.LogFetched {
		t.Errorf("the log is asked for: %v, fetched %v", r.Spec.LogRequested, r.Status.LogFetched)
	}
	if want := []string{"im-n3/" + r.Name, "im-n3/" + r.Name}; !slices.Equal(w.logsRead, want) {
		t.Errorf("the logs of %v were read, want %v", w.logsRead, want)
	}
	w.heal(5 * time.Minute)
	r = onN3()
	if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionFalse {
		t.Errorf("after a rebuild succeeded: %+v", c)
	}
}
