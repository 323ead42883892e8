package engineimage

import (
	"maps"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// podSettings are the settings that shape the Pods.
type podSettings struct {
	serviceAccount  string
	imagePullPolicy corev1.PullPolicy
	registrySecret  string
	priorityClass   string
	tolerations     []corev1.Toleration
	nodeSelector    map[string]string
	// autoscaler: the cluster autoscaler may remove nodes.
	autoscaler bool
	// Liveness probe, in seconds and failures.
	probePeriod, probeTimeout, probeFailures int32
}

func settingsFrom(v setting.Values, serviceAccount string) podSettings {
	tolerations, selector := setting.ManagedPods(v)
	return podSettings{
		serviceAccount:  serviceAccount,
		imagePullPolicy: instancemanager.PullPolicy(v.String(setting.SystemManagedPodsImagePullPolicy)),
		registrySecret:  v.String(setting.RegistrySecret),
		priorityClass:   v.String(setting.PriorityClass),
		tolerations:     tolerations,
		nodeSelector:    selector,
		autoscaler:      v.Bool(setting.KubernetesClusterAutoscalerEnabled),
		probePeriod:     int32(v.Int(setting.EngineImagePodLivenessProbePeriod)),
		probeTimeout:    int32(v.Int(setting.EngineImagePodLivenessProbeTimeout)),
		probeFailures:   int32(v.Int(setting.EngineImagePodLivenessProbeFailureThreshold)),
	}
}

const (
	// dataInPod is where the Pod sees its own folder among the node's engine binaries.
	dataInPod  = "/data"
	dataVolume = "data"
	// startPeriod and startFailures give a slow disk two minutes to take the binary.
	startPeriod   = 1
	startFailures = 120
	// gracePeriod is short: the container only waits.
	gracePeriod = 5
)

// daemonSetFor returns the DaemonSet that installs an image.
func daemonSetFor(ei *v1beta2.EngineImage, s podSettings) *appsv1.DaemonSet {
	labels := naming.EngineImageLabels(ei.Name)
	yes, grace := true, int64(gracePeriod)
	all := intstr.FromString("100%")
	privileged, create := true, corev1.HostPathDirectoryOrCreate
	pod := corev1.PodSpec{
		ServiceAccountName:            s.serviceAccount,
		AutomountServiceAccountToken:  new(bool), // it asks the API server nothing
		PriorityClassName:             s.priorityClass,
		Tolerations:                   s.tolerations,
		NodeSelector:                  s.nodeSelector,
		TerminationGracePeriodSeconds: &grace,
		Volumes: []corev1.Volume{{Name: dataVolume, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path.Dir(naming.EngineBinaryOnHost(ei.Spec.Image)), Type: &create},
		}}},
		Containers: []corev1.Container{{
			Name:            naming.EngineImageDaemonSetName(ei.Name),
			Image:           ei.Spec.Image,
			ImagePullPolicy: s.imagePullPolicy,
			Args:            []string{"engine", "install", "--to", dataInPod},
			StartupProbe:    versionProbe(startPeriod, s.probeTimeout, startFailures),
			LivenessProbe:   versionProbe(s.probePeriod, s.probeTimeout, s.probeFailures),
			SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			VolumeMounts:    []corev1.VolumeMount{{Name: dataVolume, MountPath: dataInPod}},
		}},
	}
	if s.registrySecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: s.registrySecret}}
	}
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ei.Namespace,
			Name:      naming.EngineImageDaemonSetName(ei.Name),
			Labels:    labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta2.GroupVersion.String(), Kind: "EngineImage",
				Name: ei.Name, UID: ei.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType,
				// Running instances do not need the Pods, so all may be replaced at once.
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &all},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       pod,
			},
		},
	}
	instancemanager.SafeToEvict(&d.Spec.Template.ObjectMeta, s.autoscaler)
	return d
}

// versionProbe asks the binary for its version, which it can tell only where it can run.
func versionProbe(period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"engine", "version", "--client-only"}},
		},
		PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures,
	}
}

// corrected returns a copy of the DaemonSet with the settings in force, nil if it has them.
// Tolerations and node selector set by others are kept.
func corrected(have *appsv1.DaemonSet, ei *v1beta2.EngineImage, s podSettings) *appsv1.DaemonSet {
	wanted := daemonSetFor(ei, s).Spec.Template.Spec
	u := have.DeepCopy()
	pod := &u.Spec.Template.Spec
	if len(pod.Containers) == 0 {
		return nil
	}
	pod.PriorityClassName = wanted.PriorityClassName
	pod.Tolerations = wanted.Tolerations
	pod.NodeSelector = wanted.NodeSelector
	pod.ImagePullSecrets = wanted.ImagePullSecrets
	c := &pod.Containers[0]
	c.Image, c.ImagePullPolicy = wanted.Containers[0].Image, wanted.Containers[0].ImagePullPolicy
	if p := c.LivenessProbe; p != nil {
		p.PeriodSeconds, p.TimeoutSeconds, p.FailureThreshold = s.probePeriod, s.probeTimeout, s.probeFailures
	}
	instancemanager.SafeToEvict(&u.Spec.Template.ObjectMeta, s.autoscaler)
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	maps.Copy(u.Labels, naming.EngineImageLabels(ei.Name))
	if equality.Semantic.DeepEqual(have, u) {
		return nil
	}
	return u
}
