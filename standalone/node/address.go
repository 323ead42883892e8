package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Place is a node in one network: the address that its Pods share, and further ones for Pods whose
// ports are taken there.
type Place struct {
	Address string
	Further []string
}

// at returns the address of that number, the shared one if there are fewer.
func (p Place) at(number int) string {
	if number > 0 && number <= len(p.Further) {
		return p.Further[number-1]
	}
	return p.Address
}

// takeAddress gives a Pod the first address at which no other Pod of the node that has not ended
// listens at one of its ports: that is what the containers declare and what probes connect to.
func (a *Agent) takeAddress(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.address, pod.UID)
	if pod.Spec.HostNetwork {
		return
	}
	mine := portsOf(pod)
	taken := map[int]bool{}
	for _, w := range a.workers {
		other, _, _ := w.snapshot()
		if other.UID == pod.UID || a.terminal(other) || a.admitted[other.UID] == nil {
			continue
		}
		if slices.ContainsFunc(portsOf(other), func(port int32) bool { return slices.Contains(mine, port) }) {
			taken[a.address[other.UID]] = true
		}
	}
	number := 0
	for taken[number] {
		number++
	}
	if number > 0 {
		if a.address == nil {
			a.address = map[types.UID]int{}
		}
		a.address[pod.UID] = number
	}
}

// addressOf is the address of a Pod in the cluster's own network.
func (a *Agent) addressOf(pod *v1.Pod) string { return a.cfg.Place.at(a.addressNumber(pod)) }

// addressNumber is the same number in every network of the node.
func (a *Agent) addressNumber(pod *v1.Pod) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.address[pod.UID]
}

// portsOf lists the ports at which a Pod is known to listen.
func portsOf(pod *v1.Pod) (ports []int32) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			for _, p := range c.Ports {
				ports = append(ports, p.ContainerPort)
			}
			for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				switch {
				case p == nil:
				case p.TCPSocket != nil:
					ports = append(ports, p.TCPSocket.Port.IntVal)
				case p.HTTPGet != nil:
					ports = append(ports, p.HTTPGet.Port.IntVal)
				case p.GRPC != nil:
					ports = append(ports, p.GRPC.Port)
				}
			}
		}
	}
	return slices.DeleteFunc(ports, func(p int32) bool { return p == 0 }) // a port by name is declared too
}
