package source

import (
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backingimage"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

// podFor returns the Pod of a data source: the process that makes one file.
func podFor(d *v1beta2.BackingImageDataSource, parameters map[string]string, image string,
	s instancemanager.PodSettings) *corev1.Pod {
	yes := true
	pod := s.Pod(instancemanager.Managed{Namespace: d.Namespace, Name: naming.BackingImageDataSourcePodName(d.Name),
		Node: d.Spec.NodeID, Labels: naming.BackingImageDataSourceLabels(d.Name, d.Spec.NodeID, d.Spec.DiskUUID),
		Owner: metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "BackingImageDataSource",
			Name: d.Name, UID: d.UID, Controller: &yes, BlockOwnerDeletion: &yes}})
	args := []string{"backing-image-manager", "--debug", "data-source",
		// The reference listens on a wildcard; here a server listens on its Pod's address only.
		"--listen", "$(POD_IP):" + strconv.Itoa(naming.PortBackingImage),
		"--sync-listen", "$(POD_IP):" + strconv.Itoa(naming.PortBackingImageSync),
		"--disk-uuid", d.Spec.DiskUUID, "--name", d.Name, "--uuid", d.Spec.UUID,
		"--source-type", literal(string(d.Spec.SourceType))}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		args = append(args, "--parameters", literal(pair(key, parameters[key])))
	}
	if d.Spec.Checksum != "" {
		args = append(args, "--checksum", literal(d.Spec.Checksum))
	}
	backingimage.Run(pod, naming.ComponentBackingImageDataSource, image, d.Spec.DiskPath, s, args...)
	if restoresShare(d) {
		backingimage.AllowMount(pod)
	}
	if received(d) {
		c := &pod.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "volumes", ContainerPort: naming.PortBackingImageExport,
			Protocol: corev1.ProtocolTCP})
	}
	return pod
}

// literal keeps Kubernetes from expanding $(VAR) in what a user has written.
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// pair is KEY=VALUE for a flag that takes several, separated by commas and quoted as CSV. The flag
// takes what has one equals sign as it is.
func pair(key, value string) string {
	both := key + "=" + value
	if strings.Count(both, "=") == 1 {
		return both
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{both}) // into memory
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}
