package crash

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// heads are the head's files in a replica's directory.
func heads(t *testing.T, r *rig.Replica) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(r.Dir, "volume-head-*.img"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	return names
}

// TestHeadRemovedUnderOneOfSeveral removes, or replaces, the head under a replica that runs, beside
// a load: nobody sees an error, that replica is dropped within seconds, and the same directory is
// rebuilt.
func TestHeadRemovedUnderOneOfSeveral(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		v := rig.New(t, 3, 64*mib)
		v.StartEngine()
		w := rig.StartLoad(t, v.Dial(), v.Size, 11)
		w.AwaitMore(t, 300)
		victim := v.Replicas[1]
		head := heads(t, victim)[0]
		if replaced {
			rig.Final(t, os.WriteFile(head+".new", []byte("another"), 0o600))
			rig.Final(t, os.Rename(head+".new", head))
		} else {
			rig.Final(t, os.Remove(head))
		}
		v.Await("the replica is dropped", func(s *enginev1.State) bool {
			return victim.Mode(s) == enginev1.Mode_MODE_ERR && rig.Modes(s)[enginev1.Mode_MODE_RW] == 2
		})
		state, err := v.State()
		rig.Final(t, err)
		for _, r := range state.Replicas {
			if r.Mode == enginev1.Mode_MODE_ERR && !strings.Contains(r.Error, filepath.Base(head)) {
				t.Errorf("it was dropped for %q", r.Error)
			}
		}
		victim.Stop()
		victim.Start()
		v.Rebuild(victim)
		w.AwaitMore(t, 300)
		w.Finish()
		v.StopEngine()
		for _, r := range v.Replicas {
			r.Stop()
		}
		identical(t, v.Replicas...)
	}
}

// TestFilesRemovedUnderTheOnlyReplica removes head, snapshot and metadata under the only replica,
// beside a load: it goes on, and has everything in files with names again.
func TestFilesRemovedUnderTheOnlyReplica(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 1, 64*mib)
	v.StartEngine()
	w := rig.StartLoad(t, v.Dial(), v.Size, 12)
	w.AwaitMore(t, 300)
	_, err := v.Control().SnapshotCreate(context.Background(),
		&enginev1.SnapshotCreateRequest{Name: "a", UserCreated: true})
	rig.Final(t, err)
	w.AwaitMore(t, 300)
	r := v.Replicas[0]
	gone := append(heads(t, r), filepath.Join(r.Dir, "volume-snap-a.img"), filepath.Join(r.Dir, "volume.meta"),
		filepath.Join(r.Dir, "ankole.member"))
	for _, name := range gone {
		rig.Final(t, os.Remove(name))
	}
	wait.Until(t, "all files are there again", func() bool {
		for _, name := range gone {
			if _, err := os.Stat(name); err != nil {
				return false
			}
		}
		return strings.Count(r.Log(), "event=file-restored") == 2
	})
	w.AwaitMore(t, 300)
	w.Finish()
	v.KillAll()
	r.Start()
	v.StartEngine()
	w.Verify(t, v.Dial())
}

// TestHeadRemovedBeforeTheEnd ends the only replica in the moment in which it has lost its head.
func TestHeadRemovedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 1, 64*mib)
	v.StartEngine()
	w := rig.StartLoad(t, v.Dial(), v.Size, 13)
	w.AwaitMore(t, 500)
	w.Finish()
	v.StopEngine()
	r := v.Replicas[0]
	rig.Final(t, os.Remove(heads(t, r)[0]))
	r.Stop()
	r.Start()
	v.StartEngine()
	w.Verify(t, v.Dial())
}

// TestHeadRemovedBeforeTheEndOfOneOfSeveral ends one of two replicas in the moment in which it has
// lost its head: the directory is a rebuild target then, and the same one is rebuilt.
func TestHeadRemovedBeforeTheEndOfOneOfSeveral(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 2, 32*mib)
	v.StartEngine()
	w := rig.StartLoad(t, v.Dial(), v.Size, 14)
	w.AwaitMore(t, 200)
	_, err := v.Control().SnapshotCreate(context.Background(),
		&enginev1.SnapshotCreateRequest{Name: "a", UserCreated: true})
	rig.Final(t, err)
	w.AwaitMore(t, 200)
	w.Finish()
	v.StopEngine()
	victim := v.Replicas[1]
	for _, name := range append(heads(t, victim), filepath.Join(victim.Dir, "volume-snap-a.img")) {
		rig.Final(t, os.Remove(name))
	}
	victim.Stop()
	victim.Start()
	v.StartEngine()
	v.Rebuild(victim)
	w.Verify(t, v.Dial())
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v.Replicas...)
}
