package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// allowScheduling is the condition that stands for the user's switch.
const allowScheduling = "allowScheduling"

// gatherNodes reports nodes and their disks.
func (g *gathering) gatherNodes() {
	machines := map[string]*corev1.Node{}
	for i := range g.machines.Items {
		machines[g.machines.Items[i].Name] = &g.machines.Items[i]
	}
	for i := range g.nodes.Items {
		n := &g.nodes.Items[i]
		s := g.Figures
		conditions(s, "longhorn_node_status", n.Status.Conditions, n.Name)
		s.add("longhorn_node_status", one(n.Spec.AllowScheduling), n.Name, allowScheduling, "")
		if m := machines[n.Name]; m != nil {
			s.add("longhorn_node_cpu_capacity_millicpu", float64(m.Status.Allocatable.Cpu().MilliValue()), n.Name)
			s.add("longhorn_node_memory_capacity_bytes", float64(m.Status.Allocatable.Memory().Value()), n.Name)
		}
		gatherDisks(s, n)
	}
}

func conditions(s *Figures, metric string, all []lh.Condition, labels ...string) {
	for _, c := range all {
		s.add(metric, one(c.Status == lh.ConditionTrue), with(labels, strings.ToLower(c.Type), c.Reason)...)
	}
}

// gatherDisks reports the disks that a node has, and their sums. A disk that nobody has looked at
// yet has no size.
func gatherDisks(s *Figures, n *lh.Node) {
	var capacity, used, reserved, scheduled int64
	for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		spec, ok := n.Spec.Disks[name]
		if !ok {
			continue // it is being removed
		}
		d := n.Status.DiskStatus[name]
		inUse := d.StorageMaximum - d.StorageAvailable
		s.add("longhorn_disk_capacity_bytes", float64(d.StorageMaximum), n.Name, name)
		s.add("longhorn_disk_usage_bytes", float64(inUse), n.Name, name)
		s.add("longhorn_disk_reservation_bytes", float64(spec.StorageReserved), n.Name, name)
		conditions(s, "longhorn_disk_status", d.Conditions, n.Name, name)
		if passed, known := healthOf(d.HealthData); known {
			s.add("longhorn_disk_health", one(passed), n.Name, name)
		}
		gatherAttributes(s, d.HealthData, n.Name, name)
		capacity, used = capacity+d.StorageMaximum, used+inUse
		reserved, scheduled = reserved+spec.StorageReserved, scheduled+d.StorageScheduled
	}
	s.add("longhorn_node_storage_capacity_bytes", float64(capacity), n.Name)
	s.add("longhorn_node_storage_usage_bytes", float64(used), n.Name)
	s.add("longhorn_node_storage_reservation_bytes", float64(reserved), n.Name)
	s.add("longhorn_node_storage_scheduled_bytes", float64(scheduled), n.Name)
}

// healthOf is the verdict on the devices below a disk: all that say something have passed. known is
// false if none says anything.
func healthOf(devices map[string]lh.DiskHealth) (passed, known bool) {
	passed = true
	for _, d := range devices {
		if d.HealthStatus == lh.HealthStatusUnknown || d.HealthStatus == "" {
			continue
		}
		known = true
		passed = passed && d.HealthStatus != lh.HealthStatusFailed
	}
	return passed, known
}

// gatherAttributes reports what the devices below a disk count: of several the largest value.
func gatherAttributes(s *Figures, devices map[string]lh.DiskHealth, labels ...string) {
	type attribute struct {
		id   int
		name string
	}
	most := map[attribute]int64{}
	for _, d := range devices {
		for _, a := range d.Attributes {
			k := attribute{a.ID, a.Name}
			if raw, ok := most[k]; !ok || a.RawValue > raw {
				most[k] = a.RawValue
			}
		}
	}
	for a, raw := range most {
		id := ""
		if a.id != 0 {
			id = strconv.Itoa(a.id)
		}
		s.add("longhorn_disk_health_attribute_raw", float64(raw), with(labels, a.name, id)...)
	}
}

// gatherPods reports the conditions of instance managers and what they request, and notes the Pods
// whose use is asked for.
func (g *gathering) gatherPods() {
	pods := map[string]*corev1.Pod{}
	for i := range g.pods.Items {
		p := &g.pods.Items[i]
		pods[p.Name] = p
		if c := p.Labels[naming.LabelComponent]; c == naming.ComponentManager || c == naming.ComponentController {
			g.Pods = append(g.Pods, Pod{Name: p.Name, Node: p.Spec.NodeName})
		}
	}
	for i := range g.managers.Items {
		im := &g.managers.Items[i]
		if !g.known[im.Spec.NodeID] {
			continue // of a node that is gone, with the Pod
		}
		p := Pod{Name: im.Name, Node: im.Spec.NodeID, Type: string(im.Spec.Type), Proxy: g.proxies[im.Name]}
		if p.Type == "" {
			p.Type = string(lh.InstanceManagerTypeAllInOne)
		}
		conditions(g.Figures, "ankole_instance_manager_status", im.Status.Conditions, im.Spec.NodeID, p.Name, p.Type)
		pod := pods[im.Name]
		if pod == nil {
			continue
		}
		g.Pods = append(g.Pods, p)
		var cpu, memory int64
		for _, c := range pod.Spec.Containers {
			cpu += c.Resources.Requests.Cpu().MilliValue()
			memory += c.Resources.Requests.Memory().Value()
		}
		g.add("longhorn_instance_manager_cpu_requests_millicpu", float64(cpu), im.Spec.NodeID, p.Name, p.Type)
		g.add("longhorn_instance_manager_memory_requests_bytes", float64(memory), im.Spec.NodeID, p.Name, p.Type)
	}
}
