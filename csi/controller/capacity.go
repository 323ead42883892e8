package controller

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
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// GetCapacity implements the controller service: how many bytes of volumes there is room for, and
// how large one volume may be, by the rules of the scheduler. A volume takes as many disks as it
// has replicas, on nodes of their own unless soft anti-affinity lets them share.
func (c *Server) GetCapacity(ctx context.Context, r *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	w, _, err := request.ParseClass(r.GetParameters())
	if err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) > 0 {
		if _, err := request.UsageOfAll(r.GetVolumeCapabilities()); err != nil {
			return nil, err
		}
	}
	nodes, err := c.manager.Nodes(ctx)
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "listing nodes")
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
	replicas := w.Volume.NumberOfReplicas
	if len(rooms) >= replicas {
		largest = rooms[replicas-1]
	}
	available := max(total/int64(replicas), largest)
	if w.Volume.Encrypted {
		largest = max(largest-lh.LUKSHeaderBytes, 0)
	}
	return &spec.GetCapacityResponse{AvailableCapacity: available, MaximumVolumeSize: wrapperspb.Int64(largest)}, nil
}

// policy reads what the scheduler judges by, and fills in what the class leaves to settings.
func (c *Server) policy(ctx context.Context, w *request.Wish) (p schedule.Policy, soft bool, err error) {
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
	if w.Volume.NumberOfReplicas == 0 {
		w.Volume.NumberOfReplicas = int(max(number(setting.DefaultReplicaCount), 1))
	}
	soft = w.Volume.ReplicaSoftAntiAffinity == "enabled"
	if follows := w.Volume.ReplicaSoftAntiAffinity; follows == "" || follows == "ignored" {
		soft = truthOf(setting.ReplicaSoftAntiAffinity)
	}
	return p, soft, request.FromManager(err, codes.Internal, "reading settings")
}

// within reports whether replicas on a node count for a topology segment. Where a wish lets them be
// anywhere, they count wherever the volume is used.
func within(w *request.Wish, n *resource.Node, segment map[string]string) bool {
	matches := func(key, value string) bool { return segment[key] == "" || segment[key] == value }
	zone, region := matches(request.LabelZone, n.Zone), matches(request.LabelRegion, n.Region)
	switch {
	case w.Capacity == request.CapacityOfNode:
		return zone && region && matches(request.LabelHost, n.Name)
	case w.Capacity == request.CapacityOfZone, w.Strict, w.TopologyMode == request.TopologyZonal:
		return zone && region
	case w.TopologyMode == request.TopologyRegion:
		return region
	}
	return true
}

// roomsOf are the largest replicas that the disks of a node take.
func roomsOf(n *resource.Node, w *request.Wish, p schedule.Policy) (rooms []int64) {
	if !n.AllowScheduling || n.EvictionRequested || !holds(n.Conditions, lh.NodeConditionReady) ||
		!holds(n.Conditions, lh.NodeConditionSchedulable) ||
		!schedule.TagsMatch(w.Volume.NodeSelector, n.Tags, p.AllowEmptyNodeSelector) {
		return nil
	}
	for _, d := range n.Disks {
		if !d.AllowScheduling || d.EvictionRequested || !holds(d.Conditions, lh.DiskConditionSchedulable) ||
			!schedule.TagsMatch(w.Volume.DiskSelector, d.Tags, p.AllowEmptyDiskSelector) {
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
