package instancemanager

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// networkRequest is one entry of the annotation that asks for a further network.
type networkRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Interface string `json:"interface"`
}

// networkStatus is one entry of the annotation that says which networks a Pod got.
type networkStatus struct {
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
}

// networksAnnotation is the request for the storage network; empty for the cluster's own network.
func networksAnnotation(network string) string {
	namespace, name, err := setting.ParseNetwork(network)
	if err != nil || name == "" {
		return ""
	}
	text, _ := json.Marshal([]networkRequest{{namespace, name, naming.StorageNetworkInterface}}) // always marshals
	return string(text)
}

// storageNetwork is the storage network that a Pod was made for, as the setting names it.
func storageNetwork(pod *corev1.Pod) string {
	var asked []networkRequest
	if json.Unmarshal([]byte(pod.Annotations[naming.AnnotationNetworks]), &asked) != nil {
		return ""
	}
	for _, n := range asked {
		if n.Interface == naming.StorageNetworkInterface {
			return n.Namespace + "/" + n.Name
		}
	}
	return ""
}

// storageIP is StorageIP, or the address that was recorded if the Pod does not say it any more: who
// has attached the network has not taken the interface away with the annotation.
func storageIP(pod *corev1.Pod, st *v1beta2.InstanceManagerStatus) string {
	if ip := StorageIP(pod); ip != "" {
		return ip
	}
	return st.StorageIP
}

// StorageIP returns the address at which a Pod's instances are reached for data: that on the
// storage network if the Pod was made with one, empty until it has it; else the Pod's own. Falling
// back to the Pod's own address would lead data over the wrong network unnoticed.
func StorageIP(pod *corev1.Pod) string {
	if pod.Annotations[naming.AnnotationNetworks] == "" {
		return pod.Status.PodIP
	}
	for _, annotation := range []string{naming.AnnotationNetworkStatus, naming.AnnotationNetworkStatusOld} {
		var networks []networkStatus
		if json.Unmarshal([]byte(pod.Annotations[annotation]), &networks) != nil {
			continue
		}
		for _, n := range networks {
			if n.Interface == naming.StorageNetworkInterface && len(n.IPs) > 0 {
				return n.IPs[0]
			}
		}
	}
	return ""
}
