package instancemanager

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// CPURequest returns the CPU request in thousandths of a CPU: the node's own value if not 0, else
// the percentage of what the Kubernetes node can allocate. 0 means no request.
func CPURequest(nodeMillis int, percent float64, allocatableMillis int64) int64 {
	if nodeMillis != 0 {
		return int64(nodeMillis)
	}
	return int64(math.Round(float64(allocatableMillis) * percent / 100))
}

// cpuRequest is what the Pod of an instance manager should request; docs/guide/cpu.md has the
// rules.
type cpuRequest struct {
	millis int64
	// setting is the one that rules it.
	setting string
}

// cpu returns the request for an instance manager of this type.
func (s seen) cpu(kind v1beta2.InstanceManagerType) cpuRequest {
	own, percent, name := 0, s.Settings.CPUPercent, setting.GuaranteedInstanceManagerCPU
	if s.Node != nil {
		own = s.Node.Spec.InstanceManagerCPURequest
	}
	if isLegacy(kind) {
		own, percent, name = legacyCPU(kind, s.Node, s.Settings)
	}
	var allocatable int64
	if s.KubeNode != nil {
		allocatable = s.KubeNode.Status.Allocatable.Cpu().MilliValue()
	}
	return cpuRequest{CPURequest(own, percent, allocatable), name}
}

// notSynced describes a setting that the Pod was made without.
func notSynced(name string, pod *corev1.Pod, cpu cpuRequest) string {
	if name != cpu.setting {
		return name
	}
	return fmt.Sprintf("%s (CPU request %dm, will be %dm)", name, cpuOf(pod), cpu.millis)
}

func cpuOf(pod *corev1.Pod) int64 {
	if len(pod.Spec.Containers) == 0 {
		return 0
	}
	return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
}
