package controller

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// A VolumeSnapshot of a class of type bi is a backing image with the name of the snapshot. Volumes
// that are made of it lie on the image.

// createImage has the content of a volume exported to a backing image, unless that is ordered. It
// returns when a snapshot of the volume is being read, or the image is ready: what the volume is
// given afterwards is not in it.
func (c *Server) createImage(ctx context.Context, name, volume string, want client.BackingImageSpec) (
	*spec.CreateSnapshotResponse, error) {
	want.Name, want.Parameters[lh.BackingImageParameterVolumeName] = name, volume
	b, err := c.manager.BackingImage(ctx, name)
	switch {
	case client.IsNotFound(err):
		if err := c.orderImage(ctx, want); err != nil {
			return nil, err
		}
	case err != nil: // whether a former call has ordered it is not known
		return nil, request.FromManager(err, codes.Unavailable, "reading backing image "+name)
	case b.DeletionTimestamp != "":
		return nil, status.Errorf(codes.Aborted, "backing image %s is being deleted; retry when it is gone", name)
	case otherImage(want, b) != "":
		return nil, status.Errorf(codes.AlreadyExists, "backing image %s exists with another %s", name, otherImage(want, b))
	}
	request.Step("image-ordered")
	if b, err = c.awaitExport(ctx, name); err != nil {
		return nil, err
	}
	s, err := c.imaged(ctx, b)
	if err != nil {
		return nil, request.Unfinished(err)
	}
	return &spec.CreateSnapshotResponse{Snapshot: s}, nil
}

// orderImage has an image made of a volume that there is.
func (c *Server) orderImage(ctx context.Context, want client.BackingImageSpec) error {
	volume := want.Parameters[lh.BackingImageParameterVolumeName]
	v, err := c.volume(ctx, volume)
	if err != nil {
		return err
	}
	if v.Encrypted {
		return request.Refuse("volume %s is encrypted, and a backing image of it would need its key: use a "+
			"VolumeSnapshotClass of type snap or bak", volume)
	}
	_, err = c.manager.CreateBackingImage(ctx, want)
	err = request.FromManager(err, codes.FailedPrecondition, "making backing image "+want.Name+" of volume "+volume)
	return request.Refused(err, func() error {
		_, err := c.manager.BackingImage(ctx, want.Name)
		return err
	})
}

// awaitExport waits until the content of an image is read, or is there. An image that has failed is
// given up, and made anew by the caller's next call.
func (c *Server) awaitExport(ctx context.Context, name string) (b *resource.BackingImage, err error) {
	failure := ""
	err = request.Await(ctx, "making backing image "+name, func() (bool, string, error) {
		if b, err = c.manager.BackingImage(ctx, name); err != nil {
			return false, "", request.FromManager(err, codes.Unavailable, "reading backing image "+name)
		}
		switch state, why := stateOfImage(b); state {
		case lh.BackingImageStateInProgress, lh.BackingImageStateReadyForTransfer, lh.BackingImageStateReady:
			return true, "", nil
		case lh.BackingImageStateFailed:
			failure = why
			return true, "", nil
		default:
			return false, why, nil
		}
	})
	if err != nil {
		return nil, request.Unfinished(err)
	}
	if failure == "" {
		return b, nil
	}
	if err := c.manager.DeleteBackingImage(ctx, name); err != nil && !client.IsNotFound(err) {
		return nil, request.FromManager(err, codes.Unavailable, "giving up backing image "+name)
	}
	return nil, status.Errorf(codes.FailedPrecondition, "backing image %s has failed: %s; another one is ordered by the "+
		"next try", name, failure)
}

// snapshotInImage reads the image that an id names.
func (c *Server) snapshotInImage(ctx context.Context, of client.BackingImageSpec) (*spec.Snapshot, error) {
	b, err := c.manager.BackingImage(ctx, of.Name)
	if err == nil && b.DeletionTimestamp != "" {
		return nil, status.Errorf(codes.NotFound, "backing image %s is being deleted", of.Name)
	}
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "reading backing image "+of.Name)
	}
	state, why := stateOfImage(b)
	if state == lh.BackingImageStateFailed {
		return nil, status.Errorf(codes.Internal, "backing image %s has failed: %s; delete the snapshot and take another one",
			of.Name, why)
	}
	return c.imaged(ctx, b)
}

// imaged is a backing image in the words of CSI. While its size is not known, that of its volume
// is.
func (c *Server) imaged(ctx context.Context, b *resource.BackingImage) (*spec.Snapshot, error) {
	volume := b.Parameters[lh.BackingImageParameterVolumeName]
	state, _ := stateOfImage(b)
	out := &spec.Snapshot{SourceVolumeId: volume, SizeBytes: b.VirtualSize, ReadyToUse: state == lh.BackingImageStateReady,
		SnapshotId: request.ImageID(client.BackingImageSpec{Name: b.Name, SourceType: b.SourceType, Parameters: b.Parameters,
			ExpectedChecksum: b.ExpectedChecksum})}
	if out.SizeBytes == 0 && volume != "" {
		v, err := c.volume(ctx, volume)
		if err != nil && status.Code(err) != codes.NotFound {
			return nil, err
		}
		if err == nil {
			out.SizeBytes = size(v)
		}
	}
	// No object says when the content is from. The first copy begins just after it; once the image is
	// ready this is when it became so, and who keeps the time keeps what was told first.
	for _, f := range b.DiskFileStatusMap {
		t, err := time.Parse(time.RFC3339, f.LastStateTransitionTime)
		if err == nil && (out.CreationTime == nil || t.Before(out.CreationTime.AsTime())) {
			out.CreationTime = timestamppb.New(t)
		}
	}
	return out, nil
}

// deleteImage deletes a backing image, and waits until it is gone.
func (c *Server) deleteImage(ctx context.Context, name string) error {
	err := c.manager.DeleteBackingImage(ctx, name)
	if err != nil && !client.IsNotFound(err) {
		return request.FromManager(err, codes.FailedPrecondition, "deleting backing image "+name)
	}
	return request.Await(ctx, "deleting backing image "+name, func() (bool, string, error) {
		_, err := c.manager.BackingImage(ctx, name)
		if client.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", request.FromManager(err, codes.Internal, "reading backing image "+name)
		}
		return false, "its copies are being removed", nil
	})
}
