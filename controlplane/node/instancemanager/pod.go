package instancemanager

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// PodSettings are the settings baked into the Pods of instance managers.
type PodSettings struct {
	ServiceAccount  string
	ImagePullPolicy corev1.PullPolicy
	RegistrySecret  string
	PriorityClass   string
	Tolerations     []corev1.Toleration
	NodeSelector    map[string]string
	// StorageNetwork is namespace/name of a NetworkAttachmentDefinition; empty for the cluster's
	// network.
	StorageNetwork string
	// CPUPercent of a node's allocatable CPU is requested where the Node object does not say
	// otherwise; 0 requests nothing.
	CPUPercent float64
	// ProbeTimeout is how many seconds the liveness probe may take; 0 for the reference Pod's 4.
	ProbeTimeout int
	LegacyCPUPercent
}

// Names of the Pod's volumes.
const (
	volumeHost     = "host"
	volumeBinaries = "engine-binaries"
	volumeSockets  = "unix-domain-socket"
	volumeTLS      = "longhorn-grpc-tls"
	volumeDevices  = "dev-longhorn"
	volumeBudget   = "backup-bandwidth"
)

// annotationPriorityClass remembers the setting a Pod was made with: the cluster may fill in a
// default class where the setting is empty, so the Pod's own field does not tell.
const annotationPriorityClass = naming.LabelPrefix + "last-applied-priority-class"

// livenessProbe numbers of the reference's aio Pod, in seconds.
const (
	probeInitialDelay = 3
	probePeriod       = 5
	probeTimeout      = 4
	probeFailures     = 3
)

// podFor returns the Pod of an instance manager. cpuMillis is the CPU request, 0 for none.
func podFor(im *v1beta2.InstanceManager, s PodSettings, cpuMillis int64) *corev1.Pod {
	privileged, yes := true, true
	pod := s.Pod(Managed{Namespace: im.Namespace, Name: im.Name, Node: im.Spec.NodeID,
		Labels: naming.InstanceManagerLabels(im.Spec.NodeID, im.Spec.Image, string(im.Spec.Type)),
		Owner: metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "InstanceManager",
			Name: im.Name, UID: im.UID, Controller: &yes, BlockOwnerDeletion: &yes}})
	pod.Spec.Volumes = podVolumes()
	pod.Spec.Containers = []corev1.Container{{
		Name:            naming.InstanceManagerContainer,
		Image:           im.Spec.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		// The reference listens on a wildcard; here a server listens on its Pod's address only.
		Args: []string{"instance-manager", "--debug", "daemon", "--listen",
			"$(POD_IP):" + strconv.Itoa(naming.PortProcessManager)},
		Env:             podEnvironment(),
		LivenessProbe:   livenessProbe(s.ProbeTimeout),
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		VolumeMounts:    podMounts(),
	}}
	if cpuMillis > 0 {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(cpuMillis, resource.DecimalSI),
		}
	}
	return pod
}

// untilItIsBack keeps the Pod on a node whose kubelet does not answer. Without it Kubernetes adds
// these tolerations for 300 s, and evicts the Pod after that: volumes that go on by themselves on a
// node that is merely cut off would lose their processes.
func untilItIsBack() []corev1.Toleration {
	return []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
}

func emptyNotNull(t []corev1.Toleration) []corev1.Toleration {
	if t == nil {
		return []corev1.Toleration{}
	}
	return t
}

func podEnvironment() []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}}
	}
	return []corev1.EnvVar{
		{Name: "TLS_DIR", Value: naming.TLSFilesInPod},
		field("POD_IP", "status.podIP"),
		field("POD_NAME", "metadata.name"),
		field("NODE_NAME", "spec.nodeName"),
	}
}

func livenessProbe(timeout int) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(naming.PortProcessManager)},
		},
		InitialDelaySeconds: probeInitialDelay,
		PeriodSeconds:       probePeriod,
		TimeoutSeconds:      int32(cmp.Or(timeout, probeTimeout)),
		FailureThreshold:    probeFailures,
	}
}

func podVolumes() []corev1.Volume {
	host := func(name, path string, kind corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
		}}
	}
	return []corev1.Volume{
		host(volumeHost, "/", corev1.HostPathUnset),
		host(volumeBinaries, naming.EngineBinariesHost+"/", corev1.HostPathUnset),
		host(volumeSockets, naming.UnixSocketsHost+"/", corev1.HostPathUnset),
		// Device nodes of volumes; the reference reaches them through the host's root.
		host(volumeDevices, naming.DeviceDirectory, corev1.HostPathDirectoryOrCreate),
		TLSVolume(),
	}
}

func podMounts() []corev1.VolumeMount {
	follow := corev1.MountPropagationHostToContainer
	return []corev1.VolumeMount{
		{Name: volumeHost, MountPath: naming.HostRootInPod, MountPropagation: &follow},
		{Name: volumeBinaries, MountPath: naming.EngineBinariesInPod, MountPropagation: &follow},
		{Name: volumeSockets, MountPath: naming.InHostMount(naming.UnixSocketsHost) + "/"},
		{Name: volumeDevices, MountPath: naming.DeviceDirectory},
		TLSMount(),
	}
}

// annotated returns a copy of a Pod with what others read in it: whether the cluster autoscaler may
// remove its node, whose volumes in use the disruption budget keeps, and which role of AWS it has
// before a backup store. It returns nil if the Pod tells that already.
func annotated(pod *corev1.Pod, s seen) *corev1.Pod {
	u := pod.DeepCopy()
	changed := SafeToEvict(u, s.Autoscaler)
	if u.Annotations[naming.AnnotationAWSRole] != s.Role {
		changed = true
		metav1.SetMetaDataAnnotation(&u.ObjectMeta, naming.AnnotationAWSRole, s.Role)
		if s.Role == "" {
			delete(u.Annotations, naming.AnnotationAWSRole)
		}
	}
	if !changed {
		return nil
	}
	return u
}

// SafeToEvict sets the annotation of the cluster autoscaler, or takes it away, and says whether
// that changed the object: a Pod, or the template of Pods. Without it the autoscaler keeps the node
// of a Pod that uses directories of the host.
func SafeToEvict(o metav1.Object, safe bool) (changed bool) {
	annotations := o.GetAnnotations()
	if (annotations[naming.AnnotationSafeToEvict] == "true") == safe {
		return false
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, naming.AnnotationSafeToEvict)
	if safe {
		annotations[naming.AnnotationSafeToEvict] = "true"
	}
	o.SetAnnotations(annotations)
	return true
}

// drift lists the settings whose value differs from what the Pod was made with.
func drift(pod *corev1.Pod, s PodSettings, cpu cpuRequest) []string {
	wanted := podFor(&v1beta2.InstanceManager{}, s, cpu.millis)
	settings := s.Drift(pod)
	if cpuOf(pod) != cpu.millis {
		settings = append(settings, cpu.setting)
	}
	if probeTimeoutOf(pod) != probeTimeoutOf(wanted) {
		settings = append(settings, setting.InstanceManagerPodLivenessProbeTimeout)
	}
	return settings
}

// probeTimeoutOf is how many seconds a Pod's liveness probe may take; 0 if it has none.
func probeTimeoutOf(pod *corev1.Pod) int32 {
	if len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].LivenessProbe == nil {
		return 0
	}
	return pod.Spec.Containers[0].LivenessProbe.TimeoutSeconds
}

func sameSelector(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
