package crash

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// keepRounds is how many engines are killed under one device; KEEP_ROUNDS overrides it.
const keepRounds = 5

// TestF3DeviceStays kills the engine under writers on its block device, again and again, and starts
// another: the device stays, whoever has it open gets no error, only a pause, and nothing
// acknowledged is lost. It prints the pauses.
func TestF3DeviceStays(t *testing.T) { deviceStays(t, number(t, "KEEP_ROUNDS", keepRounds), 0) }

// TestDeviceStaysThroughKilledStarts: engines are killed on their way too, at any moment between
// their start and the first answer, and the next one still knows that nobody else has served the
// volume.
func TestDeviceStaysThroughKilledStarts(t *testing.T) {
	deviceStays(t, number(t, "KEEP_ROUNDS", keepRounds), 3)
}

// TestF3DeviceStaysWithJournal is the same where the kernel does not send requests again: the
// journal has them.
func TestF3DeviceStaysWithJournal(t *testing.T) {
	deviceStays(t, number(t, "KEEP_ROUNDS", keepRounds), 0, "ANKOLE_FUSE_RESEND=off")
}

// longestStart bounds when an engine on its way is killed: most serve earlier on a quiet machine.
const longestStart = 400 * time.Millisecond

// deviceStays kills an engine that serves in each round, and so many on their way after it.
func deviceStays(t *testing.T, rounds uint64, starts int, env ...string) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here:", err)
	}
	t.Parallel()
	src := seeded.New(t, "P7: an engine that is killed takes no device with it; I/O waits and no request fails")
	seed := src.Fresh()
	rng := src.Rand(3)
	v, err := rig.Open(t, rig.Config{Replicas: 2, Size: 32 * mib, Transport: "fuse-loop", Keep: true,
		EngineFlags: engineFlags})
	if err != nil {
		t.Fatal(err)
	}
	v.EngineEnv = env
	v.StartEngine()
	target, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	j := rig.NewJournal(v.Size, seed)
	j.Use(target, true)
	var pauses []time.Duration
	for range rounds {
		before := j.Counts().Ops()
		goal := before + 50 + rng.IntN(400)
		rig.Await(t, "requests go on", func() bool { return j.Counts().Ops() > goal || len(j.Violations()) > 0 })
		began := time.Now()
		v.KillEngine()
		v.SpawnEngine()
		for range starts {
			<-time.After(time.Duration(rng.Int64N(int64(longestStart)))) // any moment will do
			v.KillEngine()
			v.SpawnEngine()
		}
		at := j.Counts().Ops()
		rig.Await(t, "requests go on after the kill", func() bool {
			return j.Counts().Ops() > at+16 || len(j.Violations()) > 0
		})
		pauses = append(pauses, time.Since(began))
		v.Engine().AwaitUp()
		if bad := j.Violations(); len(bad) > 0 {
			t.Fatalf("violations: %q", bad)
		}
	}
	rig.AtLeast(t, "P7, engines killed", v.Hits(), int(rounds)*(1+starts))
	rig.AtLeast(t, "P7, requests answered", j.Counts().Ops(), 50*int(rounds))
	if !j.Pause() {
		t.Fatal("requests hang")
	}
	if err := j.Verify(target); err != nil {
		t.Fatal(err)
	}
	j.End()
	counts := j.Counts()
	if bad := j.Violations(); len(bad) > 0 || counts.Errors > 0 {
		t.Errorf("%d errors, violations %q", counts.Errors, bad)
	}
	slices.Sort(pauses)
	t.Logf("%d engines killed under %d requests; from the kill to the next answers: median %v, longest %v",
		len(pauses), counts.Ops(), pauses[len(pauses)/2].Round(time.Millisecond),
		pauses[len(pauses)-1].Round(time.Millisecond))
	if err := target.Close(); err != nil {
		t.Error(err)
	}
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Signal(syscall.SIGINT)
	}
}
