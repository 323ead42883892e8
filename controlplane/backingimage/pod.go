package backingimage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

// diskInPod is where the processes of backing images have their disk.
const diskInPod = "/data/"

const volumeDisk = "disk"

// liveness is how often, in seconds, a process is asked whether it listens, and how often it may
// fail to.
const (
	probeDelay    = 3
	probePeriod   = 5
	probeTimeout  = 4
	probeFailures = 3
)

// Run gives a Pod the one container of a process that works on a disk. It is root, since the disk
// is root's, and has no other privilege of the node.
func Run(pod *corev1.Pod, name, image, diskPath string, s instancemanager.PodSettings, args ...string) {
	directory := corev1.HostPathDirectory // a disk that is not there is not made
	follow := corev1.MountPropagationHostToContainer
	root, yes, no := int64(0), true, false
	port := func(name string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}
	}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: volumeDisk, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: diskPath, Type: &directory}}},
		instancemanager.TLSVolume(), instancemanager.BudgetVolume(),
	}
	pod.Spec.Containers = []corev1.Container{{
		Name: name, Image: image, ImagePullPolicy: s.ImagePullPolicy, Args: args, Env: instancemanager.PodEnvironment(),
		Ports: []corev1.ContainerPort{port("orders", naming.PortBackingImage), port("files", naming.PortBackingImageSync)},
		LivenessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(naming.PortBackingImage)}},
			InitialDelaySeconds: probeDelay, PeriodSeconds: probePeriod, TimeoutSeconds: probeTimeout,
			FailureThreshold: probeFailures,
		},
		SecurityContext: &corev1.SecurityContext{RunAsUser: &root, AllowPrivilegeEscalation: &no,
			ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			// Directories of the node have types of their own where SELinux is enforced.
			SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeDisk, MountPath: diskInPod, MountPropagation: &follow}, instancemanager.TLSMount(),
			instancemanager.BudgetMount()},
	}}
}

// capabilitySysAdmin is what it takes to mount a file system.
const capabilitySysAdmin corev1.Capability = "SYS_ADMIN"

// AllowMount lets the one container of a Pod mount the share of a backup target. Profiles of
// AppArmor that container runtimes have by default forbid that to who has the capability too.
func AllowMount(pod *corev1.Pod) {
	c := pod.Spec.Containers[0].SecurityContext
	c.Capabilities.Add = []corev1.Capability{capabilitySysAdmin}
	c.AllowPrivilegeEscalation = nil // the capability is one
	c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
}

// MayMount says whether AllowMount was applied to a Pod.
func MayMount(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.SecurityContext != nil && c.SecurityContext.Capabilities != nil &&
			slices.Contains(c.SecurityContext.Capabilities.Add, capabilitySysAdmin)
	})
}
