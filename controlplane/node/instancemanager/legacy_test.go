//go:build !nolegacy

package instancemanager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/controlplane/setting"
)

const (
	engineManager = v1beta2.InstanceManagerTypeEngine
	replicaKind   = v1beta2.InstanceManagerTypeReplica
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

// TestA12OldFieldInstances: what an instance manager of an old type tells of a process is as good
// as what one of today does, and stands in its one field for all.
func TestA12OldFieldInstances(t *testing.T) {
	for _, kind := range []v1beta2.InstanceManagerType{v1beta2.InstanceManagerTypeEngine,
		v1beta2.InstanceManagerTypeReplica} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		im.Spec.Type, s.Processes.Engines = kind, running("v-e-0")
		decide(now, im, s)
		if _, ok := im.Status.Instances["v-e-0"]; !ok || im.Status.InstanceEngines != nil {
			t.Errorf("%s: status %+v", kind, im.Status)
		}
		managers := []v1beta2.InstanceManager{*im}
		lists := heard.New(im.Namespace)
		lists.Begin(im.Name, "pod")
		lists.Tell(t.Context(), im.Name, "pod", s.Processes)
		silent := lists.In(managers)
		if instance.Find(&managers[0], "v-e-0") == nil || len(silent) > 0 {
			t.Errorf("%s: its engine is not found, silent are %v", kind, silent)
		}
	}
}

// A drain does not take the Pod of an old type away while processes run in it: there is a budget
// like that of today's, which goes when the drain policy is satisfied.
func TestLegacyManagersAreGuarded(t *testing.T) {
	for _, kind := range []v1beta2.InstanceManagerType{v1beta2.InstanceManagerTypeEngine,
		v1beta2.InstanceManagerTypeReplica} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		im.Spec.Type, s.Processes.Engines, s.PDB = kind, running("v-e-0"), nil
		d := decide(now, im, s)
		c, ok := d.Do.(loop.Create)
		if !ok || d.After == 0 {
			t.Fatalf("%s without a budget: does %v, looks again after %s", kind, d.Do, d.After)
		}
		budget := c.Object.(*policyv1.PodDisruptionBudget)
		if got := budget.Spec.Selector.MatchLabels[naming.LabelInstanceManagerType]; got != string(kind) {
			t.Errorf("%s: the budget selects Pods of type %q", kind, got)
		}
		s.PDB = budget
		if d := decide(now, im, s); d.Do != nil || d.After == 0 {
			t.Errorf("%s with a budget: does %v, looks again after %s", kind, d.Do, d.After)
		}
		s.Drained = true
		if d := decide(now, im, s); d.Do == nil || !strings.Contains(d.Do.String(), "PodDisruptionBudget") {
			t.Errorf("%s, drained: does %v", kind, d.Do)
		}
	}
}

// TestCPURequestOfEachType: the node's field of the type wins over the type's setting, and both say
// nothing of another type (B1, B2, B3, B6).
func TestCPURequestOfEachType(t *testing.T) {
	share := map[string]string{
		setting.GuaranteedInstanceManagerCPU: `{"v1":"12.5"}`,
		setting.GuaranteedEngineManagerCPU:   "15", setting.GuaranteedReplicaManagerCPU: "24",
	}
	none := map[string]string{
		setting.GuaranteedInstanceManagerCPU: `{"v1":"0"}`,
		setting.GuaranteedEngineManagerCPU:   "0", setting.GuaranteedReplicaManagerCPU: "0",
	}
	for _, tt := range []struct {
		name                 string
		cpus                 string
		values               setting.Values
		aio, engine, replica int // fields of the node
		want                 [3]int64
	}{
		{"defaults, 2 CPUs", "2", nil, 0, 0, 0, [3]int64{240, 240, 240}},
		{"defaults, 4 CPUs", "4", nil, 0, 0, 0, [3]int64{480, 480, 480}},
		{"defaults, 8 CPUs", "8", nil, 0, 0, 0, [3]int64{960, 960, 960}},
		{"settings", "8", share, 0, 0, 0, [3]int64{1000, 1200, 1920}},
		{"field of the new type", "8", share, 700, 0, 0, [3]int64{700, 1200, 1920}},
		{"field of type engine", "8", share, 0, 700, 0, [3]int64{1000, 700, 1920}},
		{"field of type replica", "8", share, 0, 0, 700, [3]int64{1000, 1200, 700}},
		{"settings 0", "8", none, 0, 0, 0, [3]int64{0, 0, 0}},
		{"settings 0, fields", "8", none, 1, 2, 3, [3]int64{1, 2, 3}},
		{"rounded", "1001m", share, 0, 0, 0, [3]int64{125, 150, 240}},
	} {
		s := world()
		s.KubeNode.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(tt.cpus)
		s.Settings = SettingsFrom(tt.values, "")
		s.Node.Spec.InstanceManagerCPURequest = tt.aio
		s.Node.Spec.EngineManagerCPURequest, s.Node.Spec.ReplicaManagerCPURequest = tt.engine, tt.replica
		for i, kind := range []v1beta2.InstanceManagerType{aio, engineManager, replicaKind} {
			if got := s.cpu(kind).millis; got != tt.want[i] {
				t.Errorf("%s: type %s requests %dm, want %dm", tt.name, kind, got, tt.want[i])
			}
		}
	}
}

// TestLegacyCPUChangeWaits: the same for instance managers of the older types, each by the setting
// and the field of its own (B6).
func TestLegacyCPUChangeWaits(t *testing.T) {
	for _, tt := range []cpuChange{
		{"older settings", aio, func(s *seen) { s.Settings.Engine, s.Settings.Replica = 1, 1 }, ""},
		{"setting of type engine", engineManager, func(s *seen) { s.Settings.Engine = 15 },
			"guaranteed-engine-manager-cpu (CPU request 960m, will be 1200m)"},
		{"field of type engine", engineManager, func(s *seen) { s.Node.Spec.EngineManagerCPURequest = 250 },
			"guaranteed-engine-manager-cpu (CPU request 960m, will be 250m)"},
		{"field of another type", engineManager, func(s *seen) { s.Node.Spec.ReplicaManagerCPURequest = 250 }, ""},
		{"new setting, old type", replicaKind, func(s *seen) { s.Settings.CPUPercent = 20 }, ""},
		{"setting of type replica", replicaKind, func(s *seen) { s.Settings.Replica = 24 },
			"guaranteed-replica-manager-cpu (CPU request 960m, will be 1920m)"},
	} {
		edit := tt.edit
		tt.edit = func(s *seen) {
			s.Settings.Engine, s.Settings.Replica = 12, 12
			edit(s)
		}
		tt.check(t)
	}
}

// TestLegacyReplicaManagerOfANodeWithoutDisks: where a node has no disk, processes that belong to
// nobody do not keep an instance manager of type replica.
func TestLegacyReplicaManagerOfANodeWithoutDisks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(*v1beta2.InstanceManager, *seen)
		deleted bool
	}{
		{"no disk", func(*v1beta2.InstanceManager, *seen) {}, true},
		{"a disk", func(_ *v1beta2.InstanceManager, s *seen) {
			s.Node.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/d"}}
		}, false},
		{"a disk that is being removed", func(_ *v1beta2.InstanceManager, s *seen) {
			s.Node.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {}}
		}, false},
		{"a process of a replica", func(_ *v1beta2.InstanceManager, s *seen) { s.Orphaned = nil }, false},
		{"not confirmed", func(_ *v1beta2.InstanceManager, s *seen) { s.UnconfirmedSince = now }, false},
		{"claimed by a replica", func(_ *v1beta2.InstanceManager, s *seen) { s.Assigned = "v-r-1" }, false},
		{"type engine", func(im *v1beta2.InstanceManager, _ *seen) { im.Spec.Type = engineManager }, false},
	} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		im.Spec.Type = replicaKind
		s.Processes.Replicas = running("v-r-1")
		s.Orphaned = map[string]bool{"v-r-1": true}
		s.Node.Spec.Disks, s.Node.Status.DiskStatus = nil, nil
		tt.edit(im, &s)
		d := decide(now, im, s)
		if got := d.Do != nil && strings.HasPrefix(d.Do.String(), "delete *v1beta2.InstanceManager"); got != tt.deleted {
			t.Errorf("%s: does %v", tt.name, d.Do)
		}
	}
}

// TestLegacyPodsTellTheAutoscaler: a Pod of an older type gets the annotation that lets the cluster
// autoscaler remove its node, and loses it with the setting (A10).
func TestLegacyPodsTellTheAutoscaler(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	im.Spec.Type, s.Processes.Replicas, s.Autoscaler = replicaKind, running("v-r-1"), true
	d := decide(now, im, s)
	u, ok := d.Do.(loop.Update)
	if !ok || u.Object.GetAnnotations()[naming.AnnotationSafeToEvict] != "true" {
		t.Fatalf("does %v", d.Do)
	}
	s.Pod = u.Object.(*corev1.Pod)
	if d := decide(now, im, s); d.Do != nil {
		t.Errorf("with the annotation: does %v", d.Do)
	}
	s.Autoscaler = false
	if d := decide(now, im, s); d.Do == nil {
		t.Error("without the setting the annotation stays")
	}
}
