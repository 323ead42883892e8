package manager

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

// podFor returns the Pod of a manager: the process that serves the files of its disk. mounts: it
// may mount shares, to back images up there.
func podFor(m *v1beta2.BackingImageManager, s instancemanager.PodSettings, mounts bool) *corev1.Pod {
	yes := true
	pod := s.Pod(instancemanager.Managed{Namespace: m.Namespace, Name: m.Name, Node: m.Spec.NodeID,
		Labels: naming.BackingImageManagerLabels(m.Spec.NodeID, m.Spec.DiskUUID),
		Owner: metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "BackingImageManager",
			Name: m.Name, UID: m.UID, Controller: &yes, BlockOwnerDeletion: &yes}})
	backingimage.Run(pod, naming.ComponentBackingImageManager, m.Spec.Image, m.Spec.DiskPath, s,
		// The reference listens on a wildcard; here a server listens on its Pod's address only.
		"backing-image-manager", "--debug", "daemon",
		"--listen", "$(POD_IP):"+strconv.Itoa(naming.PortBackingImage),
		"--sync-listen", "$(POD_IP):"+strconv.Itoa(naming.PortBackingImageSync),
		"--disk-uuid", m.Spec.DiskUUID)
	if mounts {
		backingimage.AllowMount(pod)
	}
	return pod
}
