package crash

import (
	"strings"
	"syscall"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// sent is what the restore under way, or the last one, has written.
func sent(t *testing.T, v *rig.Volume) int64 {
	t.Helper()
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	return s.GetRestore().GetSentBytes()
}

// merged: a volume has the snapshot of its backup and the head.
func merged(s *enginev1.State) bool {
	done := len(s.GetSnapshots()) == 2
	for _, r := range s.GetReplicas() {
		done = done && r.GetPurge().GetState() == "complete"
	}
	return done
}

// TestRestoreFollows restores backup after backup into one volume: the difference to the one
// before, after another engine has started too, and where a restore was cut off; all of it where
// that one is not in the store any more.
func TestRestoreFollows(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	to := b.empty()
	next := func(name string, off int64) {
		t.Helper()
		if name != "b1" {
			b.write(off, mib)
		}
		b.snapshot(name)
		b.backup(name, name)
	}
	follow := func(name string, want int64) {
		t.Helper()
		wait.Until(t, "the beginning of restore "+name, func() bool { // snapshots of the one before are merged
			_, err := command(to, "restore", b.url(name))
			if err != nil && !strings.Contains(err.Error(), "try again") && !strings.Contains(err.Error(), "under way") {
				t.Fatal(err)
			}
			return err == nil
		})
		if state, reason := b.restored(to); state != "complete" {
			t.Fatal(state, reason)
		}
		if n := sent(t, to); n != want {
			t.Errorf("restore %s has written %d MiB", name, n/mib)
		}
	}
	next("b1", 0)
	follow("b1", 40*mib)
	next("b2", 7*mib)
	follow("b2", 2*mib)
	to.KillEngine()
	serve(to)
	next("b3", 50*mib)
	follow("b3", 2*mib)
	b.must(b.v, "rm", b.url("b3"))
	next("b4", 50*mib)
	follow("b4", 42*mib)
	for off := int64(0); off < 20*mib; off += 2 * mib {
		b.write(off, mib)
	}
	next("b5", 50*mib)
	b.must(to, "restore", b.url("b5"))
	worker := b.worker(to, func() bool {
		s, err := to.State()
		return err == nil && s.GetRestore().GetSnapshot() == "b5" && s.GetRestore().GetSentBytes() > 0
	})
	to.KillEngine()
	b.signal(worker, syscall.SIGCONT)
	b.gone(worker)
	serve(to)
	to.Await("it holds again what it held", func(s *enginev1.State) bool {
		r := s.GetRestore()
		return r.GetState() == "complete" && r.GetSnapshot() == "b4" && !r.GetIncomplete()
	})
	follow("b5", 22*mib)
	to.Await("the former snapshots are merged", merged)
	to.StopEngine()
	want := contentOf(t, b.v.Replicas[0].Dir, "volume-snap-b5.img")
	for _, r := range to.Replicas {
		if contentOf(t, r.Dir, "volume-head-") != want {
			t.Errorf("replica %s does not hold what was backed up", r.Name)
		}
	}
}
