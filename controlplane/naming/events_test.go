package naming

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reasons are those that clients of the reference filter events by.
const reasons = `Create Created Delete Deleting FailedDeleting Start FailedStarting Stop FailedStopping Update Rebuilt
Rebuilding FailedRebuilding VolumeCloneCompleted VolumeCloneCopyCompleteAwaitingHealthy VolumeCloneInitiated
VolumeCloneFailed FailedStartingSnapshotPurge TimeoutSnapshotPurge FailedSnapshotPurge Restored FailedRestore
FailedFilesystemTrim FailedExpansion SucceededExpansion CanceledExpansion Attached Detached Healthy Faulted Degraded
Orphaned Unknown EvictionAutomatic EvictionUserRequested EvictionCanceled EvictionFailed DetachedUnexpectedly Remount
AutoSalvaged Fetching Fetched Syncing Synced FailedSnapshotDataIntegrityCheck Failed Ready Uploaded Upgrade
FailedUpgradePreCheck FailedUpgradePostCheck PassedUpgradeCheck MigrationFailed OrphanCleanupCompleted`

// ownReasons are of events that only we record (docs/additions.md).
const ownReasons = "DataLossDecisionOver Waiting"

// TestEventReasons: the constants of events.go are exactly the reasons that clients know.
func TestEventReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil || v.Names[0].Name != "Event"+value {
			t.Errorf("constant %s is %q (%v)", v.Names[0].Name, value, err)
		}
		got[value] = true
		return true
	})
	want := slices.Sorted(slices.Values(strings.Fields(reasons + " " + ownReasons)))
	if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, want) {
		t.Errorf("reasons\n%q, want\n%q", all, want)
	}
	if got := EventRolloutSkipped("DaemonSet", "csi"); got != "RolloutSkipped: DaemonSet csi" {
		t.Errorf("reason of what a restore leaves out: %q", got)
	}
}

func TestEventSource(t *testing.T) {
	if got := EventSource("engine-image"); got != "longhorn-engine-image-controller" {
		t.Errorf("the source is %s", got)
	}
}
