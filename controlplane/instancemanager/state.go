package instancemanager

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// podState is what the Pod says about the instance manager.
type podState struct {
	state  v1beta2.InstanceManagerState
	ready  v1beta2.ConditionStatus
	reason string
}

// stateOf derives the state from the Pod (nil: there is none), the status so far and the processes
// in the Pod (nil while they are not listed). A Pod counts as running only once its processes were
// listed: until then nobody could tell an instance that is gone from one that was not yet reported.
// A Pod whose processes were listed once never counts as starting again; what cannot be observed at
// the moment is unknown.
func stateOf(pod *corev1.Pod, st *v1beta2.InstanceManagerStatus, processes *Processes) podState {
	const (
		no       = v1beta2.ConditionFalse
		failed   = v1beta2.InstanceManagerStateError
		starting = v1beta2.InstanceManagerStateStarting
		running  = v1beta2.InstanceManagerStateRunning
		unknown  = v1beta2.InstanceManagerStateUnknown
	)
	before := st.CurrentState
	switch {
	case pod == nil && (before == "" || before == v1beta2.InstanceManagerStateStopped):
		return podState{v1beta2.InstanceManagerStateStopped, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod == nil:
		return podState{failed, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod.DeletionTimestamp != nil:
		return podState{failed, no, v1beta2.InstanceManagerReasonPodDeleting}
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return podState{starting, no, v1beta2.InstanceManagerReasonPodStarting}
	case pod.Status.Phase != corev1.PodRunning:
		return podState{failed, no, v1beta2.InstanceManagerReasonPodFailed}
	case !mayRun(pod):
		return podState{starting, no, v1beta2.InstanceManagerReasonPodStarting}
	}
	p := podState{starting, no, v1beta2.InstanceManagerReasonPodStarting}
	ready := podReady(pod) && storageIP(pod, st) != ""
	if ready && (processes != nil || before == running) {
		p.state = running
	} else if nothing := processes != nil && podReady(pod) && !processes.busy(); !nothing &&
		(before == running || before == unknown) {
		p.state = unknown
	}
	if ready && p.state != starting {
		p.ready, p.reason = v1beta2.ConditionTrue, v1beta2.InstanceManagerReasonPodRunning
	}
	return p
}

// mayRun tells whether processes may run in the Pod, be it ready or not: it was started, and its
// container has not ended.
func mayRun(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return false
		}
	}
	return true
}

// podReady tells whether the Pod runs, has an address and all its containers are ready.
func podReady(pod *corev1.Pod) bool {
	if !mayRun(pod) || pod.Status.PodIP == "" || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if !c.Ready {
			return false
		}
	}
	return true
}

// ended tells whether the Pod will never run again and only waits to be removed.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// noRoom tells whether the node refused the Pod for lack of a resource. Such a Pod requests nothing
// any more and holds no process.
func noRoom(pod *corev1.Pod) bool {
	return ended(pod) && strings.HasPrefix(pod.Status.Reason, "OutOf")
}

// busy tells whether one of the processes runs or is about to.
func (p *Processes) busy() bool {
	for _, m := range []map[string]v1beta2.InstanceProcess{p.Engines, p.Replicas} {
		for _, process := range m {
			switch process.Status.State {
			case v1beta2.InstanceStateRunning, v1beta2.InstanceStateStarting, v1beta2.InstanceStateStopping:
				return true
			}
		}
	}
	return false
}
