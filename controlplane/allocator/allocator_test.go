package allocator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// stage is an allocator with a clock that stands still.
type stage struct {
	*Allocator
	t   *testing.T
	now time.Time
}

func newStage(t *testing.T, limit int) *stage {
	s := &stage{t: t, now: time.Unix(1e9, 0)}
	s.Allocator = New("ns", func() time.Time { return s.now })
	s.SetRebuildLimit(limit)
	return s
}

// replica is one that is to be rebuilt on a node.
func replica(volume, node, version string) *v1beta2.Replica {
	r := &v1beta2.Replica{Spec: v1beta2.ReplicaSpec{Active: true}}
	r.Name, r.ResourceVersion = volume+"-r", version
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.RebuildRetryCount = volume, node, 1
	return r
}

func started(r *v1beta2.Replica, version string) *v1beta2.Replica {
	r = r.DeepCopy()
	r.ResourceVersion, r.Spec.DesireState = version, v1beta2.InstanceStateRunning
	return r
}

// order reserves the start of a shown replica; the result is nil if there is no slot for it.
func (s *stage) order(r *v1beta2.Replica) (done func(error)) {
	return s.Reserve(started(r, r.ResourceVersion), 0)
}

// woken are the volumes that were woken since the last call.
func (s *stage) woken() (names []string) {
	for len(s.Wakeups()) > 0 {
		names = append(names, (<-s.Wakeups()).Object.GetName())
	}
	return names
}

func (s *stage) expectWoken(want ...string) {
	s.t.Helper()
	if got := s.woken(); !slices.Equal(got, want) {
		s.t.Fatalf("woken: %q, want %q", got, want)
	}
}

// wait has a volume ask for a slot on n1.
func (s *stage) wait(volume string) {
	s.Wait(volume, map[string]bool{"n1": s.MayRebuild(volume, "n1")})
}

var (
	resource  = schema.GroupResource{Resource: "replicas"}
	conflict  = apierrors.NewConflict(resource, "r", errors.New("changed meanwhile"))
	missing   = apierrors.NewNotFound(resource, "r")
	invalid   = apierrors.NewForbidden(resource, "r", errors.New("by a webhook"))
	internal  = apierrors.NewInternalError(errors.New("a webhook did not answer"))
	timeout   = apierrors.NewTimeoutError("too slow", 1)
	errBroken = errors.New("the connection broke")
)

// TestAssumptions is the table of docs/design/allocator.md: what ends an assumption, after each end
// of the call that ordered it.
func TestAssumptions(t *testing.T) {
	for _, row := range []struct {
		name  string
		after func(s *stage, r *v1beta2.Replica)
		holds bool
	}{
		{"nothing", func(*stage, *v1beta2.Replica) {}, true},
		{"the version it was made to is shown again", func(s *stage, r *v1beta2.Replica) { s.Observe(r) }, true},
		{"an older version is shown", func(s *stage, r *v1beta2.Replica) { s.Observe(replica("a", "n1", "9")) }, true},
		{"it is shown", func(s *stage, r *v1beta2.Replica) { s.Observe(started(r, "11")) }, true},
		{"the change of somebody else is shown", func(s *stage, r *v1beta2.Replica) {
			s.Observe(replica("a", "n1", "11"))
		}, false},
		{"the end is shown", func(s *stage, r *v1beta2.Replica) { s.Gone(r.Name) }, false},
		{"its rebuild is shown as done", func(s *stage, r *v1beta2.Replica) {
			done := started(r, "12")
			done.Spec.HealthyAt = "now"
			s.Observe(done)
		}, false},
	} {
		for _, err := range []error{nil, conflict, missing, internal, timeout, errBroken} {
			s := newStage(t, 1)
			r := replica("a", "n1", "10")
			s.Observe(r)
			s.order(r)(err)
			row.after(s, r)
			if got := !s.MayRebuild("b", "n1"); got != row.holds {
				t.Errorf("call ended with %v, then %s: the slot is held: %v, want %v", err, row.name, got, row.holds)
			}
		}
	}
}

func TestRefusedCallHoldsNothing(t *testing.T) {
	s := newStage(t, 1)
	r := replica("a", "n1", "10")
	s.Observe(r)
	done := s.order(r)
	s.wait("b")
	done(invalid)
	if s.expectWoken(); !s.MayRebuild("a", "n1") || s.MayRebuild("b", "n1") {
		t.Fatal("the slot is not kept for the volume that was refused")
	}
	s.now = s.now.Add(turnLimit)
	s.Sweep()
	s.expectWoken("b")
}

// TestEarlierCallsCount: a call that was refused says nothing about one before it.
func TestEarlierCallsCount(t *testing.T) {
	for _, first := range []error{nil, errBroken} {
		s := newStage(t, 1)
		r := replica("a", "n1", "10")
		s.Observe(r)
		s.order(r)(first)
		s.order(r)(invalid)
		if s.MayRebuild("b", "n1") {
			t.Errorf("first call ended with %v: its slot is free after the second was refused", first)
		}
	}
}

func TestUncertainCallsCountForSomeTime(t *testing.T) {
	s := newStage(t, 1)
	r := replica("a", "n1", "10")
	s.Observe(r)
	s.order(r)(errBroken)
	s.wait("b")
	s.now = s.now.Add(uncertainFor - 1)
	s.Sweep()
	s.expectWoken()
	done := s.order(r)
	s.now = s.now.Add(time.Hour)
	s.Sweep()
	s.expectWoken() // under way again
	done(errBroken)
	s.now = s.now.Add(uncertainFor)
	s.Sweep()
	s.expectWoken("b")
}

// TestFirstComeFirstServed: each slot that is given back wakes one volume, in the order in which
// they came; a newcomer does not take what is kept for those before it.
func TestFirstComeFirstServed(t *testing.T) {
	s := newStage(t, 1)
	all := map[string]*v1beta2.Replica{}
	for _, v := range []string{"a", "b", "c", "d", "e"} {
		all[v] = replica(v, "n1", "10")
		s.Observe(all[v])
	}
	s.order(all["a"])(nil)
	for _, v := range []string{"b", "c", "d"} {
		s.wait(v)
		s.wait(v) // looked at once more: keeps its place
	}
	s.expectWoken()
	s.Gone("a-r")
	s.expectWoken("b")
	if s.order(all["e"]) != nil || s.order(all["c"]) != nil {
		t.Fatal("the slot was kept for nobody")
	}
	s.order(all["b"])(nil)
	s.Wait("c", nil)
	s.expectWoken()
	s.Gone("b-r")
	s.expectWoken("d")
	s.now = s.now.Add(turnLimit - 1)
	s.wait("e")
	s.Sweep()
	s.expectWoken()
	s.now = s.now.Add(1)
	s.Sweep()
	s.expectWoken("e")
	s.SetRebuildLimit(2)
	s.expectWoken("d")
	s.SetRebuildLimit(0)
	s.SetRebuildLimit(2)
	s.expectWoken("e", "d")
}

// TestRoomIsTakenOnce: of two places chosen from one view of a disk the second is refused.
func TestRoomIsTakenOnce(t *testing.T) {
	s := newStage(t, 1)
	place := func(name string, scheduled int64) func(error) {
		r := &v1beta2.Replica{Spec: v1beta2.ReplicaSpec{Active: true}}
		r.Name, r.ResourceVersion, r.Spec.VolumeSize = name, "10", 60
		s.Observe(r)
		r = r.DeepCopy()
		r.Spec.DiskID = "d"
		return s.Reserve(r, scheduled)
	}
	first := place("a", 0)
	if place("b", 0) != nil {
		t.Fatal("the room of one volume was given to two")
	}
	if first(invalid); s.Scheduled("d") != 0 {
		t.Fatalf("%d bytes are scheduled after the call was refused", s.Scheduled("d"))
	}
	place("a", 0)(nil)
	if place("b", s.Scheduled("d"))(errBroken); s.Scheduled("d") != 120 {
		t.Fatalf("%d bytes are scheduled, want 120", s.Scheduled("d"))
	}
	s.Gone("a")
	s.now = s.now.Add(uncertainFor)
	if s.Sweep(); s.Scheduled("d") != 0 {
		t.Fatalf("%d bytes are scheduled on an empty disk", s.Scheduled("d"))
	}
}

// TestRoomForGrowthIsTakenOnce: the room that two replicas want to grow into is given to one.
func TestRoomForGrowthIsTakenOnce(t *testing.T) {
	s := newStage(t, 1)
	grow := func(name string, scheduled, size int64) bool {
		r := &v1beta2.Replica{Spec: v1beta2.ReplicaSpec{Active: true}}
		r.Name, r.ResourceVersion, r.Spec.DiskID, r.Spec.VolumeSize = name, "10", "d", 60
		s.Observe(r)
		r = r.DeepCopy()
		r.Spec.VolumeSize = size
		return s.Reserve(r, scheduled) != nil
	}
	if !grow("a", 60, 60) || !grow("b", 120, 100) || s.Scheduled("d") != 160 {
		t.Fatalf("%d bytes are scheduled, want 160", s.Scheduled("d"))
	}
	if grow("a", 120, 100) || s.Scheduled("d") != 160 {
		t.Fatal("the room of one replica was given to two")
	}
	if !grow("a", 120, 50) || s.Scheduled("d") != 150 {
		t.Fatalf("%d bytes are scheduled, want 150: giving room back needs none", s.Scheduled("d"))
	}
}

// TestNothingIsGivenBeforeTheCacheIsKnown: a leader that has not taken in what is there would give
// every slot twice.
func TestNothingIsGivenBeforeTheCacheIsKnown(t *testing.T) {
	s := newStage(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Synced(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("synced without replicas: %v", err)
	}
	s.MarkSynced()
	if err := s.Synced(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLimitsFollowTheirSettings: what the cache shows is in force, and without a setting its
// default.
func TestLimitsFollowTheirSettings(t *testing.T) {
	a := New("", nil)
	set := func(name, value string) {
		a.ObserveSetting(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	rebuild, upgrade := a.MayRebuild("v", "n1"), a.MayUpgrade("v", "n1")
	set(setting.ConcurrentReplicaRebuildPerNodeLimit, "0")
	set(setting.ConcurrentAutomaticEngineUpgradePerNodeLimit, "2")
	if !rebuild || upgrade || a.MayRebuild("v", "n1") || !a.MayUpgrade("v", "n1") {
		t.Errorf("by default %v, %v; then %v, %v", rebuild, upgrade, a.MayRebuild("v", "n1"), a.MayUpgrade("v", "n1"))
	}
	a.SettingGone(setting.ConcurrentReplicaRebuildPerNodeLimit)
	a.SettingGone(setting.ConcurrentAutomaticEngineUpgradePerNodeLimit)
	if !a.MayRebuild("v", "n1") || a.MayUpgrade("v", "n1") {
		t.Error("a setting that is gone is still in force")
	}
}
