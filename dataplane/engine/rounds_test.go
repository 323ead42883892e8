package engine_test

import (
	"math"
	"testing"
	"time"

	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// agreedRig is a volume that an engine of epoch 3 has left, with the witness at that epoch.
func agreedRig(t *testing.T, members ...string) *rig {
	g := newRig(t, len(members), 16*mib)
	const before = 3 * quorum.GrantStep
	if _, ok, err := g.witness.Swap(quorum.WitnessRecord{},
		quorum.WitnessRecord{Epoch: before, Engine: "old", InstanceManager: "im",
			Record: quorum.Record{Epoch: before, Generation: 4, Members: members}}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, f := range g.fakes {
		f.promised, f.reply.Blank = before, false
		f.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: before, Generation: 4, Members: members,
			Agreed: true}
	}
	return g
}

// What a replica answers to the epoch before, in the step in which a higher one is granted, is
// nothing in the new round: nobody is counted as silent for it, so the start waits for who is slow.
func TestAnswerOfTheRoundBeforeCountsForNothing(t *testing.T) {
	for draws := range 8 { // the world hands a part of the answer over in some of them
		g := agreedRig(t, "a", "b", "c")
		for range draws {
			g.w.Rand.Uint64()
		}
		a, b, c := g.fakes[0], g.fakes[1], g.fakes[2]
		a.promised = 5 * quorum.GrantStep // the witness has forgotten that
		b.slowHello = true
		c.proc.Freeze()
		g.launch()
		g.until("b is asked", func() bool { return b.hellos == 1 })
		g.until("a higher epoch is granted", func() bool {
			w, err := g.witness.Read()
			return err == nil && w.Epoch == 6*quorum.GrantStep
		})
		g.proc.Freeze()
		pass(g, 10*time.Millisecond)
		b.slowHello = false
		b.release()
		pass(g, 10*time.Millisecond)
		g.proc.Thaw()
		g.until("b is asked again", func() bool { return b.hellos == 2 })
		pass(g, time.Second)
		c.proc.Thaw()
		g.until("the engine serves, or has ended", func() bool { return g.state.Serving || g.state.Fatal })
		g.expectModes("a=RW b=RW c=RW")
	}
}

// Who does not know the secret cannot say that an epoch is promised: the epoch stays, and the
// witness is believed.
func TestStrangerDoesNotDriveTheEpochUp(t *testing.T) {
	for name, promised := range map[string]uint64{
		"more than the witness can hold": math.MaxInt64, "the highest number": math.MaxUint64,
		"a little": 9 * quorum.GrantStep,
	} {
		t.Run(name, func(t *testing.T) {
			g := agreedRig(t, "a", "b")
			x := newFake(g, "x")
			x.impostor, x.promised = true, promised
			g.real = []string{x.addr()}
			g.start()
			w, err := g.witness.Read()
			if want := uint64(4 * quorum.GrantStep); g.state.Epoch != want || w.Epoch != want || err != nil {
				t.Errorf("epoch %d, the witness has %d, %v", g.state.Epoch, w.Epoch, err)
			}
			g.until("a and b serve", func() bool { return g.modes() == "=ERR a=RW b=RW" || g.modes() == "x=ERR a=RW b=RW" })
		})
	}
}

// Who greets with the name of a member and has proved nothing does not keep the member out of a
// start.
func TestStrangerDoesNotKeepAMemberOut(t *testing.T) {
	g := agreedRig(t, "a", "b")
	x := newFake(g, "x")
	x.member, x.slowHello = "b", true
	g.real = []string{x.addr()}
	g.fakes[1].proc.Freeze() // the stranger is first
	g.launch()
	g.until("the stranger has greeted", func() bool { return x.hellos == 1 })
	g.fakes[1].proc.Thaw()
	g.until("the engine serves", func() bool { return g.state.Serving })
	if got := g.state.Record.Members; len(got) != 2 {
		t.Errorf("members %v", got)
	}
	g.expectModes("b=ERR a=RW b=RW")
}
