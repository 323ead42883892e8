package csi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// handle is the id of a snapshot: what kind it is and where its content is.
type handle struct{ volume, snapshot string }

// String is the id.
func (h handle) String() string { return "snap://" + h.volume + "/" + h.snapshot }

// otherHandles are ids that the reference gives out and this version cannot do anything with.
var otherHandles = map[string]string{"bak://": volumefield.MissingBackups, "bs://": volumefield.MissingBackups,
	"bi://": volumefield.MissingImages}

// parseHandle reads the id of a snapshot. What is no id names a snapshot that there is not.
func parseHandle(id string) (handle, error) {
	if id == "" {
		return handle{}, refuse("no snapshot id is given")
	}
	for scheme, why := range otherHandles {
		if strings.HasPrefix(id, scheme) {
			return handle{}, status.Errorf(codes.FailedPrecondition, "snapshot %s %s", id, why)
		}
	}
	volume, snapshot, ok := naming.ParseCloneSource(id)
	if !ok || snapshot == "" || naming.CheckName(volume) != nil {
		return handle{}, status.Errorf(codes.NotFound, "there is no snapshot %q: ids look like snap://<volume>/<snapshot>",
			id)
	}
	return handle{volume, snapshot}, nil
}

// snapshotType judges the parameters of a VolumeSnapshotClass.
func snapshotType(given map[string]string) error {
	kind := given["type"]
	switch kind {
	case "snap":
		return nil
	case "", "bak", "bs":
		return refuse("a VolumeSnapshotClass of type %q (bak where none is given) %s; use type: snap, which keeps the "+
			"snapshot in the volume's replicas", kind, volumefield.MissingBackups)
	case "bi":
		return refuse("a VolumeSnapshotClass of type bi %s; use type: snap", volumefield.MissingImages)
	}
	return refuse("type %q of a VolumeSnapshotClass is none of snap, bak, bi", kind)
}

// CreateSnapshot implements the controller service. It answers when the snapshot is taken.
func (c *controller) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse,
	error) {
	name, volume := r.GetName(), r.GetSourceVolumeId()
	if name == "" || volume == "" {
		return nil, refuse("a name and the id of the source volume are needed")
	}
	if err := snapshotType(r.GetParameters()); err != nil {
		return nil, err
	}
	name = strings.ToLower(name)
	if err := naming.CheckSnapshotName(name); err != nil {
		return nil, refuse("%v", err)
	}
	ctx, end, err := c.begin(ctx, "snapshot "+name, "CreateSnapshot")
	if err != nil {
		return nil, err
	}
	defer end()
	s, err := c.manager.SnapshotObject(ctx, volume, name)
	wait := snapshotWait{volume: volume, name: name, again: err == nil}
	switch {
	case client.IsNotFound(err):
		if s, err = c.orderSnapshot(ctx, volume, name); err != nil {
			return nil, err
		}
	case err != nil: // whether a former call has ordered it is not known
		return nil, fromManager(err, codes.Unavailable, "reading snapshot "+name)
	}
	if s.Volume != volume {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s exists and is one of volume %s", name, s.Volume)
	}
	at("snapshot-ordered")
	if s, err = c.awaitTaken(ctx, &wait); err != nil {
		return nil, err
	}
	return &spec.CreateSnapshotResponse{Snapshot: taken(s)}, nil
}

// orderSnapshot has a snapshot taken of a volume that there is.
func (c *controller) orderSnapshot(ctx context.Context, volume, name string) (*resource.SnapshotCR, error) {
	if _, err := c.volume(ctx, volume); err != nil {
		return nil, err
	}
	s, err := c.manager.OrderSnapshot(ctx, volume, resource.SnapshotCRInput{Name: name, Labels: naming.OrderedByCSI()})
	err = fromManager(err, codes.FailedPrecondition, "taking snapshot "+name+" of volume "+volume)
	return s, refused(err, func() error {
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
	// again: an earlier call has ordered it. began is when this call did, blocked since when the order
	// has been seen blocked, zero if it is not.
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
func (c *controller) awaitTaken(ctx context.Context, w *snapshotWait) (s *resource.SnapshotCR, err error) {
	ended := error(nil)
	err = await(ctx, "taking snapshot "+w.name, func() (done bool, why string, err error) {
		if s, err = c.manager.SnapshotObject(ctx, w.volume, w.name); err != nil {
			return false, "", fromManager(err, codes.Unavailable, "reading snapshot "+w.name)
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
		return nil, unfinished(err)
	}
	return s, ended
}

// withdraw takes the order for a snapshot back; ended is what its caller is told. The order is void
// once its object is deleted: should the engine carry it out all the same, it is told to remove the
// snapshot, with nobody waiting for that.
func (c *controller) withdraw(ctx context.Context, w *snapshotWait, why string) (ended, err error) {
	err = c.manager.DeleteSnapshotObject(ctx, w.volume, w.name)
	if err != nil && !client.IsNotFound(err) {
		return nil, fromManager(err, codes.Unavailable, "withdrawing the order for snapshot "+w.name)
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
	out := &spec.Snapshot{SnapshotId: handle{s.Volume, s.Name}.String(), SourceVolumeId: s.Volume,
		SizeBytes:  s.RestoreSize,
		ReadyToUse: s.ReadyToUse}
	if t, err := time.Parse(time.RFC3339, s.CreationTime); err == nil {
		out.CreationTime = timestamppb.New(t)
	}
	return out
}

// DeleteSnapshot implements the controller service. It answers when the snapshot is gone, or marked
// as removed for good.
func (c *controller) DeleteSnapshot(ctx context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse,
	error) {
	h, err := parseHandle(r.GetSnapshotId())
	if status.Code(err) == codes.NotFound {
		return &spec.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.begin(ctx, "snapshot "+h.snapshot, "DeleteSnapshot")
	if err != nil {
		return nil, err
	}
	defer end()
	// The manager refuses to delete a snapshot of another volume. There is none of this one then.
	s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
	if client.IsNotFound(err) || err == nil && s.Volume != h.volume {
		return &spec.DeleteSnapshotResponse{}, nil
	}
	if err == nil {
		err = c.manager.DeleteSnapshotObject(ctx, h.volume, h.snapshot)
	}
	if err != nil && !client.IsNotFound(err) {
		return nil, fromManager(err, codes.FailedPrecondition, fmt.Sprintf("deleting snapshot %s", h))
	}
	at("snapshot-deleted")
	err = await(ctx, fmt.Sprintf("deleting snapshot %s", h), func() (bool, string, error) {
		s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
		if client.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", fromManager(err, codes.Internal, "reading snapshot "+h.snapshot)
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
func (c *controller) GetSnapshot(ctx context.Context, r *spec.GetSnapshotRequest) (*spec.GetSnapshotResponse, error) {
	s, err := c.snapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &spec.GetSnapshotResponse{Snapshot: taken(s)}, nil
}

// snapshot reads a snapshot that a call is about.
func (c *controller) snapshot(ctx context.Context, id string) (*resource.SnapshotCR, error) {
	h, err := parseHandle(id)
	if err != nil {
		return nil, err
	}
	s, err := c.manager.SnapshotObject(ctx, h.volume, h.snapshot)
	if err == nil && (s.Volume != h.volume || s.MarkRemoved) {
		return nil, status.Errorf(codes.NotFound, "volume %s has no snapshot %s", h.volume, h.snapshot)
	}
	return s, fromManager(err, codes.Internal, "reading snapshot "+h.snapshot)
}

// ListSnapshots implements the controller service: one by its id, those of one volume, or all that
// users have made.
func (c *controller) ListSnapshots(ctx context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse,
	error) {
	var all []resource.SnapshotCR
	switch {
	case r.GetSnapshotId() != "":
		s, err := c.snapshot(ctx, r.GetSnapshotId())
		if status.Code(err) == codes.NotFound {
			return &spec.ListSnapshotsResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		if from := r.GetSourceVolumeId(); from == "" || from == s.Volume {
			all = append(all, *s)
		}
	case r.GetSourceVolumeId() != "":
		of, err := c.snapshotsOf(ctx, r.GetSourceVolumeId())
		if err != nil {
			return nil, err
		}
		all = of
	default:
		volumes, err := c.manager.Volumes(ctx)
		if err != nil {
			return nil, fromManager(err, codes.Internal, "listing volumes")
		}
		for i := range volumes {
			of, err := c.snapshotsOf(ctx, volumes[i].Name)
			if err != nil {
				return nil, err
			}
			all = append(all, of...)
		}
	}
	id := func(s resource.SnapshotCR) string { return handle{s.Volume, s.Name}.String() }
	slices.SortFunc(all, func(a, b resource.SnapshotCR) int { return strings.Compare(id(a), id(b)) })
	part, next, err := page(all, id, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ListSnapshotsResponse{NextToken: next}
	for i := range part {
		out.Entries = append(out.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: taken(&part[i])})
	}
	return out, nil
}

// snapshotsOf are the snapshots of a volume that users have made and that are taken.
func (c *controller) snapshotsOf(ctx context.Context, volume string) ([]resource.SnapshotCR, error) {
	if naming.CheckName(volume) != nil {
		return nil, nil
	}
	all, err := c.manager.SnapshotObjects(ctx, volume)
	if client.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fromManager(err, codes.Internal, "listing the snapshots of volume "+volume)
	}
	return slices.DeleteFunc(all, func(s resource.SnapshotCR) bool {
		return !s.UserCreated || s.MarkRemoved || s.CreationTime == ""
	}), nil
}
