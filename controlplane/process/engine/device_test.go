package engine

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestLastProcessOnANode: the instance manager keeps the block device of an engine that dies for
// the next one, until it is told that there will be none: the volume is detached, deleted, or
// attached elsewhere. Each order names the process that was seen.
func TestLastProcessOnANode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *v1beta2.Engine, s *seen)
		order  string
	}{
		"to be started again": {func(e *v1beta2.Engine, _ *seen) {
			e.Spec.DesireState = v1beta2.InstanceStateStopped
		}, "delete im-1/v-e-0@run-1"},
		"detached": {func(e *v1beta2.Engine, _ *seen) {
			e.Spec.DesireState, e.Spec.NodeID = v1beta2.InstanceStateStopped, ""
		}, "delete last im-1/v-e-0@run-1"},
		"detached after it was killed": {func(e *v1beta2.Engine, s *seen) {
			e.Spec.DesireState, e.Spec.NodeID = v1beta2.InstanceStateStopped, ""
			p := s.Managers[0].Status.InstanceEngines["v-e-0"]
			p.Status.State = v1beta2.InstanceStateError
			s.Managers[0].Status.InstanceEngines["v-e-0"] = p
		}, "delete last im-1/v-e-0@run-1"},
		"detached after the killed one was deleted": {func(e *v1beta2.Engine, s *seen) {
			e.Spec.DesireState, e.Spec.NodeID = v1beta2.InstanceStateStopped, ""
			delete(s.Managers[0].Status.InstanceEngines, "v-e-0")
		}, "delete last im-1/v-e-0@none"},
		"deleted after the killed one was deleted": {func(e *v1beta2.Engine, s *seen) {
			e.DeletionTimestamp = &metav1.Time{Time: now}
			delete(s.Managers[0].Status.InstanceEngines, "v-e-0")
		}, "delete last im-1/v-e-0@none"},
		"deleted": {func(e *v1beta2.Engine, _ *seen) {
			e.DeletionTimestamp = &metav1.Time{Time: now}
		}, "delete last im-1/v-e-0@run-1"},
		"attached elsewhere": {func(e *v1beta2.Engine, s *seen) {
			e.Spec.NodeID = "n2"
			other := *s.Managers[0].DeepCopy()
			other.Name, other.Spec.NodeID, other.Status.InstanceEngines = "im-2", "n2", nil
			s.Managers = append(s.Managers, other)
			e.Status.InstanceManagerName = "im-2"
		}, "delete last im-1/v-e-0@run-1"},
	} {
		e, s := running()
		settle(e, s)
		c.change(e, &s)
		_, d := settle(e, s)
		if d.Do == nil {
			t.Errorf("%s: nothing is done", name)
			continue
		}
		if got := carried(t, e, &s, d); !slices.Equal(got, []string{c.order}) {
			t.Errorf("%s: orders %q, want %s", name, got, c.order)
		}
		if strings.HasSuffix(c.order, "@none") {
			if _, d = settle(e, s); d.Do != nil && e.DeletionTimestamp == nil || e.Status.DeviceIn != "" {
				t.Errorf("%s: told again (%v), %q", name, d.Do, e.Status.DeviceIn)
			}
		}
	}
}

// TestDeviceOfAnEngineThatMoved: where the block device was is told before it is forgotten, unless
// nobody can be told.
func TestDeviceOfAnEngineThatMoved(t *testing.T) {
	for _, up := range []bool{true, false} {
		e, s := running()
		former := *s.Managers[0].DeepCopy()
		former.Name, former.Spec.NodeID, former.Status.InstanceEngines = "im-0", "n0", nil
		if !up {
			former.Status.CurrentState = v1beta2.InstanceManagerStateUnknown
		}
		s.Managers = append(s.Managers, former)
		e.Status.DeviceIn = "im-0"
		var got []string
		for range 5 {
			_, d := settle(e, s)
			got = append(got, carried(t, e, &s, d)...)
		}
		want := []string{"delete last im-0/v-e-0@none"}
		if !up {
			want = nil
		}
		if !slices.Equal(got, want) || e.Status.DeviceIn != "im-1" {
			t.Errorf("up %v: orders %q, device in %q", up, got, e.Status.DeviceIn)
		}
	}
}

// TestDeviceWakesItsEngine: an instance manager that has a detached volume's block device wakes the
// engine, which then has it told that none follows.
func TestDeviceWakesItsEngine(t *testing.T) {
	r, e := cloning(t, nil)
	e = e.DeepCopy()
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
		t.Fatal(err)
	}
	e.Status.OwnerID, e.Status.DeviceIn, e.Status.InstanceManagerName = "leader", "im-1", ""
	if err := r.client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "im-1"}}
	im.Spec.NodeID = "n1"
	if got := r.onManager(im); !slices.Equal(got, []string{e.Name}) {
		t.Errorf("it wakes %v, want %s", got, e.Name)
	}
}
