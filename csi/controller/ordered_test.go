package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// TestCopyThatCannotGrow: a copy that cannot grow to what its claim wants is removed and its caller
// told why; what refuses it for a moment is waited for.
func TestCopyThatCannotGrow(t *testing.T) {
	for name, tc := range map[string]struct {
		room    int64
		refused int
		code    codes.Code
		says    string
	}{
		"no room is found after the order": {gib, 0, codes.ResourceExhausted, "no room on disk d"},
		"the order is refused":             {0, 1000, codes.ResourceExhausted, "disk d of node-1 is full"},
		"refused for a moment":             {0, 3, codes.OK, ""},
		"refused for longer than a moment": {0, 20, codes.ResourceExhausted, "disk d of node-1 is full"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := newController(f)
				c.patience = time.Minute
				ordered(t, c, createRequest("source", gib))
				snapshotted(t, c, "source", "snapshot-1")
				f.room, f.noGrowth = tc.room, tc.refused
				r := createRequest("copy", 4*gib)
				r.VolumeContentSource = snapshotSource("snap://source/snapshot-1")
				_, err := c.CreateVolume(background, r)
				csitest.Wants(t, err, tc.code)
				if tc.code == codes.OK {
					return
				}
				csitest.Says(t, err, tc.says, "copy")
				if len(f.volumes) != 1 {
					t.Errorf("nobody deletes what is left of the claim: %v", f.volumes)
				}
				f.room, f.noGrowth = 0, 0
				if v := ordered(t, c, r); v.CapacityBytes != 4*gib {
					t.Errorf("when there is room: %v", v)
				}
			})
		})
	}
}

// TestCopyInUseStays: what somebody may have written to is not removed with a growth that fails, be
// it in use before that or since it was ordered.
func TestCopyInUseStays(t *testing.T) {
	const refusals = 1000
	for name, since := range map[string]int{"from the start": refusals, "since the order": refusals - 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := newController(f)
				c.patience = time.Minute
				ordered(t, c, createRequest("source", gib))
				f.noGrowth = refusals
				r := createRequest("copy", 4*gib)
				r.VolumeContentSource = volumeSource("source")
				used := &changed{fake: f, volume: func(v *resource.Volume) {
					if v.Name == "copy" && f.noGrowth <= since {
						v.LastAttachedBy = "somebody"
					}
				}}
				c.manager = used
				_, err := c.CreateVolume(background, r)
				csitest.Wants(t, err, codes.Aborted)
				csitest.Says(t, err, "disk d of node-1 is full")
				if f.volumes["copy"] == nil {
					t.Error("it was removed")
				}
			})
		})
	}
}

// changed is a manager whose answers are others.
type changed struct {
	*fake
	volume   func(*resource.Volume)
	snapshot func(*resource.SnapshotCR)
	// fails is the next error of a read, and late that of an order, after its effect.
	fails, late error
}

func (w *changed) Volume(ctx context.Context, name string) (*resource.Volume, error) {
	if err := w.fails; err != nil {
		w.fails = nil
		return nil, err
	}
	v, err := w.fake.Volume(ctx, name)
	if err == nil && w.volume != nil {
		w.volume(v)
	}
	return v, err
}

func (w *changed) SnapshotObject(ctx context.Context, volume, name string) (*resource.SnapshotCR, error) {
	if err := w.fails; err != nil {
		w.fails = nil
		return nil, err
	}
	s, err := w.fake.SnapshotObject(ctx, volume, name)
	if err == nil && w.snapshot != nil {
		w.snapshot(s)
	}
	return s, err
}

func (w *changed) CreateVolume(ctx context.Context, s client.VolumeSpec) (*resource.Volume, error) {
	v, err := w.fake.CreateVolume(ctx, s)
	if err == nil && w.late != nil {
		v, err, w.late = nil, w.late, nil
	}
	return v, err
}

func (w *changed) OrderSnapshot(ctx context.Context, volume string, in resource.SnapshotCRInput) (
	*resource.SnapshotCR, error) {
	s, err := w.fake.OrderSnapshot(ctx, volume, in)
	if err == nil && w.late != nil {
		s, err, w.late = nil, w.late, nil
	}
	return s, err
}

// TestRefusalsAfterTheOrder: a manager that fails after it has made what it was asked for, and one
// that cannot say whether it is there, do not have the caller forget it.
func TestRefusalsAfterTheOrder(t *testing.T) {
	for _, failure := range []error{refusal("the answer cannot be made"), notFound("/v1/volumes")} {
		f := newFake()
		w := &changed{fake: f}
		c := newController(f)
		c.manager = w
		again := func(call func() error) {
			t.Helper()
			if err := call(); request.Unfinished(err) != err || err == nil {
				t.Errorf("%v says that nothing is under way", err)
			}
			csitest.Wants(t, call(), codes.OK)
		}
		create := func() error { _, err := c.CreateVolume(background, createRequest("vol-1", gib)); return err }
		snapshot := func() error {
			_, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
				Parameters: map[string]string{"type": "snap"}})
			return err
		}
		w.late = failure
		again(create)
		w.fails = refusal("the API server is slow")
		again(create)
		w.late = failure
		again(snapshot)
		w.fails = refusal("the API server is slow")
		again(snapshot)
		if f.orders != 2 {
			t.Errorf("%d orders", f.orders)
		}
	}
	// One that has no effect is one.
	f := newFake()
	c := newController(f)
	f.failAt, f.failure = 2, refusal("no such tag")
	_, err := c.CreateVolume(background, createRequest("vol-1", gib))
	csitest.Wants(t, err, codes.Internal)
	csitest.Says(t, err, "no such tag")
}

// TestSourceAfterTheOrder: what becomes of the source of a volume that is being filled is nothing
// to the calls that wait for it.
func TestSourceAfterTheOrder(t *testing.T) {
	for name, change := range map[string]func(f *fake){
		"the source grows":           func(f *fake) { f.volumes["source"].Size = "8589934592" },
		"the source is deleted":      func(f *fake) { delete(f.volumes, "source") },
		"the snapshot is deleted":    func(f *fake) { delete(f.snapshots, "snapshot-1") },
		"the snapshot is to go":      func(f *fake) { f.snapshots["snapshot-1"].MarkRemoved = true },
		"nothing can be read of all": func(f *fake) { clear(f.snapshots); delete(f.volumes, "source") },
	} {
		for _, source := range []*spec.VolumeContentSource{volumeSource("source"),
			snapshotSource("snap://source/snapshot-1")} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := newController(f)
				ordered(t, c, createRequest("source", gib))
				snapshotted(t, c, "source", "snapshot-1")
				f.looks = 20
				r := createRequest("copy", gib)
				r.CapacityRange.LimitBytes, r.VolumeContentSource = 2*gib, source
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				_, err := c.CreateVolume(ctx, r)
				csitest.Wants(t, err, codes.DeadlineExceeded)
				change(f)
				c.patience = time.Minute
				if _, err := c.CreateVolume(background, r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}

// TestSnapshotThatIsGone: a snapshot that is deleted or lost while its CreateSnapshot waits, or
// before it is repeated, is told as such at once. When its name is free it is taken again.
func TestSnapshotThatIsGone(t *testing.T) {
	create := func(c *Server) error {
		_, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
			Parameters: map[string]string{"type": "snap"}})
		return err
	}
	for name, spoil := range map[string]func(s *resource.SnapshotCR){
		"marked as removed": func(s *resource.SnapshotCR) { s.MarkRemoved = true },
		"lost":              func(s *resource.SnapshotCR) { s.Error = "lost track of it" },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c := newController(f)
			ordered(t, c, createRequest("vol-1", gib))
			f.looks = 5
			began := time.Now()
			looked := 0
			c.manager = &changed{fake: f, snapshot: func(*resource.SnapshotCR) {
				if looked++; looked == 3 {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.seen["delete snapshot snapshot-1"] = -1000 // the head stands on it
					spoil(f.snapshots["snapshot-1"])
				}
			}}
			for range 2 {
				err := create(c)
				csitest.Wants(t, err, codes.FailedPrecondition)
				csitest.Says(t, err, "deleted or lost")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: told after %v", name, took)
			}
			delete(f.snapshots, "snapshot-1")
			csitest.Wants(t, create(c), codes.OK)
		})
	}
}
