package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/resource"
)

// usualPatience is that of the program, csi.DefaultPatience.
const usualPatience = 110 * time.Second

func takeSnapshot(c *Server) error {
	_, err := c.CreateSnapshot(background, &spec.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snapshot-1",
		Parameters: map[string]string{"type": "snap"}})
	return err
}

// TestSnapshotThatIsBlocked: an order that cannot be carried out for some seconds is withdrawn, and
// the caller is told so by a code that ends the call, so that what it stands for can be deleted;
// one that is blocked for a moment, or on its way, is waited for.
func TestSnapshotThatIsBlocked(t *testing.T) {
	const why = "the volume has 250 snapshots, and may have 250"
	for name, tc := range map[string]struct {
		blocked func(passed time.Duration) bool
		within  time.Duration
		codes   []codes.Code // of one call after the other
	}{
		"for good": {func(time.Duration) bool { return true }, 15 * time.Second,
			[]codes.Code{codes.FailedPrecondition, codes.FailedPrecondition}},
		"after a while": {func(passed time.Duration) bool { return passed > 20*time.Second }, 35 * time.Second,
			[]codes.Code{codes.FailedPrecondition}},
		"for a moment": {func(passed time.Duration) bool { return passed < 5*time.Second }, time.Minute,
			[]codes.Code{codes.OK}},
		"for a moment again and again": {func(passed time.Duration) bool { return passed%(8*time.Second) < 6*time.Second },
			time.Minute, []codes.Code{codes.OK}},
		"never, and never taken": {nil, 4 * time.Minute, []codes.Code{codes.DeadlineExceeded, codes.FailedPrecondition}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := newController(f)
				c.patience = usualPatience
				ordered(t, c, createRequest("vol-1", gib))
				f.looks = 1000
				began := time.Now()
				c.manager = &changed{fake: f, snapshot: func(s *resource.SnapshotCR) {
					s.Blocked = tc.blocked != nil && tc.blocked(time.Since(began))
					s.Error = why
					if tc.blocked != nil && time.Since(began) > 50*time.Second {
						s.Error, s.ReadyToUse = "", true
					}
				}}
				for _, code := range tc.codes {
					err := takeSnapshot(c)
					csitest.Wants(t, err, code)
					if code != codes.OK {
						csitest.Says(t, err, why, "snapshot-1")
					}
					if s := f.snapshots["snapshot-1"]; code == codes.FailedPrecondition && s != nil && !s.MarkRemoved {
						t.Errorf("the order stays: %+v", s)
					}
					if code == codes.FailedPrecondition {
						delete(f.snapshots, "snapshot-1")
					}
				}
				if took := time.Since(began); took > tc.within*time.Duration(len(tc.codes)) {
					t.Errorf("told after %v", took)
				}
			})
		})
	}
}

// TestWithdrawalThatFails: the caller is told that the call has ended only when the order is
// withdrawn, and whoever comes while its object is there is told that, at once.
func TestWithdrawalThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newController(f)
		c.patience = usualPatience
		ordered(t, c, createRequest("vol-1", gib))
		f.looks = 1000
		deleting := false
		w := &changed{fake: f, snapshot: func(s *resource.SnapshotCR) {
			s.Blocked, s.Error, s.Deleting = !deleting, "the volume is faulted; salvage it", deleting
		}}
		m := &keptOrders{changed: w, fails: errors.New("no manager answers")}
		c.manager = m
		csitest.Wants(t, takeSnapshot(c), codes.Unavailable)
		m.fails = nil
		csitest.Wants(t, takeSnapshot(c), codes.FailedPrecondition)
		deleting = true
		began := time.Now()
		err := takeSnapshot(c)
		csitest.Wants(t, err, codes.FailedPrecondition)
		csitest.Says(t, err, "withdrawn", "salvage it")
		if took := time.Since(began); took > time.Second {
			t.Errorf("told after %v", took)
		}
	})
}

// keptOrders is a manager whose snapshot objects stay when they are deleted: the engine is away.
type keptOrders struct {
	*changed
	fails error
}

func (m *keptOrders) DeleteSnapshotObject(context.Context, string, string) error { return m.fails }
