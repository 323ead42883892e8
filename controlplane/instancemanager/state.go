package instancemanager

import (
	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// podState is what the Pod says about the instance manager.
type podState struct {
	state  v1beta2.InstanceManagerState
	ready  v1beta2.ConditionStatus
	reason string
}

// stateOf derives the state from the Pod (nil: there is none), the state so far and whether the
// processes in the Pod are being followed. A Pod counts as running only once its processes are
// known: until then nobody could tell an instance that is gone from one that was not yet reported.
func stateOf(pod *corev1.Pod, before v1beta2.InstanceManagerState, followed bool) podState {
	no := v1beta2.ConditionFalse
	switch {
	case pod == nil && (before == "" || before == v1beta2.InstanceManagerStateStopped):
		return podState{v1beta2.InstanceManagerStateStopped, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod == nil:
		return podState{v1beta2.InstanceManagerStateError, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod.DeletionTimestamp != nil:
		return podState{v1beta2.InstanceManagerStateError, no, v1beta2.InstanceManagerReasonPodDeleting}
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return podState{v1beta2.InstanceManagerStateStarting, no, v1beta2.InstanceManagerReasonPodStarting}
	case pod.Status.Phase != corev1.PodRunning:
		return podState{v1beta2.InstanceManagerStateError, no, v1beta2.InstanceManagerReasonPodFailed}
	case !podReady(pod), StorageIP(pod) == "":
		return podState{v1beta2.InstanceManagerStateStarting, no, v1beta2.InstanceManagerReasonPodStarting}
	case !followed && before != v1beta2.InstanceManagerStateRunning:
		return podState{v1beta2.InstanceManagerStateStarting, no, v1beta2.InstanceManagerReasonPodStarting}
	}
	return podState{v1beta2.InstanceManagerStateRunning, v1beta2.ConditionTrue, v1beta2.InstanceManagerReasonPodRunning}
}

// podReady tells whether the Pod runs, has an address and all its containers are ready.
func podReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
		return false
	}
	if len(pod.Status.ContainerStatuses) == 0 {
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

// busy tells whether the instance manager holds a process that runs or is about to.
func busy(status v1beta2.InstanceManagerStatus) bool {
	for _, m := range []map[string]v1beta2.InstanceProcess{status.InstanceEngines, status.InstanceReplicas,
		status.Instances} {
		for _, p := range m {
			switch p.Status.State {
			case v1beta2.InstanceStateRunning, v1beta2.InstanceStateStarting, v1beta2.InstanceStateStopping:
				return true
			}
		}
	}
	return false
}
