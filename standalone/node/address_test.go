package node

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestPodsOfOnePortHaveAddressesOfTheirOwn: Pods share the node's address until one listens where
// another one does already; what has ended, or was refused, is in nobody's way.
func TestPodsOfOnePortHaveAddressesOfTheirOwn(t *testing.T) {
	a := testAgent(t)
	a.cfg.Networks = []PodNetwork{{Name: "ns/net", Place: Place{"127.9.8.1", []string{"127.9.8.4", "127.9.8.7"}}}}
	pod := func(name string, port int32) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
			TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}}}}}}
		p.UID, p.Name = types.UID(name), name
		p.Annotations = map[string]string{annotationNetworks: `[{"namespace":"ns","name":"net","interface":"lhnet1"}]`}
		return p
	}
	begin := func(p *v1.Pod) string {
		a.workers[p.UID] = &worker{pod: p}
		a.admitted[p.UID] = v1.ResourceList{}
		a.takeAddress(p)
		return a.addressOf(p)
	}
	for _, tt := range []struct {
		pod  *v1.Pod
		want string
	}{
		{pod("first", 8500), "127.9.9.1"}, {pod("other port", 9500), "127.9.9.1"}, {pod("second", 8500), "127.9.9.4"},
		{pod("third", 8500), "127.9.9.7"},
	} {
		if got := begin(tt.pod); got != tt.want {
			t.Errorf("%s has address %s, want %s", tt.pod.Name, got, tt.want)
		}
	}
	second := a.workers["second"].pod
	if s := a.statusOf(second, &v1.PodStatus{}, nil, nil, false, time.Now()); s.PodIP !=
		"127.9.9.4" || s.HostIP != "127.9.9.1" {
		t.Errorf("Pod IP %s, host IP %s", s.PodIP, s.HostIP)
	}
	if got, err := a.networksOf(second); err != nil || !strings.Contains(got, "127.9.9.4") ||
		!strings.Contains(got, "127.9.8.4") {
		t.Errorf("networks %s, %v", got, err)
	}
	ip := v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}
	if got, err := a.fieldValue(second, &ip); err != nil || got != "127.9.9.4" {
		t.Errorf("environment: Pod IP %s, %v", got, err)
	}
	a.workers["first"].pod.Status.Phase = v1.PodFailed
	a.release(a.workers["third"].pod)
	delete(a.workers, "third")
	for _, tt := range []struct {
		pod  *v1.Pod
		want string
	}{{pod("after the first", 8500), "127.9.9.1"}, {pod("after the third", 8500), "127.9.9.7"}} {
		if got := begin(tt.pod); got != tt.want {
			t.Errorf("%s has address %s, want %s", tt.pod.Name, got, tt.want)
		}
	}
	onHost := pod("on the host's network", 8500)
	onHost.Spec.HostNetwork = true
	if got := begin(onHost); got != "127.9.9.1" {
		t.Errorf("a Pod on the host's network has address %s", got)
	}
}
