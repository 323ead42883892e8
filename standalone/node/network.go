package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodNetwork is a further network of the cluster, as Multus gives it to Pods that ask for it.
type PodNetwork struct {
	Name string // namespace/name, that of a NetworkAttachmentDefinition
	Place
}

// The annotations by which a Pod asks for networks and is told what it got.
const (
	annotationNetworks      = "k8s.v1.cni.cncf.io/networks"
	annotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
)

// networkRequest is one entry of annotationNetworks.
type networkRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Interface string `json:"interface"`
}

// networkStatus is one entry of annotationNetworkStatus.
type networkStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	Default   bool     `json:"default,omitempty"`
	DNS       struct{} `json:"dns"`
}

var errNetwork = errors.New("networks of the Pod")

// networksOf returns the text of annotationNetworkStatus for a Pod, empty if there is nothing to
// tell: the Pod asks for no network, or the cluster has none beside its own, and so nobody who
// would look at the annotation.
func (a *Agent) networksOf(pod *v1.Pod) (string, error) {
	asked := pod.Annotations[annotationNetworks]
	if asked == "" || len(a.cfg.Networks) == 0 {
		return "", nil
	}
	var requests []networkRequest
	if err := json.Unmarshal([]byte(asked), &requests); err != nil {
		return "", fmt.Errorf("%w: annotation %s is not a JSON list of networks: %w", errNetwork, annotationNetworks, err)
	}
	number := a.addressNumber(pod)
	status := []networkStatus{{Interface: "eth0", IPs: []string{a.cfg.Place.at(number)}, Default: true}}
	for i, r := range requests {
		if r.Namespace == "" {
			r.Namespace = pod.Namespace
		}
		if r.Interface == "" {
			r.Interface = fmt.Sprintf("net%d", i+1)
		}
		name := r.Namespace + "/" + r.Name
		k := slices.IndexFunc(a.cfg.Networks, func(n PodNetwork) bool { return n.Name == name })
		if k < 0 {
			return "", fmt.Errorf("%w: there is no network %s; --pod-network gives %s", errNetwork, name, a.networkNames())
		}
		ip := a.cfg.Networks[k].at(number)
		status = append(status, networkStatus{Name: name, Interface: r.Interface, IPs: []string{ip}})
	}
	text, err := json.Marshal(status)
	return string(text), err
}

// interfacesOf returns the text of listener.InterfacesVariable for a Pod; empty if it is on no
// further network.
func (a *Agent) interfacesOf(pod *v1.Pod) (string, error) {
	text, err := a.networksOf(pod)
	if err != nil || text == "" {
		return "", err
	}
	var status []networkStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return "", err
	}
	interfaces := map[string]string{}
	for _, s := range status {
		interfaces[s.Interface] = s.IPs[0]
	}
	out, err := json.Marshal(interfaces)
	return string(out), err
}

func (a *Agent) networkNames() string {
	names := make([]string, 0, len(a.cfg.Networks))
	for _, n := range a.cfg.Networks {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// attachNetworks tells a Pod which networks it is on, before its first container starts.
func (a *Agent) attachNetworks(ctx context.Context, pod *v1.Pod) error {
	status, err := a.networksOf(pod)
	if err != nil || status == "" || pod.Annotations[annotationNetworkStatus] == status {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{annotationNetworkStatus: status}}})
	if err != nil {
		return err
	}
	_, err = a.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("%w: %w", errNetwork, err)
	}
	return nil
}
