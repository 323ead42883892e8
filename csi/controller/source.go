package controller

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// fill looks up what a volume is to hold, and gives it the size that goes with that: a volume is
// filled with the size of its source, and expanded afterwards if more is wanted.
func (c *Server) fill(ctx context.Context, o *order) error {
	o.Volume.Size = strconv.FormatInt(o.required, 10)
	source, err := o.source()
	if err != nil || source == "" {
		return err
	}
	if strings.HasPrefix(source, schemeBackup) {
		return c.fillFromBackup(ctx, o, source)
	}
	volume, snapshot, ok := naming.ParseCloneSource(source)
	if !ok {
		return request.Refuse("data source %q is neither vol://<volume> nor snap://<volume>/<snapshot>", source)
	}
	v, err := c.volume(ctx, volume)
	if err != nil {
		return err
	}
	if snapshot != "" {
		s, err := c.manager.SnapshotObject(ctx, volume, snapshot)
		if err != nil {
			return request.FromManager(err, codes.Internal, "reading snapshot "+snapshot)
		}
		if s.Volume != volume || s.MarkRemoved {
			return status.Errorf(codes.NotFound, "volume %s has no snapshot %s", volume, snapshot)
		}
	}
	switch {
	case v.Encrypted != o.Volume.Encrypted:
		return request.Refuse("the source %s is encrypted: %v, the volume is to be: %v; both are, or neither is", source, v.Encrypted,
			o.Volume.Encrypted)
	case size(v) > o.required && o.limit > 0 && size(v) > o.limit:
		return status.Errorf(codes.OutOfRange, "the source %s has %d bytes, at most %d are wanted", source, size(v), o.limit)
	case size(v) > o.required && snapshot == "":
		return status.Errorf(codes.OutOfRange, "the source %s has %d bytes, only %d are wanted", source, size(v), o.required)
	}
	o.Volume.DataSource, o.Volume.Size = source, v.Size
	return nil
}

// judgeSource reads where the content is to come from.
func (o *order) judgeSource(content *spec.VolumeContentSource) (err error) {
	o.content = content
	if err := o.judgeImageSource(); err != nil {
		return err
	}
	o.from, err = backupAt(o.Volume.FromBackup)
	if err == nil && content.GetType() != nil && o.from.backup != "" {
		err = request.Refuse("parameter fromBackup does not go together with a claim that names a source")
	}
	return err
}

// source is where the content is to come from, in the words of ids; empty for none.
func (o *order) source() (string, error) {
	switch from := o.content.GetType().(type) {
	case nil:
		if o.from.backup == "" {
			return "", nil
		}
		return o.from.String(), nil
	case *spec.VolumeContentSource_Volume:
		id := from.Volume.GetVolumeId()
		return "vol://" + id, request.CheckID(id)
	case *spec.VolumeContentSource_Snapshot:
		h, err := parseHandle(from.Snapshot.GetSnapshotId())
		if err != nil || h.image != nil { // the volume lies on the image, and nothing is copied
			return "", err
		}
		return h.String(), nil
	default:
		return "", request.Refuse("a volume can be made of a snapshot or of another volume, not of %T", from)
	}
}

// backupAt reads the URL of a backup; none of no URL.
func backupAt(at string) (h handle, err error) {
	if at == "" {
		return h, nil
	}
	u, err := url.Parse(at)
	if err == nil {
		h = handle{volume: u.Query().Get("volume"), backup: u.Query().Get("backup")}
	}
	if err != nil || naming.CheckName(h.volume) != nil || naming.CheckName(h.backup) != nil {
		return handle{}, request.Refuse("parameter fromBackup: write <backup target>?backup=<name>&volume=<name>")
	}
	return h, nil
}

// madeOf is the source of a volume's content, as order.source has it.
func madeOf(v *resource.Volume) string {
	if h, err := backupAt(v.FromBackup); err == nil && v.FromBackup != "" {
		return h.String()
	}
	return v.DataSource
}

// fillFromBackup looks up the backup that a volume is to be restored from.
func (c *Server) fillFromBackup(ctx context.Context, o *order, id string) error {
	h, err := parseHandle(id)
	if err != nil {
		return err
	}
	b, err := c.backup(ctx, h)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(b.VolumeSize, 10, 64)
	if o.Volume.Encrypted {
		n -= lh.LUKSHeaderBytes // the backup is of the device
	}
	switch {
	case b.State != string(lh.BackupStateCompleted):
		return status.Errorf(codes.FailedPrecondition, "backup %s of volume %s cannot be restored: its state is %s %s", b.Name,
			h.volume, b.State, b.Error)
	case o.Volume.FromBackup != "" && o.Volume.FromBackup != b.URL:
		return status.Errorf(codes.NotFound, "backup %s of volume %s is at %s, not at %s", b.Name, h.volume, b.URL,
			o.Volume.FromBackup)
	case err != nil:
		return status.Errorf(codes.Internal, "backup %s does not say how large its volume is: %q", b.Name, b.VolumeSize)
	case n > o.required && o.limit > 0 && n > o.limit:
		return status.Errorf(codes.OutOfRange, "the source %s has %d bytes, at most %d are wanted", id, n, o.limit)
	}
	o.Volume.FromBackup, o.Volume.Size = b.URL, strconv.FormatInt(n, 10)
	return nil
}
