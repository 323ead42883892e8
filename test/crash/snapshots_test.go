package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// operated is what an operator was told about a volume's snapshots.
type operated struct {
	v    *rig.Volume
	rng  *rand.Rand
	next int
	have []string // acknowledged and never asked to be removed
	size int64
	done map[string]int
}

// operate takes, removes and purges snapshots and expands the volume, until the engine is gone.
func (o *operated) operate() {
	engine := o.v.Control()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		var err error
		what := ""
		switch n := o.rng.IntN(8); {
		case n < 4:
			o.next++
			name := fmt.Sprintf("s%d", o.next)
			if _, err = engine.SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}); err == nil {
				o.have = append(o.have, name)
			}
			what = "snapshot"
		case n < 6 && len(o.have) > 0:
			i := o.rng.IntN(len(o.have))
			name := o.have[i]
			o.have = append(o.have[:i], o.have[i+1:]...)
			_, err = engine.SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: name})
			what = "remove"
		case n < 7:
			_, err = engine.SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{SkipIfInProgress: true})
			what = "purge"
		default:
			size := o.size + mib/2
			if _, err = engine.Expand(ctx, &enginev1.ExpandRequest{Size: size}); err == nil {
				o.size = size
			}
			what = "expand"
		}
		if err != nil {
			return // the engine is gone, or a replica was: the next round looks at what is left
		}
		o.done[what]++
	}
}

// check finds everything the operator was told.
func (o *operated) check(t *testing.T) {
	t.Helper()
	s, err := o.v.State()
	if err != nil {
		t.Fatal(err)
	}
	if s.Size < o.size {
		t.Errorf("the volume has %d bytes, it was expanded to %d", s.Size, o.size)
	}
	for _, name := range o.have {
		if n := s.Snapshots[name]; n == nil || n.Removed {
			t.Errorf("acknowledged snapshot %s is gone: %v", name, n)
		}
	}
	o.size = s.Size // an expansion that nobody was told of may have happened
}

// same compares closed replicas at the head and at every snapshot that is left.
func (o *operated) same(t *testing.T) {
	t.Helper()
	first := map[string][32]byte{}
	for i, r := range o.v.Replicas {
		layers, err := rig.Content(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string][32]byte{}
		for _, l := range layers {
			sums[l.File] = l.Sum
		}
		if i == 0 {
			first = sums
		}
		files := []string{layers[len(layers)-1].File}
		for _, name := range o.have {
			files = append(files, "volume-snap-"+name+".img")
		}
		for _, f := range files {
			if sum, ok := sums[f]; !ok || sum != first[f] {
				t.Errorf("replica %s differs from %s at %s (there: %t)", r.Name, o.v.Replicas[0].Name, f, ok)
			}
		}
	}
}

// TestSnapshotsUnderKills lets an operator take, remove and purge snapshots and expand the volume
// under a writer, while processes are killed at random: whatever was acknowledged is there
// afterwards, and every replica holds the same, now and at every snapshot.
func TestSnapshotsUnderKills(t *testing.T) {
	t.Parallel()
	rounds := int(number(t, "SNAPSHOT_ROUNDS", 8))
	if testing.Short() {
		rounds = 2
	}
	v := rig.New(t, 3, 16*mib)
	src := seeded.New(t, "P4: an acknowledged snapshot stays, and has the same content on every replica")
	seed := src.Fresh()
	rng := src.Rand(98)
	o := &operated{v: v, rng: rng, size: v.Size, done: map[string]int{}}
	var w *rig.Writer
	version, rebuilt := uint64(0), 0
	begin := func() {
		v.StartEngine()
		c := v.Dial()
		if w == nil {
			w = rig.NewWriter(c, v.Size, seed)
		}
		w.Device = c
		w.Verify(t, c)
		rebuilt += rebuildMissing(t, v)
		o.check(t)
	}
	for range rounds {
		begin()
		operated := make(chan struct{})
		go func() { defer close(operated); o.operate() }()
		kind, killed := rng.IntN(3), make(chan struct{})
		time.AfterFunc(time.Duration(50+rng.IntN(400))*time.Millisecond, func() { defer close(killed); kill(v, kind) })
		var err error
		for err == nil {
			version++
			err = w.Step(version)
		}
		<-killed
		<-operated
		for _, r := range v.Replicas {
			if !r.Alive() {
				r.Start()
			}
		}
	}
	begin()
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	o.same(t)
	rig.AtLeast(t, "P4, processes killed", v.Hits(), rounds)
	rig.AtLeast(t, "P4, writes", w.Ops(), rounds)
	operations := 0
	for _, n := range o.done {
		operations += n
	}
	rig.AtLeast(t, "P4, operations acknowledged", operations, rounds)
	rig.AtLeast(t, "P4, snapshots acknowledged", o.done["snapshot"], 1)
	t.Logf("seed %d: %d rounds, %d writes, %d rebuilds, acknowledged %v, %d snapshots left, %d bytes", seed, rounds,
		w.Ops(), rebuilt, o.done, len(o.have), o.size)
}

// kill ends the engine alone, a replica a moment before it, or everything.
func kill(v *rig.Volume, kind int) {
	switch kind {
	case 0:
		v.KillEngine()
	case 1:
		v.Replicas[1].Kill()
		v.KillEngine()
	default:
		v.KillAll()
	}
}
