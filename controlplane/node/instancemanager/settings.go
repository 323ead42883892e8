package instancemanager

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// podSettingNames are the settings that are baked into Pods; drift is reported under these names.
var podSettingNames = slices.Concat([]string{
	setting.TaintToleration, setting.SystemManagedComponentsNodeSelector,
	setting.GuaranteedInstanceManagerCPU, setting.PriorityClass, setting.StorageNetwork,
	setting.InstanceManagerPodLivenessProbeTimeout,
}, legacyPodSettings)

// PodSettingNames returns the settings that take effect when an instance manager's Pod is made
// anew.
func PodSettingNames() []string { return slices.Clone(podSettingNames) }

// InPod tells whether a setting is one of PodSettingNames.
func InPod(name string) bool { return slices.Contains(podSettingNames, name) }

// SettingsFrom picks out of all settings those baked into Pods.
func SettingsFrom(v setting.Values, serviceAccount string) PodSettings {
	tolerations, selector := setting.ManagedPods(v)
	return PodSettings{
		ServiceAccount:  serviceAccount,
		ImagePullPolicy: PullPolicy(v.String(setting.SystemManagedPodsImagePullPolicy)),
		RegistrySecret:  v.String(setting.RegistrySecret),
		PriorityClass:   v.String(setting.PriorityClass),
		Tolerations:     tolerations,
		NodeSelector:    selector,
		StorageNetwork:  v.String(setting.StorageNetwork),
		CPUPercent:      v.Float(setting.GuaranteedInstanceManagerCPU),
		ProbeTimeout:    probeTimeoutFrom(v),

		LegacyCPUPercent: legacyPercent(v),
	}
}

// probeTimeoutFrom is the timeout that somebody has asked for; 0 while the setting has its default:
// the Pod of the proposal has a shorter one, and the proposal goes before the setting's default.
func probeTimeoutFrom(v setting.Values) int {
	asked := v.Int(setting.InstanceManagerPodLivenessProbeTimeout)
	if asked == (setting.Values{}).Int(setting.InstanceManagerPodLivenessProbeTimeout) {
		return 0
	}
	return asked
}

// PullPolicy translates the value of setting system-managed-pods-image-pull-policy.
func PullPolicy(value string) corev1.PullPolicy {
	switch value {
	case "always":
		return corev1.PullAlways
	case "never":
		return corev1.PullNever
	}
	return corev1.PullIfNotPresent
}

// Differs tells whether a Pod of an instance manager was made with another value of the named
// setting than settings asks for.
func Differs(ctx context.Context, r client.Reader, pod *corev1.Pod, settings PodSettings, name string) (bool, error) {
	s := seen{Settings: settings}
	var err error
	node := pod.Spec.NodeName
	if s.Node, err = read(ctx, r, pod.Namespace, node, &v1beta2.Node{}); err != nil {
		return false, err
	}
	if s.KubeNode, err = read(ctx, r, "", node, &corev1.Node{}); err != nil {
		return false, err
	}
	if s.nodeDown() {
		return false, nil // nobody could tell; the Pod is replaced when the node is back
	}
	kind := v1beta2.InstanceManagerType(pod.Labels[naming.LabelInstanceManagerType])
	return slices.Contains(drift(pod, settings, s.cpu(kind)), name), nil
}
