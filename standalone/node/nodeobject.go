package node

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"

	coordinationv1 "k8s.io/api/coordination/v1"

	"ankole.storage/controlplane/object/conflict"
)

const (
	// maxPods per node, the kubelet's default.
	maxPods = 110
	// readyCheck is how often the agent looks whether somebody declared its node not ready.
	readyCheck = time.Second
	// fallbackMemory is assumed where the machine's cannot be read.
	fallbackMemory = 4 << 30
)

// MachineCapacity is what this machine has. Every node offers all of it: process nodes share the
// machine, and requests only bound what Pods of one node ask for together.
func MachineCapacity() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(machineMemory(), resource.BinarySI),
		v1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(100<<30, resource.BinarySI),
	}
}

func machineMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fallbackMemory
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return fallbackMemory
}

// register makes the Node object or takes over the one there is.
func (a *Agent) register(ctx context.Context) error {
	nodes := a.cfg.Client.CoreV1().Nodes()
	labels := map[string]string{
		v1.LabelHostname: a.cfg.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: runtime.GOARCH,
	}
	_, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.Name, Labels: labels}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	boot := string(uuid.NewUUID())
	return conflict.Retry(func() error {
		n, err := nodes.Get(ctx, a.cfg.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		a.fillStatus(&n.Status, boot)
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

func (a *Agent) fillStatus(s *v1.NodeStatus, boot string) {
	s.Capacity, s.Allocatable = a.cfg.Capacity, a.cfg.Capacity
	s.Addresses = []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: a.cfg.Address},
		{Type: v1.NodeHostName, Address: a.cfg.Name},
	}
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(a.cfg.Port)
	s.NodeInfo = v1.NodeSystemInfo{
		KubeletVersion:          KubeletVersion,
		ContainerRuntimeVersion: "ankole-process://1",
		KernelVersion:           readLine("/proc/sys/kernel/osrelease"),
		OSImage:                 "process node of ankole standalone",
		OperatingSystem:         "linux",
		Architecture:            runtime.GOARCH,
		MachineID:               a.cfg.Name,
		SystemUUID:              a.cfg.Name,
		BootID:                  boot,
	}
	a.fillConditions(s)
}

// fillConditions sets the conditions of a healthy node, keeping the times of those that did not
// change.
func (a *Agent) fillConditions(s *v1.NodeStatus) {
	now := metaTime(time.Now())
	for _, want := range []v1.NodeCondition{
		{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		i, have := util.GetNodeCondition(s, want.Type)
		switch {
		case have == nil:
			s.Conditions = append(s.Conditions, want)
		default:
			if have.Status == want.Status {
				want.LastTransitionTime = have.LastTransitionTime
			}
			s.Conditions[i] = want
		}
	}
}

// keepReady answers the node controller when it has declared the node not ready: the lease alone
// does not bring a node back.
func (a *Agent) keepReady(ctx context.Context) {
	nodes := a.cfg.Client.CoreV1().Nodes()
	t := time.NewTicker(max(a.cfg.LeaseRenew, readyCheck))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		n, err := nodes.Get(ctx, a.cfg.Name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		if _, c := util.GetNodeCondition(&n.Status, v1.NodeReady); c != nil && c.Status == v1.ConditionTrue {
			continue
		}
		a.fillConditions(&n.Status)
		if _, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("cannot report the node ready", "error", err)
		}
	}
}

// lease renews the node's heartbeat.
func (a *Agent) lease(ctx context.Context) {
	owner := func(l *coordinationv1.Lease) error {
		n, err := a.cfg.Client.CoreV1().Nodes().Get(ctx, a.cfg.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
		return nil
	}
	seconds := int32(a.cfg.LeaseLength / time.Second)
	lease.NewController(clock.RealClock{}, a.cfg.Client, a.cfg.Name, seconds, nil, a.cfg.LeaseRenew,
		a.cfg.Name, v1.NamespaceNodeLease, owner).Run(ctx)
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
