package instancemanager

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/setting"
)

// TestNodeReadyTellsWhy: what clients read of the node of an instance manager.
func TestNodeReadyTellsWhy(t *testing.T) {
	for _, tt := range []struct {
		name           string
		edit           func(*seen)
		status, reason string
	}{
		{"node up", func(*seen) {}, "True", ""},
		{"node down", func(s *seen) { s.KubeNode = nil }, "False", "Down"},
		{"node cordoned", func(s *seen) { s.KubeNode.Spec.Unschedulable = true }, "False", "Unschedulable"},
	} {
		im, s := manager(v1beta2.InstanceManagerStateRunning), world()
		tt.edit(&s)
		decide(now, im, s)
		c := v1beta2.FindCondition(im.Status.Conditions, "NodeReady")
		if string(c.Status) != tt.status || c.Reason != tt.reason {
			t.Errorf("%s: NodeReady is %s, reason %q; want %s, %q", tt.name, c.Status, c.Reason, tt.status, tt.reason)
		}
	}
}

// TestEndedContainerHasNoProcesses: with the container its processes have ended, and nobody is to
// take what the status said of them for true.
func TestEndedContainerHasNoProcesses(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	im.Status.InstanceEngines, im.Status.InstanceReplicas = running("v-e-0"), running("v-r-1")
	s.Pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{}}}
	s.Processes = nil
	decide(now, im, s)
	if st := im.Status; st.CurrentState != "starting" || len(st.InstanceEngines) != 0 || len(st.InstanceReplicas) != 0 {
		t.Errorf("state %s, engines %v, replicas %v", st.CurrentState, st.InstanceEngines, st.InstanceReplicas)
	}
}

// TestSettingsOfAPod: a Pod that was made with another value of any of these settings differs from
// the one that is wanted, and its instance manager says by which.
func TestSettingsOfAPod(t *testing.T) {
	for name, edit := range map[string]func(*PodSettings){
		"taint-toleration": func(s *PodSettings) {
			s.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		},
		"system-managed-components-node-selector": func(s *PodSettings) {
			s.NodeSelector = map[string]string{"disk": "fast"}
		},
		"priority-class":                              func(s *PodSettings) { s.PriorityClass = "high" },
		"storage-network":                             func(s *PodSettings) { s.StorageNetwork = "kube-system/fast" },
		"guaranteed-instance-manager-cpu":             func(s *PodSettings) { s.CPUPercent = 20 },
		"instance-manager-pod-liveness-probe-timeout": func(s *PodSettings) { s.ProbeTimeout = 20 },
	} {
		s := world()
		edit(&s.Settings)
		got := drift(s.Pod, s.Settings, s.cpu(v1beta2.InstanceManagerTypeAllInOne))
		if !slices.Equal(got, []string{name}) {
			t.Errorf("%s: the Pod differs by %v", name, got)
		}
		if !InPod(name) {
			t.Errorf("%s is none of the settings of a Pod", name)
		}
	}
}

// TestProbeTimeout: the probe of a Pod is that of the proposal until somebody sets another timeout.
func TestProbeTimeout(t *testing.T) {
	const name = "instance-manager-pod-liveness-probe-timeout"
	for value, want := range map[string]int32{"": 4, "10": 4, "4": 4, "20": 20} {
		values := setting.Values{}
		if value != "" {
			values[name] = value
		}
		if got := probeTimeoutOf(podFor(manager(""), SettingsFrom(values, ""), 0)); got != want {
			t.Errorf("with %q: %d s, want %d s", value, got, want)
		}
	}
}

// TestBudgetOfAManager: the one Pod of an instance manager may not be evicted while the node is not
// drained; the budget goes with its instance manager.
func TestBudgetOfAManager(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	b := budgetFor(im)
	if b.Spec.MinAvailable == nil || b.Spec.MinAvailable.IntValue() != 1 || b.Spec.Selector == nil {
		t.Fatalf("budget %+v", b.Spec)
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(s.Pod.Labels)) {
		t.Errorf("the budget selects %v, the Pod has %v (%v)", b.Spec.Selector, s.Pod.Labels, err)
	}
	for _, label := range []string{"longhorn.io/component", "longhorn.io/managed-by", "longhorn.io/node",
		"longhorn.io/instance-manager-type", "longhorn.io/instance-manager-image"} {
		if b.Labels[label] == "" {
			t.Errorf("the budget has no label %s: %v", label, b.Labels)
		}
	}
	if o := b.OwnerReferences; len(o) != 1 || o[0].Kind != "InstanceManager" || o[0].Name != im.Name ||
		o[0].UID != im.UID {
		t.Errorf("owners %+v", o)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta2.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range index.All() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	r := &Reconciler{client: builder.Build(), drains: newDrains()}
	for _, tt := range []struct {
		name                 string
		cordoned, autoscaler bool
		drained              bool
	}{
		{"nobody drains the node", false, false, false},
		{"the node is cordoned", true, false, true},
		{"the autoscaler may remove any node", false, true, true},
	} {
		s := world()
		s.KubeNode.Spec.Unschedulable, s.Autoscaler, s.DrainPolicy = tt.cordoned, tt.autoscaler, "always-allow"
		if err := r.gatherDrain(t.Context(), im, &s); err != nil || s.Drained != tt.drained {
			t.Errorf("%s: the budget may go: %v, want %v (%v)", tt.name, s.Drained, tt.drained, err)
		}
	}
}
