package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// content is what the volume holds, a number for each of the blocks that are used: the write that
// it is from, 0 for zeroes.
type content []uint64

// The blocks that are used lie in the first operatorRows rows of each of operatorRegions dirty
// regions, of which the last is no longer than that, and in what expansions have added.
const (
	operatorRegions = 3
	operatorRows    = 16
	operatorSize    = (operatorRegions-1)*engine.DirtyRegion + operatorRows*block.Size
)

// size is the volume's in bytes.
func (c content) size() int64 {
	return operatorSize + int64(len(c)-operatorRegions*operatorRows)*block.Size
}

// place is where a block lies.
func place(i int) int64 {
	if n := operatorRegions * operatorRows; i >= n {
		return operatorSize + int64(i-n)*block.Size
	}
	return int64(i/operatorRows)*engine.DirtyRegion + int64(i%operatorRows)*block.Size
}

// operator does one thing at a time with a volume, and knows what it must hold, now and at every
// snapshot. While it does something, processes may die or lose power, a replica may be away, or its
// disk may have no room for a new head; what was not answered may have happened or not, and what
// was not flushed may be gone, but on all replicas alike.
type operator struct {
	w    *World
	v    *Volume
	rnd  *rand.Rand
	head content
	// loose is what else a block of the head may hold, once that is unsure: what it held before
	// writes that are not stable, or that were never answered.
	loose  map[int][]uint64
	unsure bool
	// mixed are blocks that a loss of power has left with sectors of several writes, by the number
	// that stands for them.
	mixed map[uint64][]uint64
	// away is the replica whose node has no power for the time of an operation; room ends a lack of
	// space.
	away *Replica
	room func()
	// snaps are the snapshots that exist and are not removed; live those the head stands on.
	snaps map[string]content
	live  []string
	made  uint64
	// done counts what was done, faults what went wrong meanwhile.
	done   map[string]int
	faults int
	down   bool // the operation was struck by a fault
	steps  int
}

func newOperator(seed uint64, replicas int) *operator {
	w := NewWorld(seed)
	o := &operator{w: w, v: NewVolume(w, replicas, operatorSize), rnd: stream(seed, 7),
		head:  make(content, operatorRegions*operatorRows),
		loose: map[int][]uint64{}, mixed: map[uint64][]uint64{}, snaps: map[string]content{}, done: map[string]int{}}
	var heal func()
	heal = func() {
		o.v.Heal()
		w.After(w.Between(time.Millisecond, 20*time.Millisecond), heal)
	}
	heal()
	return o
}

// step does one thing and checks everything.
func (o *operator) step() error {
	if !o.w.Until(healTime, o.v.Healthy) {
		return fmt.Errorf("not healthy: %s", o.v.Current.state.Reason)
	}
	for range o.rnd.IntN(4) {
		if err := o.write(); err != nil {
			return err
		}
	}
	ops := []struct {
		name string
		do   func() error
	}{{"snapshot", o.snapshot}, {"snapshot", o.snapshot}, {"snapshot", o.snapshot}, {"remove", o.remove},
		{"purge", o.purge}, {"expand", o.expand},
		{"revert", o.revert}, {"revert", o.revert}, {"writes", o.writes}, {"writes", o.writes}}
	op := ops[o.rnd.IntN(len(ops))]
	o.down = false
	o.steps++
	if err := o.trouble(); err != nil {
		return err
	}
	if n := o.steps; o.rnd.IntN(2) == 0 {
		o.w.After(between(o.rnd, 0, 3*time.Millisecond), func() {
			if n == o.steps {
				o.faults++
				o.down = true
				o.fault()
			}
		})
	}
	o.done[op.name]++
	o.v.log("operator: %s", op.name)
	err := op.do()
	o.steps++
	if o.calm(); err != nil {
		return fmt.Errorf("%s: %w", op.name, err)
	}
	if !o.w.Until(healTime, o.v.Healthy) {
		return fmt.Errorf("not healthy after %s: %s", op.name, o.v.Current.state.Reason)
	}
	if err := o.check(); err != nil {
		return fmt.Errorf("after %s: %w", op.name, err)
	}
	return nil
}

var errEngineDied = errors.New("the engine died")

// ask posts a message and waits for the answer, or for the engine's end.
func (o *operator) ask(message func(reply func(error)) any) error {
	e := o.v.Current
	if !e.Alive() {
		return errEngineDied
	}
	answered, err := false, error(nil)
	e.Post(message(func(x error) { answered, err = true, x }))
	if !o.w.Until(healTime, func() bool { return answered || !e.Alive() }) {
		return errors.New("no answer")
	}
	if !answered {
		return errEngineDied
	}
	return err
}

// outcome of an operation: done, or in doubt after a fault; an error without one is a violation.
func (o *operator) outcome(err error) (done bool, violation error) {
	o.calm()
	if err != nil && !o.down {
		return false, err
	}
	return err == nil, nil
}

func (o *operator) snapshot() error {
	o.made++
	name := fmt.Sprintf("s%d", o.made)
	user := o.rnd.IntN(4) > 0
	err := o.ask(func(reply func(error)) any {
		return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: name, UserCreated: user, Created: created},
			Reply: reply}
	})
	done, violation := o.outcome(err)
	if done || (violation == nil && o.everybodyHas(name)) {
		o.snaps[name] = slices.Clone(o.head)
		o.live = append(o.live, name)
		o.stable()
	}
	return violation
}

// everybodyHas waits until the volume is healthy and tells whether a snapshot that nobody was told
// of has come to be. If only some replicas had it, check finds that.
func (o *operator) everybodyHas(name string) bool {
	o.w.Until(healTime, o.v.Healthy)
	for _, r := range o.v.Replicas {
		if r.Chain() == nil || !slices.Contains(unremoved(r.Chain()), name) {
			return false
		}
	}
	return true
}

// nobodyHas is the same for a snapshot whose removal nobody was told of.
func (o *operator) nobodyHas(name string) bool {
	o.w.Until(healTime, o.v.Healthy)
	for _, r := range o.v.Replicas {
		if r.Chain() != nil && slices.Contains(unremoved(r.Chain()), name) {
			return false
		}
	}
	return true
}

func unremoved(c *chain.Chain) []string {
	all, err := c.Snapshots()
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	var names []string
	for _, s := range all {
		if !s.Removed && s.Name != chain.HeadName {
			names = append(names, s.Name)
		}
	}
	return names
}

func (o *operator) pick() string {
	names := slices.Sorted(maps.Keys(o.snaps))
	if len(names) == 0 {
		return ""
	}
	return names[o.rnd.IntN(len(names))]
}

func (o *operator) forget(name string) {
	delete(o.snaps, name)
	o.live = slices.DeleteFunc(o.live, func(n string) bool { return n == name })
}

func (o *operator) remove() error {
	name := o.pick()
	if name == "" {
		return nil
	}
	err := o.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: name, Reply: reply} })
	done, violation := o.outcome(err)
	if done || (violation == nil && o.nobodyHas(name)) {
		o.forget(name)
	}
	return violation
}

// purge removes the snapshots of the system, those of expansions among them.
func (o *operator) purge() error {
	err := o.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} })
	done, violation := o.outcome(err)
	if violation != nil {
		return violation
	}
	e := o.v.Current
	if done && !o.w.Until(healTime, func() bool { return !e.Alive() || !purging(e) }) {
		return errors.New("the purge does not end")
	}
	for name := range o.snaps {
		if o.nobodyHas(name) && o.system(name) {
			o.forget(name)
		}
	}
	if done && !o.down {
		return o.nothingLeft()
	}
	return nil
}

func purging(e *EngineProcess) bool {
	return slices.ContainsFunc(
		e.state.Replicas,
		func(r engine.Replica) bool { return r.Purge != nil && r.Purge.Running },
	)
}

// system tells whether somebody still knows a snapshot as one of the system's, or it is gone
// everywhere.
func (o *operator) system(name string) bool {
	for _, r := range o.v.Replicas {
		all, _ := r.Chain().Snapshots()
		for _, s := range all {
			if s.Name == name && s.UserCreated {
				return false
			}
		}
	}
	return true
}

// nothingLeft: after a purge no removed snapshot is left but the one behind the head and those with
// several children.
func (o *operator) nothingLeft() error {
	for _, r := range o.v.Replicas {
		all, err := r.Chain().Snapshots()
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Removed && len(s.Children) < 2 && !slices.Contains(s.Children, chain.HeadName) {
				return fmt.Errorf("%s still has removed snapshot %s with children %v", r.Name, s.Name, s.Children)
			}
		}
	}
	return nil
}

func (o *operator) expand() error {
	grown := append(slices.Clone(o.head), make(content, 1+o.rnd.IntN(16))...)
	size, name := grown.size(), fmt.Sprintf("expand-%d", grown.size())
	err := o.ask(func(reply func(error)) any { return engine.Expand{Size: size, Created: created, Reply: reply} })
	done, violation := o.outcome(err)
	if violation != nil {
		return violation
	}
	// The next start may finish the expansion without the snapshot, since nobody was told of that.
	if done || o.everybodyHas(name) {
		o.snaps[name] = slices.Clone(o.head)
		o.live = append(o.live, name)
		o.stable()
	}
	if done || o.v.Replicas[0].Chain().Size() == size {
		o.head = grown
		if o.rnd.IntN(2) == 0 {
			o.v.Size = size // the control plane has noticed
		}
	}
	return nil
}

func (o *operator) revert() error {
	if len(o.live) == 0 {
		return nil
	}
	i := o.rnd.IntN(len(o.live))
	name := o.live[i]
	err := o.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} })
	e := o.v.Current
	if err == nil {
		err = o.ask(func(reply func(error)) any { return engine.Revert{Name: name, Created: created, Reply: reply} })
	}
	if e.Alive() && e == o.v.Current && e.front.stop {
		e.front = newFront(e.Process, e.arena)
		e.Post(engine.AttachFrontend{Frontend: e.front, Reply: func(error) {}})
	}
	done, violation := o.outcome(err)
	if violation != nil {
		return violation
	}
	to := append(slices.Clone(o.snaps[name]), make(content, len(o.head)-len(o.snaps[name]))...)
	if !done {
		o.w.Until(healTime, o.v.Healthy)
		same, err := o.holds(o.v.Replicas[0].Chain(), chain.HeadName, to)
		if err != nil {
			return err
		}
		done = same
	}
	if done {
		o.head, o.live = to, o.live[:i+1]
		o.stable()
	}
	return nil
}

// holds tells whether a replica has the content at a snapshot.
func (o *operator) holds(c *chain.Chain, snapshot string, want content) (bool, error) {
	read := c.ReadAt
	if snapshot != chain.HeadName {
		view, err := c.OpenView(snapshot)
		if err != nil {
			return false, err
		}
		defer view.Close()
		if view.Size() != want.size() {
			return false, fmt.Errorf("%s has %d bytes, want %d", snapshot, view.Size(), want.size())
		}
		read = view.ReadAt
	}
	for i, w := range want {
		if got, _, err := blockAt(read, i); err != nil || got != w {
			return false, err
		}
	}
	return true, nil
}

// check compares every replica with what the operator knows.
func (o *operator) check() error {
	if err := o.decide(); err != nil {
		return err
	}
	// Whether a revert whose answer was lost has happened cannot always be told from the content,
	// so what the head stands on is taken over from the first replica; the others must say the
	// same.
	for _, r := range o.v.Replicas {
		c := r.Chain()
		if c == nil {
			return fmt.Errorf("%s is not open", r.Name)
		}
		if c.Size() != o.head.size() {
			return fmt.Errorf("%s has %d bytes, want %d", r.Name, c.Size(), o.head.size())
		}
		if same, err := o.holds(c, chain.HeadName, o.head); err != nil || !same {
			return fmt.Errorf("%s: the head is not what was written: %v", r.Name, err)
		}
		have := unremoved(c)
		for _, name := range o.live {
			if !slices.Contains(have, name) {
				return fmt.Errorf("%s has lost snapshot %s: it has %v", r.Name, name, have)
			}
		}
		for _, name := range have {
			want, ok := o.snaps[name]
			if !ok {
				return fmt.Errorf("%s has snapshot %s, which was never taken or is removed", r.Name, name)
			}
			if same, err := o.holds(c, name, want); err != nil || !same {
				return fmt.Errorf("%s: snapshot %s is not what was written: %v", r.Name, name, err)
			}
		}
	}
	return nil
}

// TestOperatorWithCrashes takes, removes, purges, reverts and expands at random while processes die
// and machines lose power. At every step every replica holds what was written, now and at every
// snapshot.
func TestOperatorWithCrashes(t *testing.T) {
	seeds, steps := uint64(12), 30
	first := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		first, seeds = s, 1
	}
	if s, err := strconv.ParseUint(os.Getenv("OPERATOR_SEEDS"), 10, 64); err == nil {
		first, seeds = number(t, "OPERATOR_FROM", first), s
	}
	done, faults, repaired := map[string]int{}, 0, 0
	for seed := first; seed < first+seeds; seed++ {
		o := newOperator(seed, 1+int(seed%3))
		for n := range steps {
			if err := o.step(); err != nil {
				t.Errorf("seed %d, step %d: %v\nrepeat with: SEED=%d go test ./sim -run TestOperatorWithCrashes\n%s",
					seed, n, err, seed, o.v.History())
				break
			}
		}
		for k, n := range o.done {
			done[k] += n
		}
		faults += o.faults
		repaired += o.v.Repaired
		o.v.Close()
	}
	t.Logf("%v, %d faults, %d interrupted changes made the same", done, faults, repaired)
	if seeds > 3 && (faults == 0 || repaired == 0 || len(done) < 5) {
		t.Error("nothing was tried")
	}
}
