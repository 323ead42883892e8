package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// interludes are what may serve a volume between the engine that was killed and the next one of its
// node. Each of them is told to change the first page from "before" to want, and ends.
var interludes = []struct {
	name string
	want byte
	do   func(t *testing.T, v *rig.Volume)
}{
	{"another node", 3, func(t *testing.T, v *rig.Volume) {
		v.NewEngine(v.EngineHosts[1]).AwaitUp()
		overwrite(t, v)
		v.StopEngine()
	}},
	{"another node, which is killed too", 3, func(t *testing.T, v *rig.Volume) {
		v.NewEngine(v.EngineHosts[1]).AwaitUp()
		overwrite(t, v)
		v.KillEngine()
	}},
	{"a revert on the same node", 1, func(t *testing.T, v *rig.Volume) {
		v.SetOffered(false)
		defer v.SetOffered(true)
		v.SpawnEngine()
		v.Await(
			"served for maintenance",
			func(s *enginev1.State) bool { return s.Generation > 0 && s.SuspendedReason == "" },
		)
		ctx, cancel := deadline()
		defer cancel()
		if _, err := v.Control().SnapshotRevert(ctx, &enginev1.SnapshotRevertRequest{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		v.KillEngine()
	}},
}

// overwrite puts a newer page in the place of the first one, for good.
func overwrite(t *testing.T, v *rig.Volume) {
	t.Helper()
	target, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second(target.WriteAt(page(3), 0)), target.Flush(), target.Close()); err != nil {
		t.Fatal(err)
	}
}

func second(_ int, err error) error { return err }

func page(fill byte) []byte {
	p := rig.Aligned(4096)
	copy(p, bytes.Repeat([]byte{fill}, len(p)))
	return p
}

// TestKeptDeviceEndsWithAnotherEngine: a write waits in the device of an engine that is killed;
// then another engine serves the volume. The next engine on the first node must not carry out that
// write, nor let whoever has the old device open go on: for them the device fails, and there is a
// new one with what the other engine has left.
func TestKeptDeviceEndsWithAnotherEngine(t *testing.T) {
	if err := blockdev.Available(); err != nil {
		lack.Skip(t, "no block devices here:", err)
	}
	for _, between := range interludes {
		t.Run(between.name, func(t *testing.T) {
			t.Parallel()
			v, err := rig.Open(t, rig.Config{Replicas: 2, Size: 8 * mib, Transport: "fuse-loop", Keep: true,
				EngineFlags: engineFlags})
			if err != nil {
				t.Fatal(err)
			}
			old, waiting := killedWithAWritePending(t, v)
			between.do(t, v)
			v.StartEngine()
			target, err := v.Engine().Target()
			if err != nil {
				t.Fatal(err)
			}
			got := page(0)
			if err := errors.Join(second(target.ReadAt(got, 0)), target.Close()); err != nil {
				t.Fatal(err)
			}
			if got[0] != between.want {
				t.Errorf("the first page holds %d, want %d: the write of the engine that was killed came after "+
					"the one that followed", got[0], between.want)
			}
			if err := <-waiting; err == nil {
				t.Error("the write that waited is said to be done")
			}
			if _, err := old.ReadAt(got, 0); err == nil {
				t.Error("whoever had the old device open goes on")
			}
			if err := old.Close(); err != nil {
				t.Error(err)
			}
			v.StopEngine()
		})
	}
}

// killedWithAWritePending leaves the volume without an engine: its first page holds 1 in snapshot
// "first" and 2 in the head, and a write of 9 to it waits in the kernel. The result of that write
// comes on the channel.
func killedWithAWritePending(t *testing.T, v *rig.Volume) (old rig.Target, waiting chan error) {
	t.Helper()
	v.StartEngine()
	old, err := v.Engine().Target()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := deadline()
	defer cancel()
	err = second(old.WriteAt(page(1), 0))
	if err == nil {
		_, err = v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: "first"})
	}
	if err = errors.Join(err, second(old.WriteAt(page(2), 0))); err != nil {
		t.Fatal(err)
	}
	inflight := inflightOf(t, v)
	for _, r := range v.Replicas {
		r.Signal(syscall.SIGSTOP)
		wait.Until(t, r.Name+" is stopped", r.Stopped)
	}
	waiting = make(chan error, 1)
	go func() { waiting <- second(old.WriteAt(page(9), 0)) }()
	wait.Until(t, "the write waits", inflight)
	v.KillEngine()
	for _, r := range v.Replicas {
		r.Signal(syscall.SIGCONT)
	}
	return old, waiting
}

// inflightOf tells whether a write waits in the volume's loop device.
func inflightOf(t *testing.T, v *rig.Volume) func() bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(v.Engine().Host.Devices(), v.Name), &st); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/inflight", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var reads, writes int
		if _, err := fmt.Sscan(string(text), &reads, &writes); err != nil {
			t.Fatal(err)
		}
		return writes > 0
	}
}
