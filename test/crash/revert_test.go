package crash

import (
	"path/filepath"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// TestRevertLeavesNothing reverts a volume of two replicas: the list has the snapshots that were
// taken and no other, nobody has a child that is not there, and neither directory has a file more.
func TestRevertLeavesNothing(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 2, 16*mib)
	v.SetOffered(false)
	v.SpawnEngine()
	v.Await("served for maintenance", func(s *enginev1.State) bool { return s.Generation > 0 && s.SuspendedReason == "" })
	ctx, cancel := deadline()
	defer cancel()
	for _, name := range []string{"a", "b"} {
		_, err := v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true})
		rig.Final(t, err)
	}
	s, err := v.Control().SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: "a"})
	rig.Final(t, err)
	if len(s.Snapshots) != 3 || len(s.Snapshots["b"].GetChildren()) != 0 || len(s.Snapshots["a"].GetChildren()) != 2 {
		t.Errorf("listed are %v", s.Snapshots)
	}
	for _, r := range v.Replicas {
		names, err := filepath.Glob(filepath.Join(r.Dir, "*.img"))
		if err != nil || len(names) != 3 || strings.Contains(strings.Join(names, " "), "revert") {
			t.Errorf("%s holds %v, %v", r.Name, names, err)
		}
	}
}
