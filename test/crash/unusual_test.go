package crash

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// under starts a volume with a writer on it. Its engines have the timeouts of production.
func under(t *testing.T, cfg rig.Config) *run {
	t.Helper()
	r := idle(t, cfg)
	r.startEngine()
	return r
}

// idle starts the replicas of a volume, and a writer that has nothing to write to yet.
func idle(t *testing.T, cfg rig.Config) *run {
	t.Helper()
	cfg.Size = 16 * mib
	v, err := rig.Open(t, cfg)
	if errors.Is(err, rig.ErrNoNetwork) || errors.Is(err, rig.ErrNoDisk) {
		lack.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newRun(t, v, cfg, number(t, "SEED", seeded.Key(t)))
}

// finish heals and checks.
func (r *run) finish() {
	r.t.Helper()
	r.heal()
	r.check()
}

// TestTwoEnginesAtOnce starts two engines on the same replicas at the same moment: one serves in
// the end, the other one ends with an error.
func TestTwoEnginesAtOnce(t *testing.T) {
	t.Parallel()
	r := idle(t, rig.Config{Replicas: 3})
	for range 3 {
		a, b := r.v.NewEngine(r.v.EngineHosts[0]), r.v.NewEngine(r.v.EngineHosts[1])
		wait.Until(t, "one of two engines ends, the other serves", func() bool {
			return a.Alive() != b.Alive() && (a.Up() || b.Up())
		})
		winner, loser := a, b
		if b.Alive() {
			winner, loser = b, a
		}
		if code := loser.Exit(); code == 0 {
			t.Fatalf("the loser ended with %d\n%s", code, loser.Log())
		}
		r.v.SetEngine(winner)
		r.use(winner)
		r.progress(100)
		r.j.Tolerate(rig.AnyError)
		winner.Kill()
	}
	r.finish()
}

// TestDirectoryInUse starts a second replica on a directory: it is refused, and the first one does
// not notice.
func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 2})
	first := r.v.Replicas[0]
	second := r.v.Imitate(first)
	second.Spawn(0)
	if code := second.Exit(); code == 0 || !strings.Contains(second.Log(), "in use") {
		t.Fatalf("the second replica ended with %d:\n%s", code, second.Log())
	}
	r.progress(100)
	r.finish()
}

// TestDirectoryRemoved takes a replica's directory away while it is served. What it has open goes
// on; the next metadata change drops it; started again it is empty and counts for nothing.
func TestDirectoryRemoved(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	x := r.v.Replicas[1]
	r.progress(100)
	if err := os.RemoveAll(x.Dir); err != nil {
		t.Fatal(err)
	}
	r.progress(100)
	ctx, cancel := deadline()
	defer cancel()
	if _, err := r.v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: "one"}); err != nil {
		t.Fatalf("snapshot with the directory of one replica gone: %v", err)
	}
	r.awaitDropped(x)
	r.progress(100)
	killAll(r)
	r.heal()
	r.check()
}

// TestForeignReplica starts replicas that are not the volume's: with another secret the engine does
// not accept it, with another volume's directory it does not even start.
func TestForeignReplica(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	x := r.v.Replicas[2]
	r.progress(100)

	x.Kill()
	x.Env = []string{"ANKOLE_VOLUME_SECRET=" + strings.Repeat("ab", 32)}
	x.Start()
	r.forget(r.state())
	if err := r.add(x); err == nil {
		r.awaitDropped(x)
	}
	r.progress(100)

	x.Kill()
	before, err := rig.Content(x.Dir)
	if err != nil {
		t.Fatal(err)
	}
	x.Env = []string{"ANKOLE_VOLUME_UUID=6e9f8e2c-1111-4222-8333-123456789abc"}
	x.Spawn(0)
	if code := x.Exit(); code == 0 || !strings.Contains(x.Log(), "volume") {
		t.Fatalf("a replica on another volume's directory ended with %d:\n%s", code, x.Log())
	}
	after, err := rig.Content(x.Dir)
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Fatalf("the directory was changed: %v", err)
	}
	r.progress(100)
	x.Env = nil
	r.finish()
}

// strangers is more connections than a replica or a frontend keeps.
const strangers = 100

// TestNonsenseOnTheWire talks nonsense to the replicas' data ports, and holds many connections open
// without saying anything, while the volume is used. Nobody is dropped, and a new engine finds its
// way in between.
func TestNonsenseOnTheWire(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range strangers {
		for _, x := range r.v.Replicas {
			c, err := r.v.DialData(x)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			noise := make([]byte, i*7)
			_, _ = rand.Read(noise) // never fails
			_, _ = c.Write(noise)   // it may have been closed in our face
			if i%3 == 0 {
				c.Close()
			}
		}
	}
	r.progress(200)
	if n := rig.Modes(r.state())[enginev1.Mode_MODE_RW]; n != 3 {
		t.Fatalf("%d of 3 replicas are left\n%s", n, r.v.Engine().Log())
	}
	killEngine(r)
	r.finish()
}

// TestFewDescriptors lets a replica run out of file descriptors by connections that nobody needs:
// its engine's goes on, and once they are gone a new one is let in.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	r := idle(t, rig.Config{Replicas: 2})
	const files = 28
	for _, x := range r.v.Replicas {
		x.Kill()
		x.Spawn(files)
	}
	for _, x := range r.v.Replicas {
		wait.Until(t, "replica "+x.Name, x.Listening)
	}
	r.startEngine()
	r.progress(100)
	var open []net.Conn
	for range 2 * files {
		for _, x := range r.v.Replicas {
			for _, dial := range []func(*rig.Replica) (net.Conn, error){r.v.DialData, r.v.DialControl} {
				if c, err := dial(x); err == nil {
					open = append(open, c)
				}
			}
		}
	}
	r.progress(100)
	if n := rig.Modes(r.state())[enginev1.Mode_MODE_RW]; n != 2 {
		t.Fatalf("%d of 2 replicas are left\n%s", n, r.v.Engine().Log())
	}
	killEngine(r)
	for _, c := range open {
		c.Close()
	}
	r.finish()
}

// TestWitnessAwayAtStart: without the witness no engine starts; it waits, and goes on when the
// witness is there.
func TestWitnessAwayAtStart(t *testing.T) {
	t.Parallel()
	r := idle(t, rig.Config{Replicas: 3})
	r.v.Witness().SetOffline(true)
	r.v.SpawnEngine()
	e := r.v.Engine()
	wait.Until(
		t,
		"the engine says what it waits for",
		func() bool { return strings.Count(e.Log(), "witness-silent") > 1 },
	)
	if e.Up() || !e.Alive() {
		t.Fatalf("up: %t, alive: %t, without a witness\n%s", e.Up(), e.Alive(), e.Log())
	}
	r.v.Witness().SetOffline(false)
	e.AwaitUp()
	r.use(e)
	r.finish()
}

// TestWitnessAwayAndBack: with the witness away three replicas go to two and nobody notices; two
// cannot go to one, so requests wait, without an error, until the witness is back.
func TestWitnessAwayAndBack(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	r.progress(100)
	r.v.Witness().SetOffline(true)
	r.v.Replicas[0].Kill()
	r.progress(100)
	r.v.Replicas[1].Kill()
	wait.Until(t, "every request waits", r.j.Stuck)
	wait.Until(t, "the engine asks the witness", func() bool {
		return strings.Contains(r.v.Engine().Log(), "witness-silent")
	})
	if !r.j.Stuck() {
		t.Fatal("a request was answered with one replica of two and no witness")
	}
	r.judge()
	r.v.Witness().SetOffline(false)
	r.progress(100)
	r.finish()
}

// TestDeadHostIsNoticed cuts a host off while nobody reads or writes: it is given up all the same,
// so that the first request does not have to find out.
func TestDeadHostIsNoticed(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROUNDS") == "" {
		lack.Later(t, "takes more than a minute; ROUNDS=1 runs it, as tools/hunt.sh crash does")
	}
	r := under(t, rig.Config{Replicas: 3, Network: true})
	r.progress(100)
	r.j.Pause(t)
	x := r.v.Replicas[1]
	x.Host.Cut(t, false, x.Host.Others()...)
	r.awaitDropped(x)
	r.j.Resume()
	r.progress(100)
	r.finish()
}
