package volume

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// TestNothingIsDeletedTwice: a deleted replica that is kept, since it may be the last copy, is not
// deleted again, whatever state it is in and whatever speaks against it. Deleting it changes
// nothing, so the volume would be looked at again at once, without end.
func TestNothingIsDeletedTwice(t *testing.T) {
	states := []func(s *seen, i int){
		func(*seen, int) {},
		func(s *seen, i int) { fail(s, i, time.Minute) },
		func(s *seen, i int) { fail(s, i, time.Hour) }, // stale
		func(s *seen, i int) {
			fail(s, i, time.Minute)
			s.Replicas[i].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
		},
		func(s *seen, i int) {
			fail(s, i, time.Minute)
			s.Replicas[i].Spec.Image = "img:0"
		},
		func(s *seen, i int) {
			fail(s, i, time.Minute)
			s.Replicas[i].Spec.HealthyAt = ""
		},
	}
	deletes := 0
	for n := range 6 * 6 * 4 * 4 * 2 * 2 {
		// draw takes one of several values; together the draws go through all combinations.
		draw := func(of int) int {
			one := n % of
			n /= of
			return one
		}
		v, s := fixture()
		degrade(v, time.Minute)
		s.Engine.Status.Membership.Members = nil
		for i := range s.Replicas {
			states[draw(len(states))](s, i)
			r := &s.Replicas[i]
			if draw(2) > 0 {
				r.DeletionTimestamp = &metav1.Time{Time: now}
			}
			r.Spec.EvictionRequested = draw(2) > 0
			if r.Spec.FailedAt == "" {
				s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, r.Spec.DataDirectoryName)
			}
		}
		v.Spec.NumberOfReplicas = 1 + draw(2)
		if draw(2) > 0 { // nor is there another place for one
			fillDisks(s)
		}
		d, ok := settle(v, s).Do.(loop.Delete)
		if !ok {
			continue
		}
		deletes++
		if d.Object.GetDeletionTimestamp() != nil {
			t.Errorf("%s, which is deleted already: %+v", d, d.Object.(*v1beta2.Replica).Spec)
		}
	}
	if deletes == 0 {
		t.Error("nothing was deleted")
	}
}
