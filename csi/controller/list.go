package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// tokenPrefix begins what a caller is given to go on with a list: the name of the last entry that
// it has had follows, so that entries that come and go meanwhile make no others be left out.
const tokenPrefix = "after/"

// page returns the entries behind a token, at most so many (0: all), and the next token. The
// entries are in the order of their names, which are unique.
func page[T any](all []T, name func(T) string, token string, most int32) (part []T, next string, err error) {
	if most < 0 {
		return nil, "", request.Refuse("%d is no number of entries", most)
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

func (c *Server) volumes(ctx context.Context, token string, most int32) ([]resource.Volume, string, error) {
	all, err := c.manager.Volumes(ctx)
	if err != nil {
		return nil, "", request.FromManager(err, codes.Internal, "listing volumes")
	}
	slices.SortFunc(all, func(a, b resource.Volume) int { return strings.Compare(a.Name, b.Name) })
	return page(all, func(v resource.Volume) string { return v.Name }, token, most)
}

// ListVolumes implements the controller service.
func (c *Server) ListVolumes(ctx context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
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
func (c *Server) ControllerGetVolume(ctx context.Context, r *spec.ControllerGetVolumeRequest) (
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

// ListSnapshots implements the controller service: one by its id, those of one volume, or all that
// users have made, and all complete backups.
func (c *Server) ListSnapshots(ctx context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse,
	error) {
	var all []*spec.Snapshot
	switch {
	case r.GetSnapshotId() != "":
		s, err := c.snapshot(ctx, r.GetSnapshotId())
		if status.Code(err) == codes.NotFound {
			return &spec.ListSnapshotsResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		if from := r.GetSourceVolumeId(); from == "" || from == s.SourceVolumeId {
			all = append(all, s)
		}
	case r.GetSourceVolumeId() != "":
		of, err := c.snapshotsOf(ctx, r.GetSourceVolumeId())
		if err != nil {
			return nil, err
		}
		all = of
	default:
		of, err := c.everySnapshot(ctx)
		if err != nil {
			return nil, err
		}
		all = of
	}
	id := (*spec.Snapshot).GetSnapshotId
	slices.SortFunc(all, func(a, b *spec.Snapshot) int { return strings.Compare(id(a), id(b)) })
	part, next, err := page(all, id, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ListSnapshotsResponse{NextToken: next}
	for _, s := range part {
		out.Entries = append(out.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: s})
	}
	return out, nil
}

// everySnapshot are the snapshots of all volumes, and the backups of those that are there and of
// those that were.
func (c *Server) everySnapshot(ctx context.Context) (out []*spec.Snapshot, err error) {
	volumes, err := c.manager.Volumes(ctx)
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "listing volumes")
	}
	for i := range volumes {
		of, err := c.inReplicas(ctx, volumes[i].Name)
		if err != nil {
			return nil, err
		}
		out = append(out, of...)
	}
	backups, err := c.inBackups(ctx, "")
	return append(out, backups...), err
}

// snapshotsOf are the snapshots of a volume and its backups.
func (c *Server) snapshotsOf(ctx context.Context, volume string) ([]*spec.Snapshot, error) {
	if naming.CheckName(volume) != nil {
		return nil, nil
	}
	out, err := c.inReplicas(ctx, volume)
	if err != nil {
		return nil, err
	}
	backups, err := c.inBackups(ctx, volume)
	return append(out, backups...), err
}

// inReplicas are the snapshots of a volume that users have made and that are taken.
func (c *Server) inReplicas(ctx context.Context, volume string) (out []*spec.Snapshot, err error) {
	all, err := c.manager.SnapshotObjects(ctx, volume)
	if client.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "listing the snapshots of volume "+volume)
	}
	for i := range all {
		if s := &all[i]; s.UserCreated && !s.MarkRemoved && s.CreationTime != "" {
			out = append(out, taken(s))
		}
	}
	return out, nil
}

// inBackups are the complete backups of a volume, or of all.
func (c *Server) inBackups(ctx context.Context, volume string) (out []*spec.Snapshot, err error) {
	backups, err := c.manager.AllBackups(ctx, volume)
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, strings.TrimSpace("listing backups "+volume))
	}
	for i := range backups {
		if b := &backups[i]; b.State == string(lh.BackupStateCompleted) {
			out = append(out, backedUp(b, nil))
		}
	}
	return out, nil
}
