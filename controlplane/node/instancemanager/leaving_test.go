package instancemanager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestPodThatIsBeingDeletedServes: a kubelet may be late. Until the container ends, or the stream
// from it, what runs in the Pod is as it was, and nothing is ordered there.
func TestPodThatIsBeingDeletedServes(t *testing.T) {
	const (
		starting = v1beta2.InstanceManagerStateStarting
		up       = v1beta2.InstanceManagerStateRunning
		failed   = v1beta2.InstanceManagerStateError
		unknown  = v1beta2.InstanceManagerStateUnknown
	)
	for _, tt := range []struct {
		name   string
		before v1beta2.InstanceManagerState
		edit   func(*v1beta2.InstanceManager, *seen)
		state  v1beta2.InstanceManagerState
		lists  bool   // the engine is in the object
		do     string // beginning of the change, "" for none
	}{
		{"kubelet late", up, func(*v1beta2.InstanceManager, *seen) {}, up, true, ""},
		{"no budget", up, func(_ *v1beta2.InstanceManager, s *seen) { s.PDB = nil }, up, true, ""},
		{"of another image", up, func(_ *v1beta2.InstanceManager, s *seen) { s.DefaultImage = "other" }, up, true, ""},
		{"new leader", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes, s.UnconfirmedSince = nil, now },
			up, true, ""},
		{"not ready, new leader", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Processes, s.Pod.Status.ContainerStatuses[0].Ready = nil, false
		}, unknown, true, ""},
		{"node was down, new leader", unknown, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil },
			unknown, true, ""},
		{"container ended", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{}
		}, failed, false, ""},
		{"stream ended", up, func(_ *v1beta2.InstanceManager, s *seen) { s.UnconfirmedSince = now }, failed, false, ""},
		{"of another image, stream ended", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, s.UnconfirmedSince = "other", now
		}, failed, false, "delete *v1beta2.InstanceManager"},
		{"stream ended, new leader", failed, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil },
			failed, false, ""},
		{"stream is back", failed, func(*v1beta2.InstanceManager, *seen) {}, up, true, ""},
		{"never listed", starting, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil }, failed, false, ""},
		{"never started", starting, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Processes, s.Pod.Status = nil, corev1.PodStatus{Phase: corev1.PodPending}
		}, failed, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			im, s := manager(tt.before), world()
			s.Processes.Engines = running("v-e-0")
			if tt.before == up || tt.before == unknown {
				im.Status.InstanceEngines, im.Status.IP = running("v-e-0"), "127.0.1.1"
			}
			s.Pod.DeletionTimestamp = &metav1.Time{Time: now}
			tt.edit(im, &s)
			d := decide(now, im, s)
			if im.Status.CurrentState != tt.state || (im.Status.InstanceEngines != nil) != tt.lists ||
				(im.Status.IP != "") != tt.lists {
				t.Errorf("state %s, engines %v, address %q", im.Status.CurrentState, im.Status.InstanceEngines, im.Status.IP)
			}
			do := ""
			if d.Do != nil {
				do = d.Do.String()
			}
			if (tt.do == "") != (do == "") || !strings.HasPrefix(do, tt.do) {
				t.Errorf("does %q, want %q", do, tt.do)
			}
			if tt.lists && im.Status.ClosedPod != "pod-uid" {
				t.Errorf("processes may be ordered there: closed is %q", im.Status.ClosedPod)
			}
			c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionPodReady)
			if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.InstanceManagerReasonPodDeleting {
				t.Errorf("PodReady is %+v", c)
			}
			again := im.DeepCopy()
			decide(now, again, s)
			if again.Status.CurrentState != im.Status.CurrentState || again.Status.ClosedPod != im.Status.ClosedPod {
				t.Errorf("does not settle: %+v, then %+v", im.Status, again.Status)
			}
		})
	}
}
