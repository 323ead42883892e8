package csi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/rest/resource"
)

// tokenPrefix begins what a caller is given to go on with a list: the name of the last entry that
// it has had follows, so that entries that come and go meanwhile make no others be left out.
const tokenPrefix = "after/"

// page returns the entries behind a token, at most so many (0: all), and the next token. The
// entries are in the order of their names, which are unique.
func page[T any](all []T, name func(T) string, token string, most int32) (part []T, next string, err error) {
	if most < 0 {
		return nil, "", refuse("%d is no number of entries", most)
	}
	if token != "" {
		last, ok := strings.CutPrefix(token, tokenPrefix)
		if !ok {
			return nil, "", status.Errorf(codes.Aborted, "%q is no token of this driver; begin the list again", token)
		}
		i, found := slices.BinarySearchFunc(all, last, func(e T, last string) int { return strings.Compare(name(e), last) })
		if found {
			i++
		}
		all = all[i:]
	}
	if most > 0 && len(all) > int(most) {
		return all[:most], tokenPrefix + name(all[most-1]), nil
	}
	return all, "", nil
}

func (c *controller) volumes(ctx context.Context, token string, most int32) ([]resource.Volume, string, error) {
	all, err := c.manager.Volumes(ctx)
	if err != nil {
		return nil, "", fromManager(err, codes.Internal, "listing volumes")
	}
	slices.SortFunc(all, func(a, b resource.Volume) int { return strings.Compare(a.Name, b.Name) })
	return page(all, func(v resource.Volume) string { return v.Name }, token, most)
}

// ListVolumes implements the controller service.
func (c *controller) ListVolumes(ctx context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	part, next, err := c.volumes(ctx, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ListVolumesResponse{NextToken: next}
	for i := range part {
		out.Entries = append(out.Entries, &spec.ListVolumesResponse_Entry{Volume: described(&part[i]),
			Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: publishedOn(&part[i]),
				VolumeCondition: volumeCondition(&part[i])}})
	}
	return out, nil
}

// ControllerGetVolume implements the controller service.
func (c *controller) ControllerGetVolume(ctx context.Context, r *spec.ControllerGetVolumeRequest) (
	*spec.ControllerGetVolumeResponse, error) {
	v, err := c.volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &spec.ControllerGetVolumeResponse{Volume: described(v),
		Status: &spec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: publishedOn(v),
			VolumeCondition: volumeCondition(v)}}, nil
}

// described is a volume in the words of CSI.
func described(v *resource.Volume) *spec.Volume {
	return &spec.Volume{VolumeId: v.Name, CapacityBytes: size(v)}
}

// publishedOn are the nodes on which a volume is offered to Pods.
func publishedOn(v *resource.Volume) (nodes []string) {
	for _, t := range v.VolumeAttachment.Attachments {
		if t.AttachmentType == attacherCSI && t.Satisfied {
			nodes = append(nodes, t.NodeID)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// volumeCondition says what is wrong with a volume.
func volumeCondition(v *resource.Volume) *spec.VolumeCondition {
	switch v.Robustness {
	case faulted:
		return &spec.VolumeCondition{Abnormal: true,
			Message: "faulted: no replica can serve the volume; its conditions say more"}
	case degraded:
		sync := 0
		for _, r := range v.Replicas {
			if r.Mode == "RW" {
				sync++
			}
		}
		return &spec.VolumeCondition{Abnormal: true,
			Message: fmt.Sprintf("degraded: %d of %d replicas are in sync", sync, v.NumberOfReplicas)}
	}
	return &spec.VolumeCondition{Message: "nothing is wrong"}
}
