package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// CreateSnapshot implements the controller service. It answers when the snapshot is taken, and with
// a class of backups when its backup is ordered, which may take hours.
func (c *Server) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse,
	error) {
	name, volume := r.GetName(), r.GetSourceVolumeId()
	if name == "" || volume == "" {
		return nil, request.Refuse("a name and the id of the source volume are needed")
	}
	class, err := parseSnapshotClass(r.GetParameters())
	if err != nil {
		return nil, err
	}
	name = strings.ToLower(name)
	if err := naming.CheckSnapshotName(name); err != nil {
		return nil, request.Refuse("%v", err)
	}
	ctx, end, err := c.begin(ctx, "snapshot "+name, "CreateSnapshot")
	if err != nil {
		return nil, err
	}
	defer end()
	if class.image != nil {
		return c.createImage(ctx, name, volume, *class.image)
	}
	s, err := c.manager.SnapshotObject(ctx, volume, name)
	wait := snapshotWait{volume: volume, name: name, again: err == nil}
	switch {
	case client.IsNotFound(err):
		if s, err = c.orderSnapshot(ctx, volume, name, class); err != nil {
			return nil, err
		}
	case err != nil: // whether a former call has ordered it is not known
		return nil, request.FromManager(err, codes.Unavailable, "reading snapshot "+name)
	}
	if s.Volume != volume {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s exists and is one of volume %s", name, s.Volume)
	}
	request.Step("snapshot-ordered")
	if s, err = c.awaitTaken(ctx, &wait); err != nil {
		return nil, err
	}
	if !class.backup {
		return &spec.CreateSnapshotResponse{Snapshot: taken(s)}, nil
	}
	b, err := c.orderBackup(ctx, s, class.mode)
	if err != nil {
		return nil, err
	}
	return &spec.CreateSnapshotResponse{Snapshot: backedUp(b, s)}, nil
}

// orderSnapshot has a snapshot taken of a volume that there is.
func (c *Server) orderSnapshot(ctx context.Context, volume, name string, class snapshotClass) (*resource.SnapshotCR,
	error) {
	if _, err := c.volume(ctx, volume); err != nil {
		return nil, err
	}
	labels := naming.OrderedByCSI()
	if class.backup {
		labels = naming.ForBackupByCSI()
	}
	s, err := c.manager.OrderSnapshot(ctx, volume, resource.SnapshotCRInput{Name: name, Labels: labels})
	err = request.FromManager(err, codes.FailedPrecondition, "taking snapshot "+name+" of volume "+volume)
	return s, request.Refused(err, func() error {
		_, err := c.manager.SnapshotObject(ctx, volume, name)
		return err
	})
}

const (
	// blockedPatience is how long the order for a snapshot may be blocked before it is withdrawn: an
	// engine that was refused something for a moment is asked again by the caller's next call.
	blockedPatience = 10 * time.Second
	// orderPatience is how long a call waits for what an earlier one has ordered: with the time that
	// that one has waited it is longer than any attachment and any snapshot take.
	orderPatience = 55 * time.Second
)

// snapshotWait is a wait for a snapshot that is ordered.
type snapshotWait struct {
	volume, name string
	// again: an earlier call has ordered it. began is when this call did, blocked since when the
	// order has been seen blocked, zero if it is not.
	again          bool
	began, blocked time.Time
}

// hopeless reports whether the caller is not to wait any longer for the snapshot.
func (w *snapshotWait) hopeless(s *resource.SnapshotCR) bool {
	now := time.Now()
	if w.began.IsZero() {
		w.began = now
	}
	if !s.Blocked {
		w.blocked = time.Time{}
	} else if w.blocked.IsZero() {
		w.blocked = now
	}
	return s.Blocked && now.Sub(w.blocked) >= blockedPatience || w.again && now.Sub(w.began) >= orderPatience
}

// awaitTaken waits until a snapshot is taken. One that was taken and is deleted or lost will not be
// there again, and its name is free when its object has gone: the caller may forget it, since
// nothing is left of it that would have to be deleted. So may it when the order was withdrawn,
// which is done where nothing but waiting would come of it: callers of CSI can delete nothing while
// an order may still be carried out.
func (c *Server) awaitTaken(ctx context.Context, w *snapshotWait) (s *resource.SnapshotCR, err error) {
	ended := error(nil)
	err = request.Await(ctx, "taking snapshot "+w.name, func() (done bool, why string, err error) {
		if s, err = c.manager.SnapshotObject(ctx, w.volume, w.name); err != nil {
			return false, "", request.FromManager(err, codes.Unavailable, "reading snapshot "+w.name)
		}
		why = reason(s)
		switch {
		case s.MarkRemoved || s.CreationTime != "" && (s.Deleting || !s.ReadyToUse):
			ended = status.Errorf(codes.FailedPrecondition, "snapshot %s of volume %s was taken, and has been deleted or lost "+
				"since: %s", w.name, w.volume, why)
		case s.ReadyToUse:
		case s.Deleting:
			ended = status.Errorf(codes.FailedPrecondition, "the order to take snapshot %s of volume %s was withdrawn, and the "+
				"engine does not know that yet: %s; retry", w.name, w.volume, why)
		case w.hopeless(s):
			ended, err = c.withdraw(ctx, w, why)
		}
		return s.ReadyToUse || ended != nil, why, err
	})
	if err != nil {
		return nil, request.Unfinished(err)
	}
	return s, ended
}

// withdraw takes the order for a snapshot back; ended is what its caller is told. The order is void
// once its object is deleted: should the engine carry it out all the same, it is told to remove the
// snapshot, with nobody waiting for that.
func (c *Server) withdraw(ctx context.Context, w *snapshotWait, why string) (ended, err error) {
	err = c.manager.DeleteSnapshotObject(ctx, w.volume, w.name)
	if err != nil && !client.IsNotFound(err) {
		return nil, request.FromManager(err, codes.Unavailable, "withdrawing the order for snapshot "+w.name)
	}
	c.log.Info("a snapshot that cannot be taken is not ordered any more", "snapshot", w.name, "volume", w.volume,
		"because", why)
	return status.Errorf(codes.FailedPrecondition, "snapshot %s of volume %s cannot be taken now: %s; it is ordered again "+
		"by the next try", w.name, w.volume, why), nil
}

// reason says what an order about a snapshot waits for.
func reason(s *resource.SnapshotCR) string {
	if s.Error == "" {
		return "the manager has said nothing of it yet"
	}
	return s.Error
}

// taken is a snapshot in the words of CSI.
func taken(s *resource.SnapshotCR) *spec.Snapshot {
	out := &spec.Snapshot{SnapshotId: handle{volume: s.Volume, snapshot: s.Name}.String(), SourceVolumeId: s.Volume,
		SizeBytes:  s.RestoreSize,
		ReadyToUse: s.ReadyToUse}
	if t, err := time.Parse(time.RFC3339, s.CreationTime); err == nil {
		out.CreationTime = timestamppb.New(t)
	}
	return out
}

// DeleteSnapshot implements the controller service. It answers when the snapshot is gone, or marked
// as removed for good.
func (c *Server) DeleteSnapshot(ctx context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse,
	error) {
	h, err := parseHandle(r.GetSnapshotId())
	if status.Code(err) == codes.NotFound {
		return &spec.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	about := h.snapshot + h.backup
	if h.image != nil {
		about = h.image.Name
	}
	ctx, end, err := c.begin(ctx, "snapshot "+about, "DeleteSnapshot")
	if err != nil {
		return nil, err
	}
	defer end()
	if h.image != nil {
		if err := c.deleteImage(ctx, h.image.Name); err != nil {
			return nil, err
		}
		return &spec.DeleteSnapshotResponse{}, nil
	}
	if h.backup != "" {
		if err := c.deleteBackup(ctx, h); err != nil {
			return nil, err
		}
		return &spec.DeleteSnapshotResponse{}, nil
	}
	// The manager refuses to delete a snapshot of another volume. There is none of this one then.
	s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
	if client.IsNotFound(err) || err == nil && s.Volume != h.volume {
		return &spec.DeleteSnapshotResponse{}, nil
	}
	if err == nil {
		err = c.manager.DeleteSnapshotObject(ctx, h.volume, h.snapshot)
	}
	if err != nil && !client.IsNotFound(err) {
		return nil, request.FromManager(err, codes.FailedPrecondition, fmt.Sprintf("deleting snapshot %s", h))
	}
	request.Step("snapshot-deleted")
	err = request.Await(ctx, fmt.Sprintf("deleting snapshot %s", h), func() (bool, string, error) {
		s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
		if client.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", request.FromManager(err, codes.Internal, "reading snapshot "+h.snapshot)
		}
		// A mark is never taken back. The space comes later: what the head stands on goes when a newer
		// snapshot has been taken.
		return s.MarkRemoved || s.Volume != h.volume, "it is not marked as removed yet: " + reason(s), nil
	})
	if err != nil {
		return nil, err
	}
	return &spec.DeleteSnapshotResponse{}, nil
}

// GetSnapshot implements the controller service.
func (c *Server) GetSnapshot(ctx context.Context, r *spec.GetSnapshotRequest) (*spec.GetSnapshotResponse, error) {
	s, err := c.snapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &spec.GetSnapshotResponse{Snapshot: s}, nil
}

// snapshot reads a snapshot that a call is about.
func (c *Server) snapshot(ctx context.Context, id string) (*spec.Snapshot, error) {
	h, err := parseHandle(id)
	if err != nil {
		return nil, err
	}
	if h.image != nil {
		return c.snapshotInImage(ctx, *h.image)
	}
	if h.backup != "" {
		return c.snapshotInBackup(ctx, h)
	}
	s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
	if err == nil && (s.Volume != h.volume || s.MarkRemoved) {
		return nil, status.Errorf(codes.NotFound, "volume %s has no snapshot %s", h.volume, h.snapshot)
	}
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "reading snapshot "+h.snapshot)
	}
	return taken(s), nil
}

// anyBackupVolume has the manager list the backups of a volume on the target of the volume.
const anyBackupVolume = "none"

// orderBackup has a snapshot backed up, unless that has been ordered already. A backup that has
// failed is given up, and made anew by the caller's next call.
func (c *Server) orderBackup(ctx context.Context, s *resource.SnapshotCR, mode string) (*resource.Backup, error) {
	b, err := c.backupOf(ctx, s)
	if err != nil {
		return nil, err
	}
	if b == nil {
		_, err := c.manager.BackUp(ctx, s.Volume, resource.SnapshotInput{Name: s.Name, BackupMode: mode})
		err = request.FromManager(err, codes.FailedPrecondition, "backing up snapshot "+s.Name+" of volume "+s.Volume)
		err = request.Refused(err, func() error {
			b, err := c.backupOf(ctx, s)
			if err == nil && b == nil {
				return &client.Error{Status: http.StatusNotFound}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if b, err = c.backupOf(ctx, s); err != nil {
			return nil, request.Unfinished(err)
		}
	}
	switch {
	case b == nil:
		return nil, status.Errorf(codes.Aborted, "the backup of snapshot %s was ordered and is not listed yet; retry", s.Name)
	case b.State != string(lh.BackupStateError):
		return b, nil
	}
	if err := c.manager.DeleteBackup(ctx, b.Name); err != nil && !client.IsNotFound(err) {
		return nil, request.FromManager(err, codes.Unavailable, "giving up backup "+b.Name)
	}
	return nil, status.Errorf(codes.FailedPrecondition, "backup %s of snapshot %s has failed: %s; another one is ordered by "+
		"the next try", b.Name, s.Name, b.Error)
}

// backupOf is the backup of a snapshot: a complete one before one under way before one that has
// failed; nil if there is none.
func (c *Server) backupOf(ctx context.Context, s *resource.SnapshotCR) (found *resource.Backup, err error) {
	all, err := c.manager.Backups(ctx, anyBackupVolume, s.Volume)
	if err != nil {
		return nil, request.FromManager(err, codes.Unavailable, "listing the backups of volume "+s.Volume)
	}
	rank := func(b *resource.Backup) int {
		switch lh.BackupState(b.State) {
		case lh.BackupStateCompleted:
			return 0
		case lh.BackupStateError:
			return 2
		}
		return 1
	}
	for i := range all {
		b := &all[i]
		if b.SnapshotName == s.Name && b.State != string(lh.BackupStateDeleting) &&
			(found == nil || rank(b) < rank(found)) {
			found = b
		}
	}
	return found, nil
}

// backup reads the backup that an id names.
func (c *Server) backup(ctx context.Context, h handle) (*resource.Backup, error) {
	b, err := c.manager.Backup(ctx, h.backup)
	if err == nil && (b.VolumeName != h.volume || b.State == string(lh.BackupStateDeleting)) {
		return nil, status.Errorf(codes.NotFound, "volume %s has no backup %s", h.volume, h.backup)
	}
	return b, request.FromManager(err, codes.Internal, "reading backup "+h.backup)
}

// snapshotInBackup is a snapshot whose content is in a backup. One that has failed will not be
// ready to use, and whoever asks is told why.
func (c *Server) snapshotInBackup(ctx context.Context, h handle) (*spec.Snapshot, error) {
	b, err := c.backup(ctx, h)
	if err != nil {
		return nil, err
	}
	switch lh.BackupState(b.State) {
	case lh.BackupStateCompleted:
		return backedUp(b, nil), nil
	case lh.BackupStateError, lh.BackupStateUnknown:
		return nil, status.Errorf(codes.FailedPrecondition, "backup %s of volume %s has failed: %s; delete the VolumeSnapshot "+
			"and make another one", b.Name, h.volume, b.Error)
	}
	// When the content is from is known to its snapshot alone, until the backup is complete.
	s, err := c.manager.SnapshotObject(ctx, h.volume, b.SnapshotName)
	if client.IsNotFound(err) {
		s, err = nil, nil
	}
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "reading snapshot "+b.SnapshotName)
	}
	return backedUp(b, s), nil
}

// backedUp is a backup in the words of CSI. s is its snapshot, nil where that is not needed or
// gone.
func backedUp(b *resource.Backup, s *resource.SnapshotCR) *spec.Snapshot {
	out := &spec.Snapshot{SnapshotId: handle{volume: b.VolumeName, backup: b.Name}.String(),
		SourceVolumeId: b.VolumeName, ReadyToUse: b.State == string(lh.BackupStateCompleted)}
	out.SizeBytes, _ = strconv.ParseInt(b.VolumeSize, 10, 64) // the manager writes decimal numbers, or nothing yet
	if b.Labels[naming.LabelVolumeEncrypted] == "true" {
		out.SizeBytes = max(out.SizeBytes-lh.LUKSHeaderBytes, 0) // a claim of the same size is large enough
	}
	created := b.SnapshotCreated
	if s != nil {
		created, out.SizeBytes = cmp.Or(created, s.CreationTime), cmp.Or(out.SizeBytes, s.RestoreSize)
	}
	if t, err := time.Parse(time.RFC3339, created); err == nil {
		out.CreationTime = timestamppb.New(t)
	}
	return out
}

// deleteBackup deletes a backup, in the store too, and waits until it is gone. The snapshot that
// was backed up stays.
func (c *Server) deleteBackup(ctx context.Context, h handle) error {
	b, err := c.manager.Backup(ctx, h.backup)
	if client.IsNotFound(err) || err == nil && b.VolumeName != h.volume {
		return nil
	}
	if err == nil {
		err = c.manager.DeleteBackup(ctx, h.backup)
	}
	if err != nil && !client.IsNotFound(err) {
		return request.FromManager(err, codes.FailedPrecondition, "deleting backup "+h.backup)
	}
	return request.Await(ctx, "deleting backup "+h.backup, func() (bool, string, error) {
		b, err := c.manager.Backup(ctx, h.backup)
		if client.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", request.FromManager(err, codes.Internal, "reading backup "+h.backup)
		}
		return b.VolumeName != h.volume, "state " + b.State + " " + b.Error, nil
	})
}
