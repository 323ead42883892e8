package engineimage

import (
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestPodsTellTheAutoscaler: the template of the Pods follows the setting.
func TestPodsTellTheAutoscaler(t *testing.T) {
	const key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	ei := object()
	with := func(value string) podSettings {
		return settingsFrom(setting.Values{"kubernetes-cluster-autoscaler-enabled": value}, "sa")
	}
	on, off := daemonSetFor(ei, with("true")), daemonSetFor(ei, with("false"))
	if on.Spec.Template.Annotations[key] != "true" || off.Spec.Template.Annotations[key] != "" {
		t.Errorf("new: %v and %v", on.Spec.Template.Annotations, off.Spec.Template.Annotations)
	}
	if u := corrected(off, ei, with("true")); u == nil || u.Spec.Template.Annotations[key] != "true" {
		t.Errorf("enabled later: %+v", u)
	}
	if u := corrected(on, ei, with("false")); u == nil || u.Spec.Template.Annotations[key] != "" {
		t.Errorf("disabled later: %+v", u)
	}
	for _, value := range []string{"true", "false"} {
		d := daemonSetFor(ei, with(value))
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "of/others", "x")
		if corrected(d, ei, with(value)) != nil {
			t.Errorf("a DaemonSet that is as it should be (%s) is written", value)
		}
	}
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Namespace: ei.Namespace})
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(ei).Build()
	s := &v1beta2.Setting{}
	s.Name = "kubernetes-cluster-autoscaler-enabled"
	if woken := r.onSetting(s); len(woken) != 1 {
		t.Errorf("a change of the setting wakes %q", woken)
	}
}

// TestPodsFollowTheSettings: what settings say of the Pods is in the template, and a change of one
// is a difference.
func TestPodsFollowTheSettings(t *testing.T) {
	ei := object()
	before := daemonSetFor(ei, settingsFrom(setting.Values{}, "sa"))
	for name, value := range map[string]string{
		setting.EngineImagePodLivenessProbePeriod: "6", setting.EngineImagePodLivenessProbeTimeout: "7",
		setting.EngineImagePodLivenessProbeFailureThreshold: "8", setting.SystemManagedPodsImagePullPolicy: "always",
		setting.RegistrySecret: "pull",
	} {
		s := settingsFrom(setting.Values{name: value}, "sa")
		u := corrected(before, ei, s)
		if u == nil {
			t.Errorf("setting %s changes nothing", name)
			continue
		}
		pod, got := u.Spec.Template.Spec, ""
		switch probe := pod.Containers[0].LivenessProbe; name {
		case setting.EngineImagePodLivenessProbePeriod:
			got = strconv.Itoa(int(probe.PeriodSeconds))
		case setting.EngineImagePodLivenessProbeTimeout:
			got = strconv.Itoa(int(probe.TimeoutSeconds))
		case setting.EngineImagePodLivenessProbeFailureThreshold:
			got = strconv.Itoa(int(probe.FailureThreshold))
		case setting.SystemManagedPodsImagePullPolicy:
			got = strings.ToLower(string(pod.Containers[0].ImagePullPolicy))
		case setting.RegistrySecret:
			got = pod.ImagePullSecrets[0].Name
		}
		if got != value {
			t.Errorf("setting %s is %q in the Pods, want %q", name, got, value)
		}
	}
}
