package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// rounds is how many rounds a plain test run makes, over all rigs; ROUNDS overrides it, and "all"
// makes every fault on every rig happen once.
const rounds = 18

// Timeouts of the engines under test, short so that a round is: a replica that says nothing is
// dropped after the first.
var engineFlags = []string{"--replica-timeout", "2500ms", "--gather-timeout", "2s", "--no-replica-timeout", "30s",
	"--lease", "1s"}

// rigs are the volumes that rounds are made on. They share the machine, each has its own rounds.
var rigs = []struct {
	name string
	cfg  rig.Config
	seed uint64
}{
	{"network", rig.Config{Replicas: 3, Size: 16 * mib, Network: true, Disk: 128 * mib}, 1},
	{"device", rig.Config{Replicas: 3, Size: 16 * mib, Transport: "fuse-loop", Disk: 128 * mib, Shares: true}, 2},
	{"pair", rig.Config{Replicas: 2, Size: 16 * mib, Network: true, Disk: 128 * mib, Shares: true}, 3},
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, s)
	}
	return n
}

// TestRounds runs volumes under writers that know what every sector may hold, and does something
// terrible to them again and again. After every round the volume must be whole: nothing
// acknowledged is lost, nothing is made up, and the replicas are identical at every layer.
//
// ROUNDS sets how many, SEED what happens, FAULT one fault by name.
func TestRounds(t *testing.T) {
	seed := number(t, "SEED", seeded.Key(t))
	n := everyFault
	if os.Getenv("ROUNDS") != "all" {
		n = int(number(t, "ROUNDS", rounds))
	}
	if testing.Short() {
		n = len(rigs)
	}
	totals := make([]*run, len(rigs))
	began := time.Now()
	t.Run("rigs", func(t *testing.T) {
		for i, c := range rigs {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				own := n
				if n != everyFault {
					own = (n + len(rigs) - 1 - i) / len(rigs)
				}
				totals[i] = runRounds(t, c.cfg, c.name, seed, seed+c.seed, own)
			})
		}
	})
	report(t, totals, seed, time.Since(began))
}

// report prints the summary of all rigs in one line.
func report(t *testing.T, runs []*run, seed uint64, took time.Duration) {
	tally := map[string]int{}
	var c rig.Counts
	n, violations, rebuilds, answered, stale := 0, 0, 0, 0, 0
	for _, r := range runs {
		if r == nil {
			continue
		}
		for k, v := range r.tally {
			tally[k] += v
			n += v
		}
		c.Add(r.j.Counts())
		violations += len(r.j.Violations())
		rebuilds += r.rebuilds
		answered += r.answered
		stale += r.stale
	}
	var by []string
	for _, k := range slices.Sorted(maps.Keys(tally)) {
		by = append(by, fmt.Sprintf("%s %d", k, tally[k]))
	}
	line := fmt.Sprintf("sum: crash rounds: %d in %.0f s, seed %d (%s); %d writes, %d of zeroes, %d discards, %d "+
		"flushes, %d verified reads, %d errors as allowed, %d whole passes, %d rebuilds, %d reads answered by "+
		"replaced engines, %d of them stale, %d violations",
		n, took.Seconds(), seed, strings.Join(by, ", "), c.Writes, c.Zeroes, c.Discards, c.Flushes, c.Reads, c.Errors,
		c.Verified, rebuilds, answered, stale, violations)
	t.Log(line)
}

// run is one volume and its rounds.
type run struct {
	t        *testing.T
	v        *rig.Volume
	j        *rig.Journal
	src      *seeded.Source
	rng      *rand.Rand
	conn     rig.Target
	tally    map[string]int
	rebuilds int
	// answered counts reads that an engine answered after it was replaced, stale those with what
	// was no longer true.
	answered, stale int
	engine          *rig.Engine // the one the journal writes to
	round           int
	cfg             rig.Config
	deck            []fault // what is still to come before the faults are shuffled again
}

func runRounds(t *testing.T, cfg rig.Config, name string, base, seed uint64, n int) *run {
	cfg.EngineFlags = engineFlags
	v, err := rig.Open(t, cfg)
	if errors.Is(err, rig.ErrNoNetwork) || errors.Is(err, rig.ErrNoDisk) ||
		err == nil && cfg.Transport == "fuse-loop" && !blockDevices(t) {
		lack.Less(t, "cuts, full disks or block devices are left out: ", err)
		cfg.Network, cfg.Disk, cfg.Transport = false, 0, ""
		v, err = rig.Open(t, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(t, v, cfg, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("this test holds: P4, whatever is killed, cut off or filled, nothing acknowledged is lost and the replicas are "+
				"equal\nround %d of seed %d failed; again: SEED=%d ROUNDS=%d go test ./test/crash -count=1 -v -run "+
				"'TestRounds/rigs/%s'", r.round, base, base, len(rigs)*r.round, name)
		}
	})
	r.startEngine()
	can := possible(cfg, os.Getenv("FAULT"))
	if len(can) == 0 {
		lack.Unfit(t, fmt.Sprintf("FAULT=%s cannot happen to this volume", os.Getenv("FAULT")))
	}
	if n == everyFault {
		n = len(can)
	}
	dealer := r.src.Rand(dealing)
	for r.round = 1; r.round <= n && !t.Failed(); r.round++ {
		r.rng = r.src.Rand(uint64(r.round))
		f := r.deal(can, dealer)
		began := time.Now()
		r.j.Mark("round %d: %s", r.round, f.name)
		r.progress(20 + r.rng.IntN(300))
		hits := v.Hits()
		f.do(r)
		if v.Hits() == hits {
			t.Fatalf("round %d: %s has hit nothing: no process was alive, nothing was cut off or filled", r.round, f.name)
		}
		r.heal()
		r.check()
		r.tally[f.name]++
		t.Logf("round %d: %s, %.1f s", r.round, f.name, time.Since(began).Seconds())
	}
	if !t.Failed() {
		rig.AtLeast(t, "P4, faults that hit", v.Hits(), n)
		rig.AtLeast(t, "P4, requests of the writer", r.j.Counts().Ops(), 20*n)
		rig.AtLeast(t, "P4, whole passes over the volume", r.j.Counts().Verified, n)
	}
	return r
}

// dealing is the stream of random numbers that rounds do not use.
const dealing = 1 << 32

// newRun puts a writer beside a volume; they end with the test.
func newRun(t *testing.T, v *rig.Volume, cfg rig.Config, seed uint64) *run {
	src := seeded.New(t, "P2 and P4: a reader sees the newest acknowledged data, and the replicas are equal")
	src.Note(seed)
	r := &run{t: t, v: v, j: rig.NewJournal(cfg.Size, seed), tally: map[string]int{}, cfg: cfg, src: src, rng: src.Rand(0)}
	t.Cleanup(func() {
		r.j.Tolerate(rig.AnyError)
		v.KillAll() // whoever waits for an engine learns that it is gone
		r.j.End()
	})
	return r
}

// everyFault as number of rounds: as many as there are faults.
const everyFault = -1

// possible are the faults that a volume can suffer, or only the one of that name.
func possible(cfg rig.Config, only string) (can []fault) {
	for _, f := range faults {
		if (only == "" || only == f.name) && f.possible(cfg) {
			can = append(can, f)
		}
	}
	return can
}

// deal gives what happens next as cards are dealt: in any order, but none again before all have
// come.
func (r *run) deal(can []fault, dealer *rand.Rand) fault {
	if len(r.deck) == 0 {
		r.deck = slices.Clone(can)
		dealer.Shuffle(len(r.deck), func(i, k int) { r.deck[i], r.deck[k] = r.deck[k], r.deck[i] })
	}
	f := r.deck[0]
	r.deck = r.deck[1:]
	return f
}

// TestDeal: every fault comes once before any comes twice, in an order that the seed decides.
func TestDeal(t *testing.T) {
	can := possible(rigs[0].cfg, "")
	orders := map[string]bool{}
	src := seeded.New(t, "every fault has its turn, in an order that the seed decides")
	for seed := range uint64(3) {
		src.Note(seed)
		r, dealer, order := &run{}, src.Rand(0), ""
		for range 2 {
			seen := map[string]bool{}
			for range can {
				f := r.deal(can, dealer)
				seen[f.name] = true
				order += f.name + ","
			}
			if len(seen) != len(can) {
				t.Errorf("%d of %d faults have come", len(seen), len(can))
			}
		}
		orders[order] = true
	}
	if len(orders) != 3 {
		t.Errorf("%d orders from 3 seeds", len(orders))
	}
}

// startEngine starts an engine on one of the nodes, waits until it serves, and gives it to the
// journal.
func (r *run) startEngine() {
	r.t.Helper()
	var last string
	wait.Until(r.t, "an engine that serves", func() bool {
		e := r.v.NewEngine(r.v.EngineHosts[len(last)%2])
		wait.Until(r.t, "engine "+e.Name, func() bool { return e.Up() || !e.Alive() })
		if !e.Alive() {
			last = e.Log()
		}
		return e.Alive()
	})
	r.use(r.v.Engine())
}

// use points the journal to an engine that serves.
func (r *run) use(e *rig.Engine) {
	r.t.Helper()
	c, err := e.Target()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, e.Log())
	}
	if r.conn != nil {
		_ = r.conn.Close() // it may be broken
	}
	r.conn = c
	r.j.Mark("engine %s serves", e.Name)
	r.j.Use(c, e != r.engine)
	r.engine = e
}

// progress waits until n more requests have succeeded.
func (r *run) progress(n int) {
	r.t.Helper()
	n += r.j.Counts().Ops()
	wait.Until(
		r.t,
		"progress of the writer",
		func() bool { return r.j.Counts().Ops() >= n || len(r.j.Violations()) > 0 },
	)
	r.judge()
}

// judge fails the round if the journal has found something.
func (r *run) judge() {
	r.t.Helper()
	if v := r.j.Violations(); len(v) > 0 {
		wait.Final(r.t, "violations")
		r.t.Fatalf("round %d:\n%s", r.round, strings.Join(v, "\n"))
	}
}

// state asks the engine for its state, an empty one if it does not answer.
func (r *run) state() *enginev1.State {
	s, err := r.v.State()
	if err != nil {
		return &enginev1.State{}
	}
	return s
}

// heal does what a control plane does: whatever died is started again, what is missing is rebuilt.
func (r *run) heal() {
	r.t.Helper()
	r.v.Heal()
	r.v.Witness().SetOffline(false)
	for _, x := range r.v.Replicas {
		if x.Alive() {
			x.Signal(syscall.SIGCONT)
		}
		if x.Disk != nil {
			if err := x.Disk.Free(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, x := range r.v.Replicas {
		if !x.Alive() {
			x.Start()
		}
	}
	e := r.v.Engine()
	if e.Alive() {
		e.Signal(syscall.SIGCONT)
	}
	if rw := rig.Modes(r.state())[enginev1.Mode_MODE_RW]; !e.Alive() || rw == 0 {
		r.j.Tolerate(rig.AnyError)
		e.Kill()
		r.startEngine()
	}
	r.rebuilds += len(r.v.Replicas) - rig.Modes(r.state())[enginev1.Mode_MODE_RW]
	wait.Until(r.t, "all replicas in the set", r.complete)
	r.j.Tolerate(nil)
}

// complete adds whoever is missing, and reports whether nobody is.
func (r *run) complete() bool {
	r.t.Helper()
	s, err := r.v.State()
	if err != nil {
		return false
	}
	rw := 0
	for _, x := range r.v.Replicas {
		switch x.Mode(s) {
		case enginev1.Mode_MODE_RW:
			rw++
		case enginev1.Mode_MODE_WO:
		default:
			if !x.Alive() {
				r.t.Fatalf("replica %s ended by itself:\n%s", x.Name, x.Log())
			}
			r.forget(s)
			_ = r.add(x) // asked again until it is RW
		}
	}
	return rw == len(r.v.Replicas)
}

// forget removes entries of addresses where no replica is any more.
func (r *run) forget(s *enginev1.State) {
	for _, e := range s.Replicas {
		known := slices.ContainsFunc(r.v.Replicas, func(x *rig.Replica) bool { return "tcp://"+x.Addr == e.Address })
		if !known {
			ctx, cancel := deadline()
			_, _ = r.v.Control().ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: e.Address}) // tried again
			cancel()
		}
	}
}

// add asks the engine to rebuild a replica.
func (r *run) add(x *rig.Replica) error {
	ctx, cancel := deadline()
	defer cancel()
	_, err := r.v.Control().ReplicaAdd(ctx, &enginev1.ReplicaAddRequest{Address: "tcp://" + x.Addr})
	return err
}

// check holds the writer still and looks at everything: the content through a new connection, and
// the replicas' files.
func (r *run) check() {
	r.t.Helper()
	if r.j.Idle() {
		r.use(r.v.Engine())
	}
	r.progress(50) // the volume is usable
	r.settle()
	c, err := r.v.Engine().Target()
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	rig.Final(r.t, errors.Join(r.j.Verify(c), c.Flush()))
	r.judge()
	if err := rig.Compare(r.v.Replicas...); err != nil {
		rig.Final(r.t, fmt.Errorf("round %d: %w\n%s", r.round, err, r.v.Engine().Log()))
	}
	r.j.Resume()
	if r.j.Idle() {
		r.use(r.v.Engine())
	}
}

// settle pauses the writer with all replicas in the set: on a busy machine one may have been too
// slow after it was added.
func (r *run) settle() {
	r.t.Helper()
	wait.Until(r.t, "a moment with all replicas in the set", func() bool {
		r.j.Pause(r.t)
		if r.complete() {
			return true
		}
		r.j.Resume()
		return false
	})
}
