package snapshot

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestBlocked: an order that something stands in the way of is told apart from one that is on its
// way, since who has given it may withdraw it then.
func TestBlocked(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(s *v1beta2.Snapshot, g *seen)
		want bool
	}{
		"ordered":               {func(*v1beta2.Snapshot, *seen) {}, false},
		"not answered yet":      {func(_ *v1beta2.Snapshot, g *seen) { g.Asked = true }, false},
		"being attached":        {func(_ *v1beta2.Snapshot, g *seen) { g.Reachable = false }, false},
		"no copy can be served": {func(_ *v1beta2.Snapshot, g *seen) { g.Reachable, g.Lacks = false, "too few" }, true},
		"faulted": {func(_ *v1beta2.Snapshot, g *seen) {
			g.Volume.Status.Robustness = v1beta2.VolumeRobustnessFaulted
		}, true},
		"migrating":  {func(_ *v1beta2.Snapshot, g *seen) { g.Volume.Spec.MigrationNodeID = "n2" }, true},
		"full":       {func(_ *v1beta2.Snapshot, g *seen) { g.Engine.Spec.SnapshotMaxCount = 1 }, true},
		"refused":    {func(_ *v1beta2.Snapshot, g *seen) { g.Tried.Refusal = "replica r is being rebuilt" }, true},
		"impossible": {func(s *v1beta2.Snapshot, _ *seen) { s.Name = "S_1" }, true},
		"withdrawn": {func(s *v1beta2.Snapshot, g *seen) {
			g.Engine.Spec.SnapshotMaxCount, s.DeletionTimestamp = 1, &metav1.Time{Time: testNow}
		}, false},
		"taken": {func(_ *v1beta2.Snapshot, g *seen) {
			g.Engine.Status.Snapshots["s1"] = v1beta2.SnapshotInfo{Name: "s1", Created: "2026-01-01T00:00:00Z"}
		}, false},
	} {
		for _, before := range []bool{false, true} {
			s, g := world()
			g.put("n1")
			delete(g.Engine.Status.Snapshots, "s1")
			tt.edit(s, &g)
			g.Tried.Of, g.Tried.At, s.Status.Blocked = outline(g.Engine), testNow, before
			if decide(testNow, s, g); s.Status.Blocked != tt.want {
				t.Errorf("%s: blocked %v, %q", name, s.Status.Blocked, s.Status.Error)
			}
		}
	}
}
