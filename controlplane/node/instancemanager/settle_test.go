package instancemanager

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// anyWorld draws a world and an object, possible or not.
func anyWorld(t *rapid.T) (*v1beta2.InstanceManager, seen) {
	// Each oddity is rare, so that most worlds have only one or two.
	flip := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	im := manager(rapid.SampledFrom([]v1beta2.InstanceManagerState{"running", "running", "running", "", "stopped",
		"starting", "error", "unknown"}).Draw(t, "state"))
	im.Spec.Type = rapid.SampledFrom([]v1beta2.InstanceManagerType{"aio", "aio", "engine", "replica"}).Draw(t, "type")
	if flip("had engines") {
		im.Status.InstanceEngines = running("v-e-0")
	}
	s := world()
	s.KubeNode.Spec.Unschedulable = flip("cordoned")
	s.Drained = flip("drained")
	if flip("node down") {
		s.Node.Status.Conditions[0] = v1beta2.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}
	}
	if flip("kube node gone") {
		s.KubeNode = nil
	}
	if flip("settings differ") {
		s.Settings.CPUPercent = 20
	}
	if flip("other image") {
		s.DefaultImage = "other"
	}
	if flip("engines") {
		s.Processes.Engines = running("v-e-0")
	}
	s.Pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Running", "Pending", "Failed",
		"Succeeded", ""}).Draw(t, "phase")
	s.Pod.Status.ContainerStatuses[0].Ready = !flip("not ready")
	if flip("deleting") {
		s.Pod.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if flip("no pod") {
		s.Pod = nil
	}
	if flip("no stream") || s.Pod == nil {
		s.Processes = nil
	}
	if flip("stream lost") {
		s.UnconfirmedSince = now.Add(-time.Hour)
	}
	if flip("network asked for") && s.Pod != nil {
		s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
	}
	if flip("network address recorded") {
		im.Status.StorageIP = "192.168.0.7"
	}
	if flip("closed") {
		im.Status.ClosedPod = rapid.SampledFrom([]string{"pod-uid", "former"}).Draw(t, "closed Pod")
		s.Empty = im.Status.ClosedPod == "pod-uid" && flip("empty")
	}
	if flip("assigned") {
		s.Assigned = "v-e-0"
	}
	s.PDB = nil
	if flip("budget") {
		s.PDB = &policyv1.PodDisruptionBudget{}
	}
	if flip("back-off") {
		s.StartNotBefore = now.Add(time.Second)
	}
	return im, s
}

// The loop writes the status and asks again about the same world: the second answer must agree with
// the first.
func TestStatusSettlesInOneStep(t *testing.T) {
	settles := func(t rapid.TB, im *v1beta2.InstanceManager, s seen) {
		decide(now, im, s)
		again := im.DeepCopy()
		decide(now.Add(time.Minute), again, s)
		if !equality.Semantic.DeepEqual(im, again) {
			t.Fatalf("first\n%+v\nthen\n%+v", im.Status, again.Status)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		im, s := anyWorld(t)
		settles(t, im, s)
	})
	// A starting Pod without the address that is recorded still: the message of its condition is made
	// of what this look leaves recorded.
	im, s := manager(v1beta2.InstanceManagerStateStarting), world()
	im.Status.StorageIP, s.Processes = "192.168.0.7", nil
	s.Pod.Annotations[naming.AnnotationNetworks] = networksAnnotation("a/b")
	settles(t, im, s)
}

// A Pod that may hold a running process is never deleted for the sake of settings or images.
func TestAWorkingPodIsLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		im, s := anyWorld(t)
		working := s.Pod != nil && s.Pod.DeletionTimestamp == nil && s.Pod.Status.Phase == corev1.PodRunning &&
			(s.Processes == nil || len(s.Processes.Engines) > 0 || !s.UnconfirmedSince.IsZero() || s.Assigned != "")
		decide(now, im, s)
		d := decide(now, im, s)
		if d.Do == nil || !working {
			return
		}
		what := d.Do.String()
		if what == "delete *v1.Pod longhorn-system/"+im.Name ||
			what == "delete *v1beta2.InstanceManager longhorn-system/"+im.Name {
			t.Fatalf("%s although it may be working: %+v", what, im.Status)
		}
	})
}
