package crash

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
	"ankole.storage/test/wait"
)

// keepRounds is how many engines are killed under one device; KEEP_ROUNDS overrides it.
const keepRounds = 5

// TestF3DeviceStays kills the engine under writers on its block device, again and again, and starts
// another: the device stays, whoever has it open gets no error, only a pause, and nothing
// acknowledged is lost. It prints the pauses.
func TestF3DeviceStays(t *testing.T) { stays{}.run(t) }

// TestDeviceStaysThroughKilledStarts: engines are killed on their way too, at any moment between
// their start and the first answer, and the next one still knows that nobody else has served the
// volume.
func TestDeviceStaysThroughKilledStarts(t *testing.T) {
	stays{starts: 3}.run(t)
}

// TestF3DeviceStaysWithoutItsMount is the same where the mount of the device's file system ends
// with the engine, as in a container, and the volume grows afterwards.
func TestF3DeviceStaysWithoutItsMount(t *testing.T) { stays{apart: true}.run(t) }

// TestUblkDeviceStays and TestUblkDeviceStaysThroughKilledStarts are the same with ublk devices.
func TestUblkDeviceStays(t *testing.T) { stays{transport: "ublk"}.run(t) }

func TestUblkDeviceStaysThroughKilledStarts(t *testing.T) { stays{transport: "ublk", starts: 3}.run(t) }

// stays is how the engine of a device is killed.
type stays struct {
	// starts is how many engines are killed on their way after each one that serves.
	starts int
	// apart: the mount of the device's file system ends with each engine.
	apart bool
	// transport is that of the device; "": FUSE and loop.
	transport string
}

// longestStart bounds when an engine on its way is killed: most serve earlier on a quiet machine.
const longestStart = 400 * time.Millisecond

// run kills an engine that serves in each round.
func (s stays) run(t *testing.T) {
	rounds, starts := number(t, "KEEP_ROUNDS", keepRounds), s.starts
	err := blockdev.Available()
	if s.transport == "ublk" {
		_, err = blockdev.UblkAvailable()
	}
	if err != nil {
		lack.Skip(t, "no block devices here:", err)
	}
	t.Parallel()
	src := seeded.New(t, "P7: an engine that is killed takes no device with it; I/O waits and no request fails")
	seed := src.Fresh()
	rng := src.Rand(3)
	v, err := rig.Open(t, rig.Config{Replicas: 2, Size: 32 * mib, Transport: cmp.Or(s.transport, "fuse-loop"), Keep: true,
		EngineFlags: engineFlags})
	if err != nil {
		t.Fatal(err)
	}
	v.StartEngine()
	target, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	device, node := deviceID(t, v), filepath.Join(v.Engine().Host.Devices(), v.Name)
	j := rig.NewJournal(v.Size, seed)
	j.Use(target, true)
	var pauses []time.Duration
	for range rounds {
		before := j.Counts().Ops()
		goal := before + 50 + rng.IntN(400)
		wait.Until(t, "requests go on", func() bool { return j.Counts().Ops() > goal || len(j.Violations()) > 0 })
		began := time.Now()
		v.KillEngine()
		if s.apart {
			loseMount(t, v, node)
		}
		v.SpawnEngine()
		for range starts {
			<-time.After(time.Duration(rng.Int64N(int64(longestStart)))) // any moment will do
			v.KillEngine()
			v.SpawnEngine()
		}
		at := j.Counts().Ops()
		wait.Until(t, "requests go on after the kill", func() bool {
			return j.Counts().Ops() > at+16 || len(j.Violations()) > 0
		})
		pauses = append(pauses, time.Since(began))
		v.Engine().AwaitUp()
		sameDevice(t, v, device)
		if bad := j.Violations(); len(bad) > 0 {
			wait.Final(t, "violations")
			t.Fatalf("violations: %q", bad)
		}
	}
	rig.AtLeast(t, "P7, engines killed", v.Hits(), int(rounds)*(1+starts))
	rig.AtLeast(t, "P7, requests answered", j.Counts().Ops(), 50*int(rounds))
	ops := verified(t, j, target)
	slices.Sort(pauses)
	t.Logf("%d engines killed under %d requests; from the kill to the next answers: median %v, longest %v",
		len(pauses), ops, pauses[len(pauses)/2].Round(time.Millisecond), pauses[len(pauses)-1].Round(time.Millisecond))
	if s.apart {
		grow(t, v, node)
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Signal(syscall.SIGINT)
	}
}

// verified ends a journal whose volume is to hold what was acknowledged, and returns how many
// requests there were.
func verified(t *testing.T, j *rig.Journal, target rig.Target) (ops int) {
	t.Helper()
	j.Pause(t)
	rig.Final(t, j.Verify(target))
	j.End()
	counts := j.Counts()
	if bad := j.Violations(); len(bad) > 0 || counts.Errors > 0 {
		wait.Final(t, "what the user has seen")
		t.Errorf("%d errors, violations %q", counts.Errors, bad)
	}
	return counts.Ops()
}

// loopOf returns what the kernel tells of the loop device that a node stands for.
func loopOf(t *testing.T, node, attribute string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/%s", unix.Major(st.Rdev), unix.Minor(st.Rdev), attribute))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// loseMount detaches the mount of the file system below a volume's device, if it is there still.
func loseMount(t *testing.T, v *rig.Volume, node string) {
	t.Helper()
	file := loopOf(t, node, "loop/backing_file")
	if file == "/"+v.Name {
		return
	}
	if err := unix.Unmount(filepath.Dir(file), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if file := loopOf(t, node, "loop/backing_file"); file != "/"+v.Name {
		t.Fatalf("without its mount the loop device lies on %s", file)
	}
}

// grow lets a volume grow under its device, and uses what has come to it.
func grow(t *testing.T, v *rig.Volume, node string) {
	t.Helper()
	const by = mib
	if _, err := v.Control().Expand(t.Context(), &enginev1.ExpandRequest{Size: v.Size + by}); err != nil {
		t.Fatal(err)
	}
	if size := loopOf(t, node, "size"); size != strconv.FormatInt((v.Size+by)/512, 10) {
		t.Errorf("the device has %s sectors, the volume %d bytes", size, v.Size+by)
	}
	f, err := os.OpenFile(node, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte("x"), by), v.Size); err != nil {
		t.Errorf("what has grown cannot be written: %v", err)
	}
}

func sameDevice(t *testing.T, v *rig.Volume, before string) {
	t.Helper()
	if now := deviceID(t, v); now != before || before == "" {
		t.Fatalf("the device that stays counts as another one: %q, before %q", now, before)
	}
}

// deviceID is what the volume's engine tells of its device.
func deviceID(t *testing.T, v *rig.Volume) string {
	t.Helper()
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	return s.DeviceId
}
