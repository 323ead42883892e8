package instancemanager

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/backup/budget"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// Managed says which Pod of this system is made on a node, and for which object.
type Managed struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Owner                 metav1.OwnerReference
}

// Pod returns a Pod as the settings ask for it, without volumes and containers: it stays on its
// node until the node is back, and is not started again by the kubelet.
func (s PodSettings) Pod(m Managed) *corev1.Pod {
	tolerations, _ := json.Marshal(emptyNotNull(s.Tolerations)) // plain structs always marshal
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace,
			Name:      m.Name,
			Labels:    m.Labels,
			Annotations: map[string]string{
				naming.AnnotationLastTolerations: string(tolerations),
				annotationPriorityClass:          s.PriorityClass,
			},
			OwnerReferences: []metav1.OwnerReference{m.Owner},
		},
		Spec: corev1.PodSpec{
			NodeName:           m.Node,
			RestartPolicy:      corev1.RestartPolicyNever,
			ServiceAccountName: s.ServiceAccount,
			// It asks the API server nothing.
			AutomountServiceAccountToken: new(bool),
			PriorityClassName:            s.PriorityClass,
			Tolerations:                  slices.Concat(s.Tolerations, untilItIsBack()),
			NodeSelector:                 s.NodeSelector,
		},
	}
	if networks := networksAnnotation(s.StorageNetwork); networks != "" {
		pod.Annotations[naming.AnnotationNetworks] = networks
	}
	if s.RegistrySecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: s.RegistrySecret}}
	}
	return pod
}

// Drift lists the settings of Managed Pods whose value differs from what the Pod was made with.
func (s PodSettings) Drift(pod *corev1.Pod) []string {
	wanted := s.Pod(Managed{})
	var settings []string
	add := func(differs bool, setting string) {
		if differs {
			settings = append(settings, setting)
		}
	}
	add(pod.Annotations[naming.AnnotationLastTolerations] != wanted.Annotations[naming.AnnotationLastTolerations],
		setting.TaintToleration)
	add(!sameSelector(pod.Spec.NodeSelector, s.NodeSelector), setting.SystemManagedComponentsNodeSelector)
	add(pod.Annotations[annotationPriorityClass] != s.PriorityClass, setting.PriorityClass)
	add(pod.Annotations[naming.AnnotationNetworks] != wanted.Annotations[naming.AnnotationNetworks],
		setting.StorageNetwork)
	return settings
}

// PodEnvironment is what processes of instances and of backing images are told: who they are, and
// where their certificate is, which TLSVolume and TLSMount bring.
func PodEnvironment() []corev1.EnvVar { return podEnvironment() }

// TLSVolume is the Secret with the certificate of a node's processes.
func TLSVolume() corev1.Volume {
	optional := true
	return corev1.Volume{Name: volumeTLS, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: naming.SecretGRPCTLS, Optional: &optional},
	}}
}

// TLSMount is where PodEnvironment says that the certificate is.
func TLSMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeTLS, MountPath: naming.TLSFilesInPod}
}

// BudgetVolume is the folder of a node in which the workers of its backups share their bandwidth.
func BudgetVolume() corev1.Volume {
	made := corev1.HostPathDirectoryOrCreate
	return corev1.Volume{Name: volumeBudget, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: naming.BackupBudgetHost, Type: &made},
	}}
}

// BudgetMount is where those workers look for it.
func BudgetMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeBudget, MountPath: budget.FolderInPod}
}

// PodReady tells whether a Pod runs, has an address, and all its containers are ready.
func PodReady(pod *corev1.Pod) bool { return podReady(pod) }

// PodEnded tells whether a Pod will never run again and only waits to be removed.
func PodEnded(pod *corev1.Pod) bool { return ended(pod) }

// Starts is the pause between a Pod that has ended and the next one of the same name, which grows
// while Pods end soon. It is safe for concurrent use.
type Starts struct{ all *starts }

// NewStarts returns one that has seen no Pod yet.
func NewStarts(now func() time.Time) Starts { return Starts{newStarts(now)} }

// Observe takes note of the present Pod (nil: none) and returns the time before which no new one
// should be made.
func (s Starts) Observe(key client.ObjectKey, pod *corev1.Pod) time.Time {
	return s.all.observe(key, pod)
}

// Removed takes note that the Pod is removed on purpose: the next one waits for nothing.
func (s Starts) Removed(key client.ObjectKey) { s.all.removed(key) }

// Forget drops what is known of an object that is gone.
func (s Starts) Forget(key client.ObjectKey) { s.all.forget(key) }
