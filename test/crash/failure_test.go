package crash

import (
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// identical compares the content of the replica directories, which must be closed.
func identical(t *testing.T, replicas ...*rig.Replica) {
	t.Helper()
	var dirs []string
	for _, r := range replicas {
		dirs = append(dirs, r.Dir)
	}
	rig.Identical(t, dirs...)
}

// TestReplicaLost kills one replica under I/O: no error, no data lost; then it is rebuilt under
// I/O, and in the end all are identical.
func TestReplicaLost(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 3, 64*mib)
	v.StartEngine()
	w := rig.StartLoad(t, v.Dial(), v.Size, 7)
	w.AwaitMore(t, 1000)
	victim, hits := v.Replicas[1], v.Hits()
	victim.Kill()
	rig.AtLeast(t, "P2, a replica that was alive was killed", v.Hits()-hits, 1)
	v.Await("degraded", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 })
	w.AwaitMore(t, 500)
	victim.Start()
	v.Rebuild(victim)
	w.AwaitMore(t, 500)
	w.Finish()
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v.Replicas...)
}

// TestKillEverything kills engine and replicas at a random moment under a writer that flushes,
// again and again: every flushed write is there, nothing is made up, and the replicas are identical
// afterwards.
func TestKillEverything(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	v := rig.New(t, 3, 32*mib)
	src := seeded.New(t, "P1 and P4: after SIGKILL to everything what was flushed is there, and the replicas are equal")
	src.Fresh()
	rng := src.Rand(99)
	var w *rig.Writer
	version := uint64(0)
	rebuilt := 0
	for range rounds {
		v.StartEngine()
		c := v.Dial()
		if w == nil {
			w = rig.NewWriter(c, v.Size, rng.Uint64())
		}
		w.Device = c
		w.Verify(t, c)
		rebuilt += rebuildMissing(t, v)
		var err error
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(20+rng.IntN(250))*time.Millisecond, func() { defer close(killed); v.KillAll() })
		for err == nil {
			version++
			err = w.Step(version)
		}
		<-killed // only then may anything be started again
		for _, r := range v.Replicas {
			r.Start()
		}
	}
	v.StartEngine()
	w.Verify(t, v.Dial())
	rebuilt += rebuildMissing(t, v)
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v.Replicas...)
	rig.AtLeast(t, "P1, processes killed", v.Hits(), rounds*(1+len(v.Replicas)))
	rig.AtLeast(t, "P1, writes", w.Ops(), 4*rounds)
	rig.AtLeast(t, "P1, flushes", w.Flushes(), max(1, rounds/4))
	t.Logf("%d rounds, %d writes, %d flushes, %d rebuilds", rounds, w.Ops(), w.Flushes(), rebuilt)
}

// rebuildMissing brings back the replicas that the engine dropped because they died a moment before
// it did.
func rebuildMissing(t *testing.T, v *rig.Volume) int {
	t.Helper()
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range s.Replicas {
		if x.Mode == enginev1.Mode_MODE_RW {
			continue
		}
		for _, r := range v.Replicas {
			if "tcp://"+r.Addr == x.Address {
				v.Rebuild(r)
				n++
			}
		}
	}
	return n
}
