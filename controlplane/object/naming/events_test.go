package naming

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
const ownReasons = "Damaged DataLossDecisionOver DefaultIgnored Verified Waiting"

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
}

// notRaised are reasons that nothing of this system records, and why.
var notRaised = map[string]string{
	"Created": "system backups", "Deleting": "system backups",
	"Ready":  "backing images",
	"Synced": "system backups", "Uploaded": "system backups",
	"TimeoutSnapshotPurge": "a purge has no bound of time",
}

// TestEveryReasonIsRaised: each reason that clients know is recorded by some code, but for those of
// what is not built. docs/facts/naming.txt names the tests of each.
func TestEveryReasonIsRaised(t *testing.T) {
	raised := map[string]bool{}
	use := regexp.MustCompile(`naming\.Event([A-Z][A-Za-z]*)`)
	for _, root := range []string{"../../../controlplane", "../../../manager", "../../../rest", "../../../csi"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range use.FindAllStringSubmatch(string(text), -1) {
				raised[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, reason := range strings.Fields(reasons + " " + ownReasons) {
		if raised[reason] == (notRaised[reason] != "") {
			t.Errorf("%s: raised %t, waits for %q", reason, raised[reason], notRaised[reason])
		}
	}
}

func TestEventSource(t *testing.T) {
	if got := EventSource("engine-image"); got != "longhorn-engine-image-controller" {
		t.Errorf("the source is %s", got)
	}
}
