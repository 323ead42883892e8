package work

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/worker"
)

// TestBandwidthIsShared: worker processes of one machine write what they take into one file, and no
// other work does. The file is in the folder of the node where a Pod has one, and else in that for
// temporary files.
func TestBandwidthIsShared(t *testing.T) {
	t.Parallel()
	for _, pod := range []bool{true, false} {
		t.Run(fmt.Sprintf("Pod=%t", pod), func(t *testing.T) {
			t.Parallel()
			bandwidthIsShared(t, pod)
		})
	}
}

func bandwidthIsShared(t *testing.T, pod bool) {
	dir, tmp := t.TempDir(), t.TempDir()
	shared, node := tmp, ""
	if pod {
		node = filepath.Join(t.TempDir(), "bandwidth")
		shared = node
	}
	run := func(do string, v worker.Volume, rate int64) error {
		j := job(dir, v)
		j.Env = append(os.Environ(), "TMPDIR="+tmp, nodeFolder+"="+node)
		j.Order.Do, j.Order.SizeBytes, j.Order.BytesPerSecond = do, volumeBytes, rate
		j.Order.Create = backup.CreateOptions{Volume: "vol", Backup: "first", Snapshot: "s1",
			SnapshotCreated: time.Unix(1e9, 0)}
		j.Order.Restore = backup.RestoreOptions{Volume: "vol", Backup: "first"}
		_, err := worker.Run(t.Context(), j)
		return err
	}
	spent := func() string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(shared, "ankole-backup-bandwidth-*"))
		if err != nil || len(names) > 1 {
			t.Fatalf("%v, %v", names, err)
		}
		if len(names) == 0 {
			return ""
		}
		data, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	const fast = 1 << 40
	for _, step := range []struct {
		do    string
		rate  int64
		takes bool
	}{{worker.List, 0, false}, {worker.Create, fast, true}, {worker.Restore, fast, true}, {worker.Restore, 0, false}} {
		before := spent()
		var v worker.Volume
		if step.do != worker.List {
			v = newMemory()
		}
		if err := run(step.do, v, step.rate); err != nil {
			t.Fatal(err)
		}
		if after := spent(); (after != before) != step.takes || step.takes && len(after) != 57 {
			t.Errorf("%s at %d bytes per second: spent %q, before %q", step.do, step.rate, after, before)
		}
	}
}
