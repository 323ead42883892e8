package node

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"ankole.storage/standalone/process"
)

// state of a container.
type state int

const (
	waiting state = iota // never started in this run of the agent, or not startable yet
	running
	terminated
)

// record is what is known of one container. It belongs to the Pod's worker.
type record struct {
	spec  *v1.Container
	init  bool
	state state

	// reason and message of a waiting container.
	reason, message string
	// ended is how a terminated container ended; last is the run before the current one.
	ended *v1.ContainerStateTerminated
	last  *v1.ContainerStateTerminated

	id        string
	imageID   string
	startedAt time.Time
	restarts  int32
	started   bool // startup probe passed
	ready     bool

	// notBefore is when the next start is allowed; pause is the back-off that led to it.
	notBefore time.Time
	pause     time.Duration

	proc *process.Process
	// killing is set from the decision to end the container until it has ended; killAt is when SIGKILL
	// follows SIGTERM, hard that it was sent.
	killing bool
	killAt  time.Time
	hard    bool
	probes  *probeSet
	log     *containerLog
}

// sidecar is an init container that keeps running beside the main ones.
func (r *record) sidecar() bool {
	return r.init && r.spec.RestartPolicy != nil && *r.spec.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// restartable says whether a container that ended with this code runs again under the policy.
func (r *record) restartable(policy v1.RestartPolicy) bool {
	if r.sidecar() {
		return true
	}
	if r.spec.RestartPolicy != nil {
		policy = v1.RestartPolicy(*r.spec.RestartPolicy)
	}
	failed := r.ended != nil && r.ended.ExitCode != 0
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return failed
	}
	return !r.init || failed // an init container that succeeded is done under any policy
}

// newRecords makes the records of a Pod, init containers first. What an earlier agent reported is
// taken over: a container it left running cannot have outlived it, so it counts as ended, as after
// a reboot.
func newRecords(pod *v1.Pod, now time.Time) []*record {
	var out []*record
	add := func(list []v1.Container, old []v1.ContainerStatus, init bool) {
		for i := range list {
			r := &record{spec: &list[i], init: init, reason: "PodInitializing"}
			if len(pod.Spec.InitContainers) == 0 {
				r.reason = "ContainerCreating"
			}
			for j := range old {
				if old[j].Name == r.spec.Name {
					r.restore(&old[j], now)
				}
			}
			out = append(out, r)
		}
	}
	add(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true)
	add(pod.Spec.Containers, pod.Status.ContainerStatuses, false)
	if !finished(pod.Spec.RestartPolicy, out) {
		again(out)
	}
	return out
}

// again has the init containers run once more, as on every new start of a Pod's sandbox.
func again(recs []*record) {
	for _, r := range recs {
		if r.init && !r.sidecar() && r.state == terminated {
			r.last, r.ended = r.ended, nil
			r.state, r.reason = waiting, "PodInitializing"
		}
	}
}

// exitUnknown and reasonUnknown are what the usual runtimes report of a container they lost with a
// reboot.
const (
	exitUnknown   = 255
	reasonUnknown = "Unknown"
)

func (r *record) restore(old *v1.ContainerStatus, now time.Time) {
	r.restarts = old.RestartCount
	if old.ContainerID == "" {
		return
	}
	r.id, r.imageID = old.ContainerID, old.ImageID
	r.last = old.LastTerminationState.Terminated
	r.state = terminated
	switch {
	case old.State.Running != nil:
		r.ended = &v1.ContainerStateTerminated{
			ExitCode:    exitUnknown,
			Reason:      reasonUnknown,
			Message:     "the node was stopped while this container ran",
			StartedAt:   old.State.Running.StartedAt,
			FinishedAt:  metaTime(now),
			ContainerID: old.ContainerID,
		}
	case old.State.Terminated != nil:
		r.ended = old.State.Terminated
	case old.LastTerminationState.Terminated != nil: // in back-off
		r.ended, r.last = old.LastTerminationState.Terminated, nil
	default:
		r.state = waiting
	}
}
