package crash

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/rig"
)

// fault is one thing that can happen to a volume. It leaves the volume as it is then; heal mends
// it.
type fault struct {
	name string
	// possible reports whether a volume can suffer it.
	possible func(rig.Config) bool
	do       func(*run)
}

func always(rig.Config) bool       { return true }
func networked(c rig.Config) bool  { return c.Network }
func three(c rig.Config) bool      { return c.Replicas >= 3 }
func smallDisks(c rig.Config) bool { return c.Disk > 0 }

// spaceIsToldOf: a loop device makes an input/output error of whatever keeps it from zeroing.
func spaceIsToldOf(c rig.Config) bool { return smallDisks(c) && c.Transport != "fuse-loop" }

func threeByNet(c rig.Config) bool { return three(c) && networked(c) }
func blockDevices(t *testing.T) bool {
	err := blockdev.Available()
	if err != nil {
		t.Logf("no block devices: %v", err)
	}
	return err == nil
}

// faults is the table that rounds are dealt from.
var faults = []fault{
	{"replica killed", always, killReplica},
	{"two replicas killed", three, killTwo},
	{"all replicas killed", always, killReplicas},
	{"engine killed", always, killEngine},
	{"everything killed", always, killAll},
	{"replica stopped shortly", always, stopReplicaShortly},
	{"replica stopped until dropped", always, stopReplica},
	{"engine stopped shortly", always, stopEngineShortly},
	{"engine stopped and replaced", always, replaceStoppedEngine},
	{"killed while rebuilding", always, killWhileRebuilding},
	{"killed while a snapshot is taken", always, killWhileSnapshot},
	{"killed while purging", always, killWhilePurging},
	{"witness away, replica killed", three, killWithoutWitness},
	{"replica cut off", networked, cutReplica},
	{"replica cut off one way", networked, cutOneWay},
	{"replica cut off shortly", networked, cutShortly},
	{"engine cut off and replaced", networked, cutEngine},
	{"engine cut off with one replica and replaced", threeByNet, split},
	{"disk of one full", smallDisks, fillOne},
	{"disks of all full", spaceIsToldOf, fillAll},
	{"disk of a rebuild's target full", smallDisks, fillTarget},
}

// rest is a bounded random time that a fault lasts.
func (r *run) rest(from, to time.Duration) {
	<-time.After(from + time.Duration(r.rng.Int64N(int64(to-from))))
}

// operation bounds a question to an engine.
const operation = 20 * time.Second

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), operation)
}

// pick chooses a replica.
func (r *run) pick() *rig.Replica { return r.v.Replicas[r.rng.IntN(len(r.v.Replicas))] }

// killReplica: the others go on without an error.
func killReplica(r *run) {
	r.pick().Kill()
	r.progress(20)
}

// killTwo leaves one of three, which goes on with the witness's consent.
func killTwo(r *run) {
	k := r.rng.IntN(len(r.v.Replicas))
	for i, x := range r.v.Replicas {
		if i != k {
			x.Kill()
		}
	}
	r.progress(20)
}

func killReplicas(r *run) {
	r.j.Tolerate(rig.AnyError)
	for _, x := range r.v.Replicas {
		x.Kill()
	}
}

func killEngine(r *run) {
	r.j.Tolerate(rig.AnyError)
	r.v.Engine().Kill()
}

func killAll(r *run) {
	r.j.Tolerate(rig.AnyError)
	r.v.KillAll()
}

// stopReplicaShortly is below every timeout on an idle machine.
func stopReplicaShortly(r *run) {
	x := r.pick()
	x.Signal(syscall.SIGSTOP)
	r.rest(50*time.Millisecond, 600*time.Millisecond)
	x.Signal(syscall.SIGCONT)
	r.progress(20)
}

// stopReplica stops a replica until it is dropped, and lets it go on afterwards: it must not come
// back by itself.
func stopReplica(r *run) {
	x := r.pick()
	x.Signal(syscall.SIGSTOP)
	r.v.Await("stopped replica dropped", func(s *enginev1.State) bool { return x.Mode(s) == enginev1.Mode_MODE_ERR })
	r.progress(20)
	x.Signal(syscall.SIGCONT)
	r.progress(20)
	if m := x.Mode(r.state()); m == enginev1.Mode_MODE_RW {
		r.t.Fatalf("round %d: replica %s missed writes and is %s without a rebuild", r.round, x.Name, m)
	}
}

func stopEngineShortly(r *run) {
	r.v.Engine().Signal(syscall.SIGSTOP)
	r.rest(50*time.Millisecond, 900*time.Millisecond)
	r.v.Engine().Signal(syscall.SIGCONT)
	r.progress(20)
}

// replaceStoppedEngine starts another engine while the first one does not run. When it runs again
// it must answer nothing but errors, and end.
func replaceStoppedEngine(r *run) {
	r.j.Tolerate(rig.AnyError)
	old := r.v.Engine()
	old.Signal(syscall.SIGSTOP)
	r.replace(old)
	r.progress(50)
	old.Signal(syscall.SIGCONT)
	r.progress(50)
	r.awaitReplaced(old)
}

// other is the node where the engine is not.
func (r *run) other(h *rig.Host) *rig.Host {
	return r.v.EngineHosts[1-slices.Index(r.v.EngineHosts, h)]
}

// killWhileRebuilding kills a replica, adds it again, and kills source, target, engine or all while
// it is copied.
func killWhileRebuilding(r *run) {
	x := r.pick()
	x.Kill()
	r.progress(20)
	x.Start()
	if err := r.add(x); err != nil {
		r.t.Fatalf("round %d: add %s: %v", r.round, x.Name, err)
	}
	r.rest(0, 150*time.Millisecond)
	switch r.rng.IntN(4) {
	case 0:
		r.j.Mark("killed: target")
		x.Kill()
		r.progress(20)
	case 1:
		r.j.Mark("killed: another replica")
		r.j.Tolerate(rig.AnyError) // it may have been the last one
		k := slices.Index(r.v.Replicas, x)
		r.v.Replicas[(k+1)%len(r.v.Replicas)].Kill()
	case 2:
		r.j.Mark("killed: engine")
		killEngine(r)
	case 3:
		r.j.Mark("killed: everything")
		killAll(r)
	}
}

// maxSnapshots bounds the layers of a volume under test.
const maxSnapshots = 5

// killWhileSnapshot kills a replica, the engine or all while a snapshot is taken.
func killWhileSnapshot(r *run) {
	if len(r.state().Snapshots) > maxSnapshots {
		killReplica(r)
		return
	}
	done := make(chan error, 1)
	engine, name := r.v.Engine(), fmt.Sprintf("round-%d", r.round)
	go func() {
		ctx, cancel := deadline()
		defer cancel()
		_, err := engine.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true})
		done <- err
	}()
	r.rest(0, 20*time.Millisecond)
	r.killSomething()
	r.j.Mark("snapshot %s: %v", name, <-done)
}

// killSomething kills a replica, the engine or all.
func (r *run) killSomething() {
	switch r.rng.IntN(3) {
	case 0:
		killReplica(r)
	case 1:
		killEngine(r)
	case 2:
		killAll(r)
	}
}

// killWhilePurging removes a snapshot, made first if there is none, and kills somebody while its
// space is given back.
func killWhilePurging(r *run) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(r.state().Snapshots)), func(n string) bool {
		return n == "volume-head"
	})
	if len(names) == 0 {
		names = []string{fmt.Sprintf("round-%d", r.round)}
		r.snapshot(names[0])
		r.progress(300)
	}
	name := names[r.rng.IntN(len(names))]
	r.j.Mark("purge of %s", name)
	call(r, "remove "+name, grpcless(r.v.Control().SnapshotRemove), &enginev1.SnapshotRemoveRequest{Name: name})
	call(r, "purge", grpcless(r.v.Control().SnapshotPurge), &enginev1.SnapshotPurgeRequest{})
	r.rest(0, 100*time.Millisecond)
	r.killSomething()
}

// killWithoutWitness: three go to two without anybody's help.
func killWithoutWitness(r *run) {
	r.v.Witness().SetOffline(true)
	r.pick().Kill()
	r.progress(20)
}
