package csi

import (
	"context"
	"strconv"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/controlplane/object/naming"
)

// fill looks up what a volume is to hold, and gives it the size that goes with that: a volume is
// filled with the size of its source, and expanded afterwards if more is wanted.
func (c *controller) fill(ctx context.Context, o *order) error {
	o.volume.Size = strconv.FormatInt(o.required, 10)
	source, err := o.source()
	if err != nil || source == "" {
		return err
	}
	volume, snapshot, ok := naming.ParseCloneSource(source)
	if !ok {
		return refuse("data source %q is neither vol://<volume> nor snap://<volume>/<snapshot>", source)
	}
	v, err := c.volume(ctx, volume)
	if err != nil {
		return err
	}
	if snapshot != "" {
		s, err := c.manager.SnapshotObject(ctx, volume, snapshot)
		if err != nil {
			return fromManager(err, codes.Internal, "reading snapshot "+snapshot)
		}
		if s.Volume != volume || s.MarkRemoved {
			return status.Errorf(codes.NotFound, "volume %s has no snapshot %s", volume, snapshot)
		}
	}
	switch {
	case v.Encrypted != o.volume.Encrypted:
		return refuse("the source %s is encrypted: %v, the volume is to be: %v; both are, or neither is", source, v.Encrypted,
			o.volume.Encrypted)
	case size(v) > o.required && o.limit > 0 && size(v) > o.limit:
		return status.Errorf(codes.OutOfRange, "the source %s has %d bytes, at most %d are wanted", source, size(v), o.limit)
	case size(v) > o.required && snapshot == "":
		return status.Errorf(codes.OutOfRange, "the source %s has %d bytes, only %d are wanted", source, size(v), o.required)
	}
	o.volume.DataSource, o.volume.Size = source, v.Size
	return nil
}

// source is the data source in the manager's words, empty for none.
func (o *order) source() (string, error) {
	switch from := o.content.GetType().(type) {
	case nil:
		return "", nil
	case *spec.VolumeContentSource_Volume:
		id := from.Volume.GetVolumeId()
		return "vol://" + id, checkID(id)
	case *spec.VolumeContentSource_Snapshot:
		h, err := parseHandle(from.Snapshot.GetSnapshotId())
		return h.String(), err
	default:
		return "", refuse("a volume can be made of a snapshot or of another volume, not of %T", from)
	}
}
