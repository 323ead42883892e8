package instancemanager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

func TestLegacyManagersLiveAsLongAsTheirProcesses(t *testing.T) {
	up := v1beta2.InstanceManagerStateRunning
	for _, tt := range []struct {
		name    string
		edit    func(*seen)
		deleted bool
	}{
		{"process runs", func(s *seen) { s.Processes.Engines = running("v-e-0") }, false},
		{"idle", func(*seen) {}, true},
		{"processes not known", func(s *seen) { s.Processes = nil }, false},
		{"Pod gone", func(s *seen) { s.Pod, s.Processes = nil, nil }, true},
		{"Pod failed", func(s *seen) { s.Pod.Status.Phase, s.Processes = corev1.PodFailed, nil }, true},
		{"settings differ", func(s *seen) { s.Processes.Engines, s.Settings.CPUPercent = running("v-e-0"), 33 }, false},
		{"node down", func(s *seen) { s.KubeNode = nil }, false},
	} {
		im, s := manager(up), world()
		im.Spec.Type = v1beta2.InstanceManagerTypeEngine
		tt.edit(&s)
		d := decide(now, im, s)
		if d.Do != nil && im.Status.ClosedPod != "" {
			s.Empty = true // as it has answered
			d = decide(now, im, s)
		}
		if (d.Do != nil) != tt.deleted || (d.Do != nil &&
			!strings.HasPrefix(d.Do.String(), "delete *v1beta2.InstanceManager")) {
			t.Errorf("%s: does %v", tt.name, d.Do)
		}
	}
	im, s := manager(up), world()
	im.Spec.Type = v1beta2.InstanceManagerTypeReplica
	s.Processes.Replicas = running("v-r-1")
	decide(now, im, s)
	if len(im.Status.Instances) != 1 || im.Status.InstanceReplicas != nil {
		t.Errorf("status %+v: an old type reports in the field instances", im.Status)
	}
}
