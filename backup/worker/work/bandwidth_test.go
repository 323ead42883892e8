package work

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ankole.storage/backup"
	"ankole.storage/backup/worker"
)

// TestBandwidthIsShared: worker processes of one machine write what they take into one file, and no
// other work does.
func TestBandwidthIsShared(t *testing.T) {
	t.Parallel()
	dir, tmp := t.TempDir(), t.TempDir()
	run := func(do string, v worker.Volume, rate int64) error {
		j := job(dir, v)
		j.Env = append(os.Environ(), "TMPDIR="+tmp)
		j.Order.Do, j.Order.SizeBytes, j.Order.BytesPerSecond = do, volumeBytes, rate
		j.Order.Create = backup.CreateOptions{Volume: "vol", Backup: "first", Snapshot: "s1",
			SnapshotCreated: time.Unix(1e9, 0)}
		j.Order.Restore = backup.RestoreOptions{Volume: "vol", Backup: "first"}
		_, err := worker.Run(t.Context(), j)
		return err
	}
	spent := func() string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(tmp, "ankole-backup-bandwidth-*"))
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
