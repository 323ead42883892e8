package node

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// terminal says whether a Pod has reached its last phase.
func (a *Agent) terminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// admit decides whether the node has room for a Pod, as a kubelet does for Pods that reach it, with
// or without the scheduler. Admitted requests count until release.
func (a *Agent) admit(pod *v1.Pod) *verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		capacity := a.cfg.Capacity[name]
		asked := amount(name, want)
		var used int64
		for _, other := range a.admitted {
			used += amount(name, other)
		}
		total := amount(name, v1.ResourceList{name: capacity})
		if asked > 0 && used+asked > total {
			return tooMuch(name, asked, used, total)
		}
	}
	pods := a.cfg.Capacity[v1.ResourcePods]
	if used := int64(len(a.admitted)); used+1 > pods.Value() {
		return tooMuch(v1.ResourcePods, 1, used, pods.Value())
	}
	a.admitted[pod.UID] = want
	return nil
}

func (a *Agent) release(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.admitted, pod.UID)
	delete(a.address, pod.UID)
}

// amount is a quantity in the unit that the kubelet's message uses: CPU in thousandths.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func tooMuch(name v1.ResourceName, asked, used, total int64) *verdict {
	return &verdict{
		reason: "OutOf" + string(name),
		message: fmt.Sprintf("Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, asked, used, total),
	}
}
