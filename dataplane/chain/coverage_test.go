package chain_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
)

// reads are the methods that change nothing on the disk, and those whose changes are made durable
// by others. Those of Blocks need not be listed: it has no way to the disk.
const reads = `Chain.Absent Chain.At Chain.LockHandle Chain.Kept Chain.WriteHead Chain.CheckExpand Chain.CheckRevert Chain.CheckSnapshot
Chain.Checksum Chain.Dirty Chain.HashAt Chain.HashLocked Chain.LayerExtents Chain.LayerList Chain.NewPurge
Chain.OpenView Chain.PowerLost Chain.Record Chain.Remap Chain.RevisionCounter Chain.SetLimits Chain.Snapshots
Chain.Spec Chain.State Chain.Structure Chain.Usage Chain.WasClosed Chain.WriteAllowed Chain.Abandon Chain.Sync Purge.Next
Chain.Lost Purge.Progress Hash.Close Hash.Position Hash.Progress View.Close View.Verify View.Pin Chain.ImportMark
Chain.Unlinked Chain.CheckMap Chain.MapTaken Chain.OpenBranches Chain.File Chain.SizeBytes Chain.Broken Chain.HasWhiteouts
Chain.Hides Chain.BeginRestore Chain.Sound View.Sound Chain.MetaStale Chain.TrimLayers Purge.Fail Purge.Retry Purge.Err View.HiddenSince`

// crashed says which test crashes a method before each of its changes, with any choice of lost
// writes.
var crashed = map[string]string{
	"Chain.Snapshot":           "TestCrashDuringSnapshot",
	"Chain.Expand":             "TestCrashDuringExpand",
	"Chain.Revert":             "TestCrashDuringRevert",
	"Chain.PrepareRevert":      "TestCrashDuringRevert",
	"Chain.DropRevert":         "TestCrashDuringRevert",
	"Chain.MarkRemoved":        "TestCrashDuringMarkRemoved",
	"Chain.NoteTrim":           "TestCrashDuringTrim",
	"Chain.Trim":               "TestCrashDuringTrim",
	"Chain.Purge":              "TestCrashDuringPurge",
	"Purge.Note":               "TestCrashDuringPurge",
	"Purge.Work":               "TestCrashDuringPurge",
	"Purge.Finish":             "TestCrashDuringPurge",
	"Chain.Close":              "TestCrashDuringOpenAndClose",
	"Chain.CloseFor":           "TestCrashDuringOpenAndClose",
	"Chain.SetRebuilding":      "TestCrashDuringRebuildFlags",
	"Chain.FinishRebuild":      "TestCrashDuringRebuildFlags",
	"Chain.VoidForRebuild":     "TestCrashWhileTheRecordIsMadeVoid",
	"Chain.WriteRecord":        "TestCrashDuringWriteRecord",
	"Chain.Discard":            "TestCrashDuringDiscard",
	"Chain.WhiteoutRoom":       "TestCrashDuringDiscard",
	"Chain.PunchLayer":         "TestCrashDuringPunchLayer",
	"Chain.WriteDirty":         "TestCrashDuringWriteDirty",
	"Chain.AddDirty":           "TestCrashDuringAddDirty",
	"Chain.CopyLog":            "TestCrashWhileTheLogIsCopied",
	"Chain.SetRevisionCounter": "TestCrashDuringSetRevisionCounter",
	"Chain.NewHash":            "TestCrashDuringHash",
	"Chain.Hash":               "TestCrashDuringHash",
	"Hash.Work":                "TestCrashDuringHash",
	"Hash.Finish":              "TestCrashDuringHash",
	"View.Repair":              "TestCrashDuringRepair",
	"View.Keep":                "TestCrashDuringKeep",
	"Chain.SetImportMark":      "TestCrashDuringSetImportMark",
	"Chain.CopyMeta":           "TestCrashDuringCopyMeta",
	"Chain.DropLeaf":           "TestCrashDuringDropLeaf",
	"Chain.Mend":               "TestCrashWhileLostFilesAreWrittenAnew",
	"Chain.Restore":            "TestCrashWhileLostFilesAreWrittenAnew",
	"Chain.Blank":              "TestCrashWhileALostFileIsMadeEmpty",
}

// A method that changes a directory without a test that crashes it at every step is not done.
func TestEveryChangeIsCrashed(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(data)
	}
	known := map[string]bool{}
	for _, name := range strings.Fields(reads) {
		known[name] = true
	}
	blocks := reflect.TypeOf(&chain.Blocks{})
	for _, v := range []any{&chain.Chain{}, &chain.Purge{}, &chain.Hash{}, &chain.View{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			test := crashed[name]
			_, inMemory := blocks.MethodByName(typ.Method(i).Name)
			switch {
			case test == "" && !known[name] && !inMemory:
				t.Errorf("%s is neither a read nor crashed by a test", name)
			case test != "" && !strings.Contains(tests.String(), "\nfunc "+test+"("):
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
}

func TestCrashDuringSetRevisionCounter(t *testing.T) {
	base := crashBase(t)
	seen := map[int64]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = w.c.SetRevisionCounter(4711) == nil
		for seed := range crashSeeds {
			v := crashAndOpen(t, w, seed, step)
			if seen[v.Revision]++; done && v.Revision != 4711 {
				t.Fatalf("seed %d: %d after the end", seed, v.Revision)
			}
		}
	}
	if len(seen) != 2 || seen[4711] == 0 {
		t.Fatalf("%v", seen)
	}
}
