package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// judgeImage refuses a class that has an image made and does not name it.
func (o *order) judgeImage() error {
	if o.Image.SourceType != "" && o.Volume.BackingImage == "" {
		return request.Refuse("parameter backingImageDataSourceType has a backing image made, whose name is missing; add " +
			"parameter backingImage")
	}
	o.Image.Name = o.Volume.BackingImage
	return nil
}

// image has the backing image of a class made if there is none of its name, and waits until it can
// be used: then its size is known, which the volume must have. An image that is there and is
// another one than the class says is refused. Then fill is called.
func (c *Server) image(ctx context.Context, o *order) error {
	name := o.Image.Name
	if o.Image.SourceType == "" && o.Image.ExpectedChecksum == "" {
		return c.fill(ctx, o)
	}
	b, err := c.manager.BackingImage(ctx, name)
	if client.IsNotFound(err) && o.Image.SourceType != "" {
		_, refusal := c.manager.CreateBackingImage(ctx, o.Image)
		if b, err = c.manager.BackingImage(ctx, name); client.IsNotFound(err) && refusal != nil {
			return request.FromManager(refusal, codes.InvalidArgument, "making backing image "+name)
		}
		c.log.Info("a backing image is made for a StorageClass", "image", name, "source", o.Image.SourceType)
	}
	if err != nil {
		return request.FromManager(err, codes.Unavailable, "reading backing image "+name)
	}
	if what := otherImage(o.Image, b); what != "" {
		return status.Errorf(codes.InvalidArgument, "backing image %s exists with another %s than the StorageClass says; "+
			"name another image in parameter backingImage, or correct the class", name, what)
	}
	if err := c.awaitImage(ctx, name); err != nil {
		return err
	}
	return c.fill(ctx, o)
}

// otherImage says by what an image differs from what a class asks for; empty: it does not.
func otherImage(want client.BackingImageSpec, b *resource.BackingImage) string {
	wrong := func(key string) bool { return b.Parameters[key] != want.Parameters[key] }
	sum := b.CurrentChecksum
	if sum == "" {
		sum = b.ExpectedChecksum
	}
	switch {
	case want.SourceType != "" && b.SourceType != want.SourceType:
		return "source, " + b.SourceType
	case want.SourceType != "" && slices.ContainsFunc(slices.Collect(maps.Keys(want.Parameters)), wrong):
		return "source"
	case want.ExpectedChecksum != "" && sum != "" && sum != want.ExpectedChecksum:
		return "checksum, " + sum
	}
	return ""
}

// awaitImage waits until an image has a copy that is ready.
func (c *Server) awaitImage(ctx context.Context, name string) error {
	return request.Await(ctx, "making backing image "+name, func() (bool, string, error) {
		b, err := c.manager.BackingImage(ctx, name)
		if err != nil {
			return false, "", request.FromManager(err, codes.Unavailable, "reading backing image "+name)
		}
		state, why := stateOfImage(b)
		if state == lh.BackingImageStateFailed {
			return false, "", status.Errorf(codes.Internal, "backing image %s could not be made: %s; correct what is wrong, or "+
				"delete it: ankole backing-image delete %s", name, why, name)
		}
		return state == lh.BackingImageStateReady, why, nil
	})
}

// progress are the states of a copy, the one that is nearest to a file first.
var progress = []lh.BackingImageState{lh.BackingImageStateReady, lh.BackingImageStateReadyForTransfer,
	lh.BackingImageStateInProgress}

// stateOfImage is that of the copy that is nearest to a file, and what an image waits for. It has
// failed when all copies have; it is in no state before there is one.
func stateOfImage(b *resource.BackingImage) (state lh.BackingImageState, why string) {
	var states, reasons []string
	has := map[lh.BackingImageState]bool{}
	for _, disk := range slices.Sorted(maps.Keys(b.DiskFileStatusMap)) {
		f := b.DiskFileStatusMap[disk]
		if f.State == string(lh.BackingImageStateFailed) {
			reasons = append(reasons, "disk "+disk+": "+f.Message)
			continue
		}
		has[lh.BackingImageState(f.State)] = true
		states = append(states, strings.TrimSpace(f.State+" "+f.Message))
	}
	if len(states) == 0 && len(reasons) > 0 {
		return lh.BackingImageStateFailed, strings.Join(reasons, "; ")
	}
	for _, state := range progress {
		if has[state] {
			return state, "it is " + strings.Join(states, ", ")
		}
	}
	return "", "it is " + cmp.Or(strings.Join(states, ", "), "on no disk yet")
}

// judgeImageSource has a volume that is made of a snapshot in a backing image lie on that.
func (o *order) judgeImageSource() error {
	s, of := o.content.GetType().(*spec.VolumeContentSource_Snapshot)
	if !of || !request.IsImageID(s.Snapshot.GetSnapshotId()) {
		return nil
	}
	image, err := request.ParseImageID(s.Snapshot.GetSnapshotId())
	if err != nil {
		return status.Errorf(codes.NotFound, "there is no such snapshot: %v", err)
	}
	if b := o.Volume.BackingImage; b != "" && b != image.Name {
		return request.Refuse("the claim is made of a snapshot in backing image %s, and parameter backingImage of its "+
			"StorageClass names %s", image.Name, b)
	}
	o.Volume.BackingImage, o.Image = image.Name, image
	return nil
}
