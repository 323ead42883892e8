package node

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
)

func metaTime(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// verdict overrides the phase: set when the node rejected or ended the Pod.
type verdict struct {
	reason, message string
}

// phaseOf is the kubelet's rule for a Pod's phase.
func phaseOf(policy v1.RestartPolicy, recs []*record) v1.PodPhase {
	var waits, runs, stops, ok int
	for _, r := range recs {
		if r.init && r.state == terminated && r.ended.ExitCode != 0 && !r.restartable(policy) {
			return v1.PodFailed
		}
		if r.init {
			initDone := (r.state == terminated && r.ended.ExitCode == 0) || (r.sidecar() && r.state == running && r.started)
			if !initDone && !mainEverStarted(recs) {
				return v1.PodPending
			}
			continue
		}
		switch r.state {
		case waiting:
			waits++
		case running:
			runs++
		case terminated:
			stops++
			if r.ended.ExitCode == 0 {
				ok++
			}
		}
	}
	switch {
	case waits > 0:
		return v1.PodPending
	case runs > 0:
		return v1.PodRunning
	case finished(policy, recs) && ok == stops:
		return v1.PodSucceeded
	case finished(policy, recs):
		return v1.PodFailed
	}
	return v1.PodRunning // about to restart
}

func mainEverStarted(recs []*record) bool {
	for _, r := range recs {
		if !r.init && r.state != waiting {
			return true
		}
	}
	return false
}

// containerStatus renders one record.
func (r *record) status(policy v1.RestartPolicy, pod *v1.Pod, now time.Time, ending bool) v1.ContainerStatus {
	started := r.state == running && r.started
	s := v1.ContainerStatus{
		Name:         r.spec.Name,
		Image:        r.spec.Image,
		ImageID:      r.imageID,
		ContainerID:  r.id,
		RestartCount: r.restarts,
		Started:      &started,
		Ready:        r.state == running && r.started && r.ready,
	}
	if r.last != nil {
		s.LastTerminationState.Terminated = r.last
	}
	switch r.state {
	case waiting:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: r.reason, Message: r.message}
	case running:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metaTime(r.startedAt)}
	case terminated:
		if ending || !r.restartable(policy) || !now.Before(r.notBefore) {
			s.State.Terminated = r.ended
			s.Ready = r.init && r.ended.ExitCode == 0
			break
		}
		s.LastTerminationState.Terminated = r.ended
		w := &v1.ContainerStateWaiting{Reason: r.reason, Message: r.message}
		if r.reason == "" {
			w.Reason = "CrashLoopBackOff"
			w.Message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				r.pause, r.spec.Name, pod.Name, pod.Namespace, pod.UID)
		}
		s.State.Waiting = w
	}
	return s
}

// statusOf renders the status of a Pod as a kubelet would, given what was reported before.
func (a *Agent) statusOf(pod *v1.Pod, old *v1.PodStatus, recs []*record, v *verdict, ending bool,
	now time.Time) v1.PodStatus {
	policy := pod.Spec.RestartPolicy
	s := v1.PodStatus{
		ObservedGeneration: pod.Generation,
		HostIP:             a.cfg.Address,
		HostIPs:            []v1.HostIP{{IP: a.cfg.Address}},
		StartTime:          old.StartTime,
		QOSClass:           v1qos.GetPodQOS(pod),
		NominatedNodeName:  old.NominatedNodeName,
	}
	if s.StartTime == nil {
		t := metaTime(now)
		s.StartTime = &t
	}
	if v != nil && len(recs) == 0 {
		s.Phase = v1.PodFailed
	} else {
		s.PodIP = a.addressOf(pod)
		s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
		for _, r := range recs {
			cs := r.status(policy, pod, now, ending)
			if r.init {
				s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
			} else {
				s.ContainerStatuses = append(s.ContainerStatuses, cs)
			}
		}
		s.Phase = phaseOf(policy, recs)
	}
	if ending && nothingRuns(recs) {
		s.Phase = terminalPhase(s.Phase, recs)
	}
	if v != nil {
		s.Reason, s.Message = v.reason, v.message
		if nothingRuns(recs) {
			s.Phase = v1.PodFailed
		}
	}
	a.conditions(pod, old, &s, recs, now)
	return s
}

// terminalPhase is the phase of a Pod whose deletion has stopped everything.
func terminalPhase(phase v1.PodPhase, recs []*record) v1.PodPhase {
	if phase == v1.PodSucceeded || phase == v1.PodFailed {
		return phase
	}
	for _, r := range recs {
		if !r.init && (r.state != terminated || r.ended.ExitCode != 0) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}

func nothingRuns(recs []*record) bool {
	for _, r := range recs {
		if r.state == running {
			return false
		}
	}
	return true
}

// conditions fills in the kubelet's conditions by its own rules and leaves those of others alone.
func (a *Agent) conditions(pod *v1.Pod, old *v1.PodStatus, s *v1.PodStatus, recs []*record, now time.Time) {
	all := append(append([]v1.ContainerStatus{}, s.InitContainerStatuses...), s.ContainerStatuses...)
	sandbox := v1.ConditionFalse
	if len(recs) > 0 && !nothingRuns(recs) {
		sandbox = v1.ConditionTrue
	}
	own := []v1.PodCondition{
		{Type: v1.PodReadyToStartContainers, Status: sandbox, ObservedGeneration: pod.Generation},
		kubeletstatus.GeneratePodInitializedCondition(pod, old, all, s.Phase),
		kubeletstatus.GeneratePodReadyCondition(pod, old, old.Conditions, all, s.Phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, old, all, s.Phase),
		{Type: v1.PodScheduled, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation},
	}
	for i := range own {
		own[i].LastTransitionTime = metaTime(now)
		if _, before := podutil.GetPodCondition(old, own[i].Type); before != nil && before.Status == own[i].Status {
			own[i].LastTransitionTime = before.LastTransitionTime
		}
	}
	s.Conditions = own
}
