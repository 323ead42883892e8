package crash

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// TestF3EngineKilled kills the engine under I/O, again and again, on two nodes in turn: another one
// takes over and finds every acknowledged write.
func TestF3EngineKilled(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	n := 6
	if testing.Short() {
		n = 2
	}
	for range n {
		r.progress(100 + r.rng.IntN(200))
		killEngine(r)
		r.finish()
	}
}

// snapshot takes a snapshot under the writer.
func (r *run) snapshot(name string) rig.Saved {
	r.t.Helper()
	saved, err := r.j.Save(func() error {
		ctx, cancel := deadline()
		defer cancel()
		_, err := r.v.Control().SnapshotCreate(ctx, &enginev1.SnapshotCreateRequest{Name: name, UserCreated: true})
		return err
	})
	if err != nil {
		r.t.Fatalf("snapshot %s: %v", name, err)
	}
	return saved
}

// call makes one call to the engine, which must succeed.
func call[Q, S any](r *run, what string, f func(context.Context, Q) (S, error), q Q) {
	r.t.Helper()
	ctx, cancel := deadline()
	defer cancel()
	if _, err := f(ctx, q); err != nil {
		r.t.Fatalf("%s: %v\n%s", what, err, r.v.Engine().Log())
	}
}

// revert goes back to a snapshot, for which nobody may use the volume.
func (r *run) revert(name string, saved rig.Saved) {
	r.t.Helper()
	r.j.Pause(r.t)
	_ = r.conn.Close()
	c := r.v.Control()
	call(r, "frontend down", grpcless(c.FrontendShutdown), &enginev1.FrontendShutdownRequest{})
	call(r, "revert to "+name, grpcless(c.SnapshotRevert), &enginev1.SnapshotRevertRequest{Name: name})
	call(r, "frontend up", grpcless(c.FrontendStart), &enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"})
	r.j.Restore(saved)
	r.j.Mark("reverted to %s", name)
	r.look()
}

// look reads everything through a new connection, and gives that to the writer.
func (r *run) look() {
	r.t.Helper()
	c, err := r.v.Engine().Target()
	if err != nil {
		r.t.Fatal(err)
	}
	rig.Final(r.t, r.j.Verify(c))
	r.judge()
	_ = r.conn.Close()
	r.conn = c
	r.j.Use(c, false)
}

// purge removes a snapshot and gives its space back, under the writer.
func (r *run) purge(name string) {
	r.t.Helper()
	c := r.v.Control()
	call(r, "remove "+name, grpcless(c.SnapshotRemove), &enginev1.SnapshotRemoveRequest{Name: name})
	call(r, "purge", grpcless(c.SnapshotPurge), &enginev1.SnapshotPurgeRequest{})
	r.v.Await("purge", func(s *enginev1.State) bool {
		_, there := s.Snapshots[name]
		return !there && !purging(s)
	})
}

func purging(s *enginev1.State) bool {
	for _, x := range s.Replicas {
		if x.Purge.GetRunning() {
			return true
		}
	}
	return false
}

// TestF5Snapshots takes snapshots, reverts, removes and purges while the volume is written to: at
// each point the content is what the model says, the replicas agree at every layer, and space comes
// back. Then the same with everything killed in the middle of a purge.
func TestF5Snapshots(t *testing.T) {
	t.Parallel()
	r := under(t, rig.Config{Replicas: 3})
	saved := map[string]rig.Saved{}
	for i := range 3 {
		r.progress(1500)
		name := fmt.Sprintf("s%d", i)
		saved[name] = r.snapshot(name)
	}
	r.progress(1500)
	before := r.occupied()
	r.purge("s1")
	r.progress(300)
	r.finish()
	if after := r.occupied(); after >= before {
		t.Fatalf("%d bytes before, %d after one of three snapshots was purged", before, after)
	}
	r.revert("s2", saved["s2"])
	r.progress(300)
	r.finish()
	r.revert("s0", saved["s0"])
	r.progress(300)
	r.finish()

	call(r, "remove s0", grpcless(r.v.Control().SnapshotRemove), &enginev1.SnapshotRemoveRequest{Name: "s2"})
	call(r, "purge", grpcless(r.v.Control().SnapshotPurge), &enginev1.SnapshotPurgeRequest{})
	killAll(r)
	r.finish()
	r.revert("s0", saved["s0"])
	r.finish()
}

// occupied is how many bytes the snapshots of a replica take; the head grows while it is written
// to.
func (r *run) occupied() int64 {
	r.t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.v.Replicas[0].Dir, "volume-snap-*.img")) // the pattern is well formed
	sum := int64(0)
	for _, f := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(f, &st); err != nil {
			r.t.Fatal(err)
		}
		sum += st.Blocks * 512
	}
	return sum
}

// TestF6Expand makes the volume larger while it is written to, then while it is not offered, then
// while a replica dies: the old content stays, the new part reads as zeroes, and a replica that was
// away gets the new size with its rebuild.
func TestF6Expand(t *testing.T) {
	for _, transport := range []string{"nbd-unix", "fuse-loop"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			if transport == "fuse-loop" && !blockDevices(t) {
				lack.Skip(t, "no block devices here")
			}
			r := under(t, rig.Config{Replicas: 3, Transport: transport})
			r.progress(300)
			r.expand(20 * mib)
			r.progress(300)
			r.finish()

			r.v.Replicas[2].Kill()
			r.progress(100)
			r.expand(24 * mib)
			r.progress(100)
			r.finish()

			killAll(r)
			r.finish()
		})
	}
}

// expand grows the volume under the writer and looks at everything.
func (r *run) expand(size int64) {
	r.t.Helper()
	call(r, "expand", grpcless(r.v.Control().Expand), &enginev1.ExpandRequest{Size: size})
	r.v.Await("expansion", func(s *enginev1.State) bool { return s.Size == size && !s.Expanding })
	r.v.Size = size
	r.j.Pause(r.t)
	r.j.Grow(size)
	r.look()
}

// grpcless takes the options away that no call here needs.
func grpcless[Q, S any](f func(context.Context, Q, ...grpc.CallOption) (S, error)) func(context.Context, Q) (S, error) {
	return func(ctx context.Context, q Q) (S, error) { return f(ctx, q) }
}
