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

// stateOf derives the state from the Pod, the status so far and the processes in the Pod. A Pod
// counts as running only once its processes were listed: until then nobody could tell an instance
// that is gone from one that was not yet reported. A Pod whose processes were listed once never
// counts as starting again; what cannot be observed at the moment is unknown. One that is being
// deleted serves until its container ends, or its stream.
func stateOf(s seen, st *v1beta2.InstanceManagerStatus) podState {
	const (
		no       = v1beta2.ConditionFalse
		failed   = v1beta2.InstanceManagerStateError
		starting = v1beta2.InstanceManagerStateStarting
		running  = v1beta2.InstanceManagerStateRunning
		unknown  = v1beta2.InstanceManagerStateUnknown
	)
	pod, processes, before := s.Pod, s.Processes, st.CurrentState
	switch {
	case pod == nil && (before == "" || before == v1beta2.InstanceManagerStateStopped):
		return podState{v1beta2.InstanceManagerStateStopped, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod == nil:
		return podState{failed, no, v1beta2.InstanceManagerReasonPodNotFound}
	case pod.DeletionTimestamp != nil && (!s.mayRun() || processes == nil && before != running && before != unknown):
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
	} else if nothing := processes != nil && podReady(pod) && !processes.Busy(); !nothing &&
		(before == running || before == unknown) {
		p.state = unknown
	}
	switch {
	case pod.DeletionTimestamp != nil:
		p.reason = v1beta2.InstanceManagerReasonPodDeleting
	case ready && p.state != starting:
		p.ready, p.reason = v1beta2.ConditionTrue, v1beta2.InstanceManagerReasonPodRunning
	}
	return p
}

// leaving tells whether the Pod is being deleted and its container has not ended: what runs in it
// goes on until the kubelet comes to that, and nothing else is started.
func leaving(pod *corev1.Pod) bool { return pod != nil && pod.DeletionTimestamp != nil && mayRun(pod) }

// mayRun tells whether processes may run in the Pod. The stream from one that is being deleted ends
// when they have.
func (s seen) mayRun() bool {
	return s.Pod != nil && mayRun(s.Pod) &&
		!(leaving(s.Pod) && s.Processes != nil && !s.UnconfirmedSince.IsZero())
}

// mayRun tells whether the Pod was started and its container has not ended, be it ready or not.
func mayRun(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
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
