package instancemanager

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const image = "ankole/instance-manager:dev"

func manager(state v1beta2.InstanceManagerState) *v1beta2.InstanceManager {
	im := &v1beta2.InstanceManager{}
	im.Namespace, im.Name, im.UID = naming.Namespace, naming.InstanceManagerName("n1", image), "im-uid"
	im.Spec = v1beta2.InstanceManagerSpec{Image: image, NodeID: "n1", Type: v1beta2.InstanceManagerTypeAllInOne,
		DataEngine: "v1"}
	im.Status.CurrentState = state
	return im
}

// world is a healthy node whose Pod runs and is followed.
func world() seen {
	node := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}
	kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	kube.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	settings := PodSettings{CPUPercent: 12, Tolerations: []corev1.Toleration{}, NodeSelector: map[string]string{}}
	pod := podFor(manager(""), settings, 960)
	pod.UID = "pod-uid"
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "127.0.1.1",
		ContainerStatuses: []corev1.ContainerStatus{{Ready: true}},
	}
	return seen{
		Node: node, KubeNode: kube, Pod: pod, PDB: &policyv1.PodDisruptionBudget{},
		Processes: &heard.Processes{
			Engines: map[string]v1beta2.InstanceProcess{}, Replicas: map[string]v1beta2.InstanceProcess{},
			APIVersion: 4, APIMinVersion: 1,
		},
		DefaultImage: image, Settings: settings, Owner: "leader-node",
	}
}

func running(name string) map[string]v1beta2.InstanceProcess {
	return map[string]v1beta2.InstanceProcess{
		name: {Status: v1beta2.InstanceProcessStatus{State: v1beta2.InstanceStateRunning}}}
}

func TestDecide(t *testing.T) {
	const (
		stopped  = v1beta2.InstanceManagerStateStopped
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
		do     string // beginning of the change, "" for none
		reason string // of PodReady
		after  time.Duration
	}{
		{"settled", up, nil, up, "", "Running", 0},
		{"new", "", func(_ *v1beta2.InstanceManager, s *seen) { s.Pod = nil }, stopped, "create *v1.Pod", "NotFound", 0},
		{"stopped stays stopped until the Pod is there", stopped, func(_ *v1beta2.InstanceManager, s *seen) { s.Pod = nil },
			stopped, "create *v1.Pod", "NotFound", 0},
		{"Pod vanished", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod = nil
		}, failed, "create *v1.Pod", "NotFound", 0},
		{"Pod vanished, backing off", failed, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod, s.StartNotBefore = nil, now.Add(4*time.Second)
		}, failed, "", "NotFound", 4 * time.Second},
		{"Pod vanished from a cordoned node", failed, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod, s.KubeNode.Spec.Unschedulable = nil, true
		}, failed, "", "NotFound", 0},
		{"Pod pending", stopped, func(_ *v1beta2.InstanceManager, s *seen) { s.Pod.Status.Phase = corev1.PodPending },
			starting, "", "Starting", 0},
		{"Pod not ready yet", starting, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod.Status.ContainerStatuses[0].Ready, s.Processes = false, nil
		}, starting, "", "Starting", followRetry},
		{"Pod not ready any more", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod.Status.ContainerStatuses[0].Ready, s.Processes = false, nil
		}, unknown, "", "Starting", followRetry},
		{"Pod without an address at the moment", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod.Status.PodIP, s.Processes = "", nil
		}, unknown, "", "Starting", followRetry},
		{"container ended", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{}}}
		}, starting, "", "Starting", 0},
		{"node is back, processes not known yet", unknown, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil },
			unknown, "", "Running", followRetry},
		{"node is back, processes known", unknown, nil, up, "", "Running", 0},
		{"Pod runs, processes not known yet", starting, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil },
			starting, "", "Starting", followRetry},
		{"Pod runs, stream lost by a new leader", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Processes = nil },
			up, "", "Running", followRetry},
		{"Pod failed", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Pod.Status.Phase = corev1.PodFailed },
			failed, "delete *v1.Pod", "Failed", 0},
		{"Pod ended well", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Pod.Status.Phase = corev1.PodSucceeded },
			failed, "delete *v1.Pod", "Failed", 0},
		{"node down", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Node.Status.Conditions[0] = v1beta2.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}
		}, unknown, "", "", 0},
		{"node down keeps an error", failed, func(_ *v1beta2.InstanceManager, s *seen) {
			s.KubeNode = nil
		}, failed, "", "", 0},
		{"manager Pod down is not node down", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Node.Status.Conditions[0] = v1beta2.Condition{Type: "Ready", Status: "False", Reason: "ManagerPodDown"}
		}, up, "", "Running", 0},
		{"other image, idle", up, func(_ *v1beta2.InstanceManager, s *seen) { s.DefaultImage = "other" },
			up, "close instance manager", "Running", 0},
		{"other image, closed and empty", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, im.Status.ClosedPod, s.Empty = "other", "pod-uid", true
		}, up, "delete *v1beta2.InstanceManager", "Running", 0},
		{"other image, no Pod", failed, func(_ *v1beta2.InstanceManager, s *seen) { s.DefaultImage, s.Pod = "other", nil },
			failed, "delete *v1beta2.InstanceManager", "NotFound", 0},
		{"other image, busy", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, s.Processes.Engines = "other", running("v-e-0")
		}, up, "", "Running", 0},
		{"settings differ, idle", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Settings.CPUPercent = 20 },
			up, "close instance manager", "Running", 0},
		{"settings differ, closed and empty", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, im.Status.ClosedPod, s.Empty = 20, "pod-uid", true
		}, up, "delete *v1.Pod", "Running", 0},
		{"settings do not differ any more, closed and empty", up, func(im *v1beta2.InstanceManager, s *seen) {
			im.Status.ClosedPod, s.Empty = "pod-uid", true
		}, up, "delete *v1.Pod", "Running", 0},
		{"settings differ, closed, node cordoned since", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, im.Status.ClosedPod, s.KubeNode.Spec.Unschedulable = 20, "pod-uid", true
		}, up, "close instance manager", "Running", 0},
		{"settings differ, closed, a process came before", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, im.Status.ClosedPod, s.Processes.Engines = 20, "pod-uid", running("v-e-0")
		}, up, "", "Running", 0},
		{"settings differ, closed, stream lost", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, im.Status.ClosedPod, s.UnconfirmedSince, s.Empty = 20, "pod-uid", now, true
		}, up, "", "Running", followRetry},
		{"a former Pod was closed", up, func(im *v1beta2.InstanceManager, s *seen) {
			im.Status.ClosedPod = "former"
		}, up, "", "Running", 0},
		{"settings differ, busy", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, s.Processes.Replicas = 20, running("v-r-1")
		}, up, "", "Running", 0},
		{"settings differ, idleness not known", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, s.Processes = 20, nil
		}, up, "", "Running", followRetry},
		{"settings differ, stream lost", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, s.UnconfirmedSince = 20, now
		}, up, "", "Running", followRetry},
		{"settings differ, an object claims a process", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, s.Assigned = 20, "v-e-0"
		}, up, "", "Running", followRetry},
		{"other image, an object claims a process", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, s.Assigned = "other", "v-e-0"
		}, up, "", "Running", followRetry},
		{"settings differ, Pod not ready", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.Settings.CPUPercent, s.Pod.Status.ContainerStatuses[0].Ready, s.Processes = 20, false, nil
		}, unknown, "", "Starting", followRetry},
		{"other image, stream lost", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, s.UnconfirmedSince = "other", now
		}, up, "", "Running", followRetry},
		{"other image, Pod not ready", up, func(_ *v1beta2.InstanceManager, s *seen) {
			s.DefaultImage, s.Pod.Status.ContainerStatuses[0].Ready, s.Processes = "other", false, nil
		}, unknown, "", "Starting", followRetry},
		{"storage network set, idle", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Settings.StorageNetwork = "a/b" },
			up, "close instance manager", "Running", 0},
		{"no address on the storage network", starting, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.StorageNetwork = "a/b"
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, starting, "", "Starting", 0},
		{"no address on a storage network that is unset again", starting, func(im *v1beta2.InstanceManager, s *seen) {
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, starting, "close instance manager", "Starting", 0},
		{"network status vanished, busy", up, func(im *v1beta2.InstanceManager, s *seen) {
			im.Status.StorageIP, s.Processes.Engines, s.Settings.CPUPercent = "192.168.0.7", running("v-e-0"), 20
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, up, "", "Running", 0},
		{"network status vanished, busy, no address recorded", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Processes.Engines, s.Settings.CPUPercent = running("v-e-0"), 20
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, unknown, "", "Starting", 0},
		{"network status vanished, stream lost by a new leader", up, func(im *v1beta2.InstanceManager, s *seen) {
			s.Processes, s.Settings.CPUPercent = nil, 20
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, unknown, "", "Starting", followRetry},
		{"no address on the storage network, node is back", unknown, func(im *v1beta2.InstanceManager, s *seen) {
			s.Settings.StorageNetwork = "a/b"
			s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
		}, starting, "", "Starting", 0},
		{"no budget yet", up, func(_ *v1beta2.InstanceManager, s *seen) { s.PDB = nil },
			up, "create *v1.PodDisruptionBudget", "Running", 0},
		{"drained", up, func(_ *v1beta2.InstanceManager, s *seen) { s.Drained, s.KubeNode.Spec.Unschedulable = true, true },
			up, "delete *v1.PodDisruptionBudget", "Running", budgetRetry},
		{"being deleted", up, func(im *v1beta2.InstanceManager, s *seen) {
			im.DeletionTimestamp, s.Pod = &metav1.Time{Time: now}, nil
		}, up, "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			im, s := manager(tt.before), world()
			if tt.edit != nil {
				tt.edit(im, &s)
			}
			d := decide(now, im, s)
			if im.Status.CurrentState != tt.state {
				t.Errorf("state %q, want %q", im.Status.CurrentState, tt.state)
			}
			do := ""
			if d.Do != nil {
				do = d.Do.String()
			}
			if (tt.do == "") != (do == "") || !strings.HasPrefix(do, tt.do) {
				t.Errorf("does %q, want %q", do, tt.do)
			}
			if got := v1beta2.FindCondition(im.Status.Conditions,
				v1beta2.InstanceManagerConditionPodReady).Reason; got != tt.reason {
				t.Errorf("PodReady has reason %q, want %q", got, tt.reason)
			}
			if closes := strings.HasPrefix(tt.do, "close"); closes && im.Status.ClosedPod != "pod-uid" ||
				tt.do == "" && s.UnconfirmedSince.IsZero() && im.Status.ClosedPod != "" {
				t.Errorf("closed %q", im.Status.ClosedPod)
			}
			if d.After != tt.after {
				t.Errorf("looks again after %v, want %v", d.After, tt.after)
			}
			// Deciding again about the same world changes nothing.
			again := im.DeepCopy()
			decide(now.Add(time.Hour), again, s)
			if again.Status.CurrentState != im.Status.CurrentState && tt.before != "" {
				t.Errorf("does not settle: %q, then %q", im.Status.CurrentState, again.Status.CurrentState)
			}
		})
	}
}

func TestInstancesAreForgottenWithThePod(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	s.Processes.Engines, s.Processes.Replicas = running("v-e-0"), running("v-r-1")
	decide(now, im, s)
	if len(im.Status.InstanceEngines) != 1 || len(im.Status.InstanceReplicas) != 1 || im.Status.IP != "127.0.1.1" ||
		im.Status.APIVersion != 4 {
		t.Fatalf("status %+v", im.Status)
	}
	s.Pod = nil
	decide(now, im, s)
	if im.Status.InstanceEngines != nil || im.Status.InstanceReplicas != nil || im.Status.IP != "" {
		t.Fatalf("kept after the Pod is gone: %+v", im.Status)
	}
}

func TestANodeThatIsDownKeepsItsInstances(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	s.Processes.Engines = running("v-e-0")
	decide(now, im, s)
	s.KubeNode, s.Pod, s.Processes = nil, nil, nil
	decide(now, im, s)
	if len(im.Status.InstanceEngines) != 1 {
		t.Fatal("instances of an unreachable node were forgotten; they may well be running")
	}
	if im.Status.OwnerID != "leader-node" {
		t.Fatalf("owner %q, want the deciding node", im.Status.OwnerID)
	}
}

// TestUnknownIsNotAbsent: whatever keeps the leader from observing an instance manager, what it
// reported last stays in its object, and after a while the object says so.
func TestUnknownIsNotAbsent(t *testing.T) {
	networks := networksAnnotation("a/b")
	for _, tt := range []struct {
		name string
		edit func(*seen)
	}{
		{"new leader", func(s *seen) { s.Processes, s.UnconfirmedSince = nil, now }},
		{"stream lost", func(s *seen) { s.UnconfirmedSince = now }},
		{"Pod not ready", func(s *seen) {
			s.Processes, s.UnconfirmedSince, s.Pod.Status.ContainerStatuses[0].Ready = nil, now, false
		}},
		{"network status vanished", func(s *seen) {
			s.Processes, s.UnconfirmedSince = nil, now
			delete(s.Pod.Annotations, naming.AnnotationNetworkStatus)
		}},
	} {
		for _, wasDown := range []bool{false, true} {
			im, s := manager(v1beta2.InstanceManagerStateStarting), world()
			s.Pod.Annotations[naming.AnnotationNetworks] = networks
			s.Pod.Annotations[naming.AnnotationNetworkStatus] = `[{"interface":"lhnet1","ips":["192.168.0.7"]}]`
			s.Processes.Engines, s.Processes.Replicas = running("v-e-0"), running("v-r-1")
			decide(now, im, s)
			if wasDown {
				down := s
				down.KubeNode, down.Processes = nil, nil
				decide(now, im, down)
			}
			listed := s.Processes
			tt.edit(&s)
			s.Settings.CPUPercent, s.DefaultImage = 20, "other" // reasons to remove it
			for _, after := range []time.Duration{0, time.Hour} {
				if d := decide(now.Add(after), im, s); d.Do != nil {
					t.Fatalf("%s, node was down %v: does %v", tt.name, wasDown, d.Do)
				}
				if len(im.Status.InstanceEngines) != 1 || len(im.Status.InstanceReplicas) != 1 || im.Status.IP != "127.0.1.1" ||
					im.Status.StorageIP != "192.168.0.7" {
					t.Fatalf("%s, node was down %v: status %+v", tt.name, wasDown, im.Status)
				}
				confirmed := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionProcessesConfirmed)
				if told := confirmed.Status == v1beta2.ConditionFalse; told != (after > 0) ||
					told && !strings.Contains(confirmed.Message, "ports 8500 to 8503 of its Pod at 127.0.1.1 (") {
					t.Fatalf("%s, node was down %v, after %v: condition %+v", tt.name, wasDown, after, confirmed)
				}
			}
			s.Processes, s.UnconfirmedSince, s.Pod.Status.ContainerStatuses[0].Ready = listed, time.Time{}, true
			decide(now, im, s)
			if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning ||
				!v1beta2.IsConditionTrue(im.Status.Conditions, v1beta2.InstanceManagerConditionProcessesConfirmed) {
				t.Fatalf("%s, node was down %v: confirmed again, status %+v", tt.name, wasDown, im.Status)
			}
		}
	}
}

func TestDriftIsNamedInTheCondition(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	s.Processes.Replicas = running("v-r-1")
	s.Settings.PriorityClass = "high"
	s.Settings.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	decide(now, im, s)
	c := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionSettingSynced)
	if c.Status != v1beta2.ConditionFalse || c.Reason != "SettingNotSynced" ||
		!strings.Contains(c.Message, "taint-toleration") || !strings.Contains(c.Message, "priority-class") ||
		strings.Contains(c.Message, "cpu") {
		t.Fatalf("condition %+v", c)
	}
}

// TestPodStaysOnANodeThatDoesNotAnswer: a Pod that does not tolerate the taints not-ready and
// unreachable for ever gets a toleration of 300 s from Kubernetes for each. Engines and replicas of
// a node that was merely cut off from the API server would end after five minutes, although their
// volumes work.
func TestPodStaysOnANodeThatDoesNotAnswer(t *testing.T) {
	im, s := manager(v1beta2.InstanceManagerStateRunning), world()
	s.Settings.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	got := podFor(im, s.Settings, 0).Spec.Tolerations
	if len(got) == 0 || got[0].Key != "k" {
		t.Errorf("the setting's tolerations are not the first of %+v", got)
	}
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		if !slices.ContainsFunc(got, func(o corev1.Toleration) bool {
			return o.Key == key && o.Operator == corev1.TolerationOpExists && o.Effect == corev1.TaintEffectNoExecute &&
				o.TolerationSeconds == nil
		}) {
			t.Errorf("%s is not tolerated for ever: %+v", key, got)
		}
	}
}

func TestCPURequest(t *testing.T) {
	for _, tt := range []struct {
		node        int
		percent     float64
		allocatable int64
		want        int64
	}{
		{0, 12, 8000, 960}, // the proposal's example
		{0, 12, 2000, 240},
		{0, 0, 8000, 0},
		{1500, 12, 8000, 1500},
		{0, 12.5, 1001, 125},
		{0, 12, 0, 0},
	} {
		if got := CPURequest(tt.node, tt.percent, tt.allocatable); got != tt.want {
			t.Errorf("CPURequest(%d, %v, %d) = %d, want %d", tt.node, tt.percent, tt.allocatable, got, tt.want)
		}
	}
}

func TestPodIsTheOneOfTheProposal(t *testing.T) {
	im := manager("")
	pod := podFor(im, PodSettings{ServiceAccount: naming.ServiceAccount, ImagePullPolicy: corev1.PullIfNotPresent}, 960)
	if pod.Name != im.Name || pod.Spec.NodeName != "n1" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever ||
		pod.Spec.ServiceAccountName != "longhorn-service-account" || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("Pod %+v", pod.Spec)
	}
	if got := pod.Annotations["longhorn.io/last-applied-tolerations"]; got != "[]" {
		t.Errorf("annotation of tolerations %q, want []", got)
	}
	for k, v := range map[string]string{
		"longhorn.io/component": "instance-manager", "longhorn.io/instance-manager-type": "aio",
		"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/node": "n1",
	} {
		if pod.Labels[k] != v {
			t.Errorf("label %s = %q, want %q", k, pod.Labels[k], v)
		}
	}
	c := pod.Spec.Containers[0]
	if got := strings.Join(c.Args, " "); got != "instance-manager --debug daemon --listen $(POD_IP):8500" {
		t.Errorf("args %q", got)
	}
	if got := c.Resources.Requests.Cpu().String(); got != "960m" || len(c.Resources.Limits) != 0 {
		t.Errorf("resources %+v", c.Resources)
	}
	if p := c.LivenessProbe; p.TCPSocket.Port.IntValue() != 8500 || p.InitialDelaySeconds != 3 || p.PeriodSeconds != 5 ||
		p.TimeoutSeconds != 4 || p.FailureThreshold != 3 {
		t.Errorf("probe %+v", p)
	}
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	for path, volume := range map[string]string{
		"/host": "host", "/engine-binaries/": "engine-binaries",
		"/host/var/lib/longhorn/unix-domain-socket/": "unix-domain-socket", "/tls-files/": "longhorn-grpc-tls",
	} {
		if mounts[path] != volume {
			t.Errorf("mount %s is %q, want %q", path, mounts[path], volume)
		}
	}
	if owner := pod.OwnerReferences[0]; owner.Kind != "InstanceManager" || !*owner.Controller ||
		!*owner.BlockOwnerDeletion {
		t.Errorf("owner %+v", owner)
	}
	if podFor(im, PodSettings{}, 0).Spec.Containers[0].Resources.Requests != nil {
		t.Error("a CPU request of 0 must request nothing")
	}
}

func TestStorageIP(t *testing.T) {
	if got := networksAnnotation(
		"kube-system/data"); got != `[{"namespace":"kube-system","name":"data","interface":"lhnet1"}]` {
		t.Errorf("annotation %s", got)
	}
	if got := networksAnnotation(""); got != "" {
		t.Errorf("annotation of no network %s", got)
	}
	for _, network := range []string{"kube-system/data", ""} {
		pod := podFor(manager(""), PodSettings{StorageNetwork: network}, 0)
		if got := storageNetwork(pod); got != network {
			t.Errorf("a Pod made for network %q is on %q", network, got)
		}
	}
	status := `[{"name":"k8s","interface":"eth0","ips":["10.0.0.1"]},{"name":"kube-system/data","interface":"lhnet1","ips":["192.168.0.7"]}]`
	asked := naming.AnnotationNetworks
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"not asked for", nil, "10.0.0.1"},
		{"not asked for, there all the same", map[string]string{naming.AnnotationNetworkStatus: status}, "10.0.0.1"},
		{"asked for and got", map[string]string{asked: "x", naming.AnnotationNetworkStatus: status}, "192.168.0.7"},
		{"asked for and got, old annotation", map[string]string{asked: "x", naming.AnnotationNetworkStatusOld: status},
			"192.168.0.7"},
		{"asked for, not got", map[string]string{asked: "x"}, ""},
		{"asked for, garbage", map[string]string{asked: "x", naming.AnnotationNetworkStatus: "{"}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations},
			Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
		if got := StorageIP(pod); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
