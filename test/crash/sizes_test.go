package crash

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
)

// TestSizesAreThoseOnDisk compares the sizes that the engine tells with what the files occupy,
// after every kind of change: nothing is guessed, and nobody has to wait for a timer.
func TestSizesAreThoseOnDisk(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	v := rig.New(t, 1, 16*mib)
	v.StartEngine()
	c, e := v.Dial(), v.Control()
	write := func(off int64, n int) func() error {
		return func() error { _, err := c.WriteAt(make([]byte, n), off); return err }
	}
	snapshot := func() error {
		_, err := e.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{UserCreated: true})
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"write", write(0, 300<<10)}, {"snapshot", snapshot}, {"write again", write(100<<10, 1*mib)},
		{"a second snapshot", snapshot},
		{"write elsewhere", write(8*mib, 64<<10)}, {"trim", func() error { return c.Trim(8*mib, 32<<10) }},
		{"expand", func() error { _, err := e.Expand(ctx, &enginev1.ExpandRequest{Size: 32 * mib}); return err }},
		{"purge", func() error { _, err := e.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}); return err }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		v.Await("no purge", func(s *enginev1.State) bool {
			return len(s.Replicas) == 1 && !s.Replicas[0].GetPurge().GetRunning()
		})
		s, err := v.State()
		if err != nil {
			t.Fatal(err)
		}
		compareSizes(t, step.name, s, v.Replicas[0].Dir)
	}
}

func compareSizes(t *testing.T, after string, s *enginev1.State, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.img"))
	if err != nil || len(files) != len(s.Snapshots) {
		t.Errorf("after %s: %d files, %d layers are told: %v", after, len(files), len(s.Snapshots), err)
	}
	var sum int64
	for _, f := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(f, &st); err != nil {
			t.Fatal(err)
		}
		sum += st.Blocks * 512
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "volume-snap-"), ".img")
		if strings.HasPrefix(name, "volume-head") {
			name = "volume-head"
		}
		if n := s.Snapshots[name]; n == nil || n.Size != st.Blocks*512 {
			t.Errorf("after %s: %s occupies %d bytes, told are %v", after, f, st.Blocks*512, n)
		}
	}
	if s.ActualSize != sum {
		t.Errorf("after %s: actual size %d, on disk %d", after, s.ActualSize, sum)
	}
}
