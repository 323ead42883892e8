package crash

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

const cloneSize = 24 * mib

// cloned is a volume that is written to all the while, one of its snapshots, and an empty volume.
type cloned struct {
	t        *testing.T
	from, to *rig.Volume
	end      func()
}

// newCloned makes both. The target's engine has no frontend and takes its time; disk is the size of
// its replicas' disks, 0 for any.
func newCloned(t *testing.T, disk int64) *cloned {
	t.Helper()
	c := &cloned{t: t, from: rig.New(t, 2, cloneSize)}
	c.from.StartEngine()
	w := rig.NewWriter(c.from.Dial(), cloneSize, 7)
	stop := make(chan struct{})
	done := w.Run(stop)
	c.end = func() {
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("writer of the source: %v", err)
		}
	}
	w.AwaitMore(t, 300)
	if _, err := c.from.Control().SnapshotCreate(t.Context(),
		&enginev1.SnapshotCreateRequest{Name: "s", UserCreated: true}); err != nil {
		t.Fatal(err)
	}
	w.AwaitMore(t, 100)
	var err error
	c.to, err = rig.Open(t, rig.Config{Replicas: 2, Size: cloneSize, Disk: disk,
		EngineFlags: []string{"--frontend", "", "--rebuild-bandwidth", "8m"}})
	if errors.Is(err, rig.ErrNoDisk) {
		c.end()
		lack.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.serve()
	return c
}

// serve starts the target's engine.
func (c *cloned) serve() {
	c.t.Helper()
	c.to.SpawnEngine()
	c.to.Await("the target serves", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 })
}

// clone asks for the clone, as the proxy does, and returns how it ends.
func (c *cloned) clone() <-chan error {
	done := make(chan error, 1)
	source, target := c.from.Control(), c.to.Control()
	clone := func() error {
		return enginev1.CloneSnapshot(context.Background(), target,
			func(ctx context.Context, uuid string) (*enginev1.CloneGrant, error) {
				return source.CloneSource(ctx, &enginev1.CloneSourceRequest{Snapshot: "s", ForVolumeUuid: uuid})
			})
	}
	go func() { // ends with the clone, or with the engine
		err := clone()
		// The replicas of an engine that begins are RW a moment before it takes orders.
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 1000 {
			if code := status.Code(err); code != codes.FailedPrecondition && code != codes.Unavailable {
				break
			}
			<-tick.C
			err = clone()
		}
		done <- err
	}()
	return done
}

// midway waits until a part is copied by the clone that ends in done.
func (c *cloned) midway(done <-chan error) *enginev1.Clone {
	c.t.Helper()
	var clone *enginev1.Clone
	c.to.Await("a part is copied", func(s *enginev1.State) bool {
		select {
		case err := <-done:
			c.t.Fatalf("the clone has ended before anything was done to it: %v; %v", err, s.GetClone())
		default:
		}
		clone = s.GetClone()
		return clone.GetSentBytes() >= mib
	})
	return clone
}

// whole ends the source and compares: every replica of the target, but for one that was dropped
// because its disk was full before the other's, has the snapshot's content, as a snapshot and as
// what its user reads.
func (c *cloned) whole() {
	c.t.Helper()
	c.end()
	c.from.StopEngine()
	want := c.content(c.from.Replicas[0].Dir, "volume-snap-s.img")
	s, err := c.to.State()
	if err != nil {
		c.t.Fatal(err)
	}
	clone := s.GetClone()
	if clone.GetState() != "complete" || clone.GetIncomplete() || clone.GetProgress() != 100 ||
		clone.GetSnapshot() != "s" {
		c.t.Fatalf("clone: %v", clone)
	}
	if _, err := c.to.Control().FrontendStart(c.t.Context(),
		&enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"}); err != nil {
		c.t.Fatal(err)
	}
	d := c.to.Dial()
	p := make([]byte, cloneSize)
	for off := 0; off < cloneSize; off += mib {
		if _, err := d.ReadAt(p[off:off+mib], int64(off)); err != nil {
			c.t.Fatal(err)
		}
	}
	if sha256.Sum256(p) != want {
		c.t.Error("the clone's user reads something else than the snapshot held")
	}
	if _, err := d.WriteAt(make([]byte, 65536), 0); err != nil {
		c.t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.to.StopEngine()
	members := map[string]bool{}
	for _, r := range s.Replicas {
		members[r.GetAddress()] = r.GetMode() == enginev1.Mode_MODE_RW
	}
	for _, r := range c.to.Replicas {
		if members["tcp://"+r.Addr] && c.content(r.Dir, "volume-snap-"+clone.GetName()+".img") != want {
			c.t.Errorf("replica %s of the clone holds something else", r.Name)
		}
	}
	if c.content(c.from.Replicas[0].Dir, "volume-snap-s.img") != want {
		c.t.Error("a write to the clone reached the source")
	}
}

func (c *cloned) content(dir, file string) [32]byte {
	c.t.Helper()
	layers, err := rig.Content(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, l := range layers {
		if l.File == file {
			return l.Sum
		}
		names = append(names, filepath.Base(l.File))
	}
	c.t.Fatal(fmt.Errorf("%s has %v, no %s", dir, names, file))
	return [32]byte{}
}

// TestF7Clone clones a snapshot of a volume that is written to all the while, and kills what takes
// part.
func TestF7Clone(t *testing.T) {
	t.Parallel()
	t.Run("undisturbed", func(t *testing.T) {
		c := newCloned(t, 0)
		if err := <-c.clone(); err != nil {
			t.Fatal(err)
		}
		c.whole()
	})
	t.Run("source replica killed", func(t *testing.T) {
		c := newCloned(t, 0)
		done := c.clone()
		from := c.midway(done).GetFromAddress()
		for _, r := range c.from.Replicas {
			if "tcp://"+r.Addr == from {
				r.Kill()
				// The other one is read in the end: it is the one that has everything.
				if r == c.from.Replicas[0] {
					c.from.Replicas[0], c.from.Replicas[1] = c.from.Replicas[1], c.from.Replicas[0]
				}
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		c.whole()
	})
	t.Run("target engine killed", func(t *testing.T) {
		c := newCloned(t, 0)
		done := c.clone()
		c.midway(done)
		c.to.KillEngine()
		if err := <-done; err == nil {
			t.Fatal("a clone whose engine was killed has succeeded")
		}
		c.serve()
		c.to.Await("it says so", func(s *enginev1.State) bool {
			return s.GetClone().GetIncomplete() && s.GetClone().GetState() == "error"
		})
		if _, err := c.to.Control().FrontendStart(t.Context(),
			&enginev1.FrontendStartRequest{Frontend: "tgt-blockdev"}); err == nil {
			t.Error("half a clone is offered")
		}
		if err := <-c.clone(); err != nil {
			t.Fatal(err)
		}
		if s, err := c.to.State(); err != nil || s.GetClone().GetSentBytes() >= s.GetClone().GetTotalBytes() {
			t.Errorf("what was there was copied again: %v %v", s.GetClone(), err)
		}
		c.whole()
	})
	t.Run("target disks full", func(t *testing.T) {
		c := newCloned(t, 40*mib)
		for _, r := range c.to.Replicas {
			if err := r.Disk.Fill(mib); err != nil {
				t.Fatal(err)
			}
		}
		err := <-c.clone()
		if !errors.Is(err, enginev1.ErrNotCloned) {
			t.Fatalf("onto full disks: %v", err)
		}
		for _, r := range c.to.Replicas {
			if err := r.Disk.Free(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-c.clone(); err != nil {
			t.Fatal(err)
		}
		c.whole()
	})
}
