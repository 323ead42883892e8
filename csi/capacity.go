package csi

import (
	"context"
	"math"
	"slices"
	"strconv"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest/resource"
)

// GetCapacity implements the controller service: how many bytes of volumes there is room for, and
// how large one volume may be, by the rules of the scheduler. A volume takes as many disks as it
// has replicas, on nodes of their own unless soft anti-affinity lets them share.
func (c *controller) GetCapacity(ctx context.Context, r *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	w, _, err := parse(r.GetParameters())
	if err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) > 0 {
		if _, err := useAll(r.GetVolumeCapabilities()); err != nil {
			return nil, err
		}
	}
	nodes, err := c.manager.Nodes(ctx)
	if err != nil {
		return nil, fromManager(err, codes.Internal, "listing nodes")
	}
	policy, soft, err := c.policy(ctx, &w)
	if err != nil {
		return nil, err
	}
	var rooms []int64
	for i := range nodes {
		if within(&w, &nodes[i], r.GetAccessibleTopology().GetSegments()) {
			if of := roomsOf(&nodes[i], &w, policy); soft {
				rooms = append(rooms, of...)
			} else if len(of) > 0 {
				rooms = append(rooms, slices.Max(of))
			}
		}
	}
	slices.Sort(rooms)
	slices.Reverse(rooms)
	var total, largest int64
	for _, room := range rooms {
		total = sum(total, room)
	}
	replicas := w.volume.NumberOfReplicas
	if len(rooms) >= replicas {
		largest = rooms[replicas-1]
	}
	available := max(total/int64(replicas), largest)
	if w.volume.Encrypted {
		largest = max(largest-lh.LUKSHeaderBytes, 0)
	}
	return &spec.GetCapacityResponse{AvailableCapacity: available, MaximumVolumeSize: wrapperspb.Int64(largest)}, nil
}

// policy reads what the scheduler judges by, and fills in what the class leaves to settings.
func (c *controller) policy(ctx context.Context, w *wish) (p schedule.Policy, soft bool, err error) {
	value := func(name string) string {
		if err != nil {
			return ""
		}
		var s *resource.Setting
		if s, err = c.manager.Setting(ctx, name); err != nil {
			return ""
		}
		return setting.Plain(setting.Definition{DataEngineSpecific: s.Definition.DataEngineSpecific}, s.Value)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(value(name), 10, 64) // the manager keeps numbers only
		return n
	}
	truthOf := func(name string) bool { return value(name) == "true" }
	p.OverProvisioningPercent = number(setting.StorageOverProvisioningPercentage)
	p.MinimalAvailablePercent = number(setting.StorageMinimalAvailablePercentage)
	p.AllowEmptyNodeSelector = truthOf(setting.AllowEmptyNodeSelectorVolume)
	p.AllowEmptyDiskSelector = truthOf(setting.AllowEmptyDiskSelectorVolume)
	if w.volume.NumberOfReplicas == 0 {
		w.volume.NumberOfReplicas = int(max(number(setting.DefaultReplicaCount), 1))
	}
	soft = w.volume.ReplicaSoftAntiAffinity == "enabled"
	if follows := w.volume.ReplicaSoftAntiAffinity; follows == "" || follows == "ignored" {
		soft = truthOf(setting.ReplicaSoftAntiAffinity)
	}
	return p, soft, fromManager(err, codes.Internal, "reading settings")
}

// within reports whether replicas on a node count for a topology segment. Where a wish lets them be
// anywhere, they count wherever the volume is used.
func within(w *wish, n *resource.Node, segment map[string]string) bool {
	matches := func(key, value string) bool { return segment[key] == "" || segment[key] == value }
	zone, region := matches(keyZone, n.Zone), matches(keyRegion, n.Region)
	switch {
	case w.capacity == capacityOfNode:
		return zone && region && matches(keyHost, n.Name)
	case w.capacity == capacityOfZone, w.strict, w.topologyMode == topologyZonal:
		return zone && region
	case w.topologyMode == topologyRegion:
		return region
	}
	return true
}

// roomsOf are the largest replicas that the disks of a node take.
func roomsOf(n *resource.Node, w *wish, p schedule.Policy) (rooms []int64) {
	if !n.AllowScheduling || n.EvictionRequested || !holds(n.Conditions, lh.NodeConditionReady) ||
		!holds(n.Conditions, lh.NodeConditionSchedulable) ||
		!schedule.TagsMatch(w.volume.NodeSelector, n.Tags, p.AllowEmptyNodeSelector) {
		return nil
	}
	for _, d := range n.Disks {
		if !d.AllowScheduling || d.EvictionRequested || !holds(d.Conditions, lh.DiskConditionSchedulable) ||
			!schedule.TagsMatch(w.volume.DiskSelector, d.Tags, p.AllowEmptyDiskSelector) {
			continue
		}
		disk := schedule.Disk{Maximum: d.StorageMaximum, Available: d.StorageAvailable, Reserved: d.StorageReserved,
			Scheduled: d.StorageScheduled}
		if room := disk.Room(p); room > 0 {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

func holds(conditions map[string]resource.Condition, which string) bool {
	return conditions[which].Status == "True"
}

// sum of sizes, which stays at the largest number there is.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
