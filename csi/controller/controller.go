package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	// defaultSize is that of a claim which names none.
	defaultSize = gib
	// minSize is what smaller claims get, and minXFS what mkfs.xfs asks for.
	minSize = 10 * mib
	minXFS  = 300 * mib
	// maxExt4 is the largest file system that ext4 has with blocks of 4 KiB and 32-bit numbers.
	maxExt4 = 16 << 40
	// placePatience is how long a new volume may have no place before its caller is told that there
	// is none: nodes and disks report what they have within seconds.
	placePatience = 5 * time.Second
)

// States of volumes as the manager tells them.
const (
	stateAttached = string(lh.VolumeStateAttached)
	stateDetached = string(lh.VolumeStateDetached)
	stateDeleting = string(lh.VolumeStateDeleting)
	faulted       = string(lh.VolumeRobustnessFaulted)
	degraded      = string(lh.VolumeRobustnessDegraded)
	cloneFailed   = string(lh.VolumeCloneStateFailed)
)

// Server serves the controller service. It keeps nothing but its locks.
type Server struct {
	spec.UnimplementedControllerServer
	manager request.Manager
	// patience bounds what a call waits for, whatever the caller's own bound.
	patience time.Duration
	log      *slog.Logger
	locks    request.Locks
}

// New returns a controller service whose calls wait for patience at the longest.
func New(m request.Manager, patience time.Duration, log *slog.Logger) *Server {
	return &Server{manager: m, patience: patience, log: log}
}

var controllerCapabilities = []spec.ControllerServiceCapability_RPC_Type{
	spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	spec.ControllerServiceCapability_RPC_LIST_VOLUMES,
	spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	spec.ControllerServiceCapability_RPC_GET_VOLUME,
	spec.ControllerServiceCapability_RPC_GET_CAPACITY,
	spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	spec.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
	spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	spec.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	spec.ControllerServiceCapability_RPC_VOLUME_CONDITION,
}

// ControllerGetCapabilities implements the controller service.
func (c *Server) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (
	*spec.ControllerGetCapabilitiesResponse, error) {
	out := &spec.ControllerGetCapabilitiesResponse{}
	for _, t := range controllerCapabilities {
		out.Capabilities = append(out.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// order is a CreateVolume call, judged.
type order struct {
	request.Wish
	usage request.Usage
	// required and limit in bytes; limit 0: none.
	required, limit int64
	content         *spec.VolumeContentSource
	// from is the backup that the class names; zero for none.
	from handle
	// accessible is where the volume is to be used, and offered everything that the claim takes,
	// where that limits replicas.
	accessible, offered []*spec.Topology
}

// judge reads a CreateVolume call without asking anybody.
func (c *Server) judge(r *spec.CreateVolumeRequest) (o order, err error) {
	if r.GetName() == "" {
		return o, request.Refuse("no name is given")
	}
	if o.usage, err = request.UsageOfAll(r.GetVolumeCapabilities()); err != nil {
		return o, err
	}
	var unknown []string
	if o.Wish, unknown, err = request.ParseClass(r.GetParameters()); err != nil {
		return o, err
	}
	for _, name := range unknown {
		c.log.Warn("parameter of the StorageClass is not known and ignored", "volume", r.GetName(), "parameter", name)
	}
	if err := o.Wish.Override(r.GetMutableParameters()); err != nil {
		return o, err
	}
	if err := o.judgeAccess(); err != nil {
		return o, err
	}
	// A Secret that the class names for others only cannot be judged here.
	if o.Volume.Encrypted && len(r.GetSecrets()) > 0 {
		if _, err := request.ReadKey(r.GetSecrets()); err != nil {
			return o, err
		}
	}
	if err := o.judgeSource(r.GetVolumeContentSource()); err != nil {
		return o, err
	}
	o.Volume.Name = naming.CorrectName(r.GetName())
	if err := naming.CheckVolumeName(o.Volume.Name); err != nil {
		return o, request.Refuse("%v", err)
	}
	if err := o.judgeImage(); err != nil {
		return o, err
	}
	if err := o.place(r.GetAccessibilityRequirements()); err != nil {
		return o, err
	}
	return o, o.judgeSize(r.GetCapacityRange())
}

// judgeAccess derives the access mode and the file system.
func (o *order) judgeAccess() error {
	o.Volume.AccessMode = o.usage.Mode
	switch {
	case o.Exclusive && o.usage.Mode == request.ModeMany:
		return request.Refuse("parameter exclusive does not go together with use on several nodes")
	case o.Exclusive:
		o.Volume.AccessMode = request.ModeOncePod
	case o.usage.Mode == request.ModeMany && !o.Volume.Migratable:
		return request.Refuse("a block volume on several nodes needs parameter migratable: \"true\"; without it only shares would " +
			"serve several nodes, and this version does not have them")
	}
	// As in the reference: a class may say migratable for claims of every mode.
	o.Volume.Migratable = o.Volume.Migratable && o.usage.Mode == request.ModeMany
	if o.usage.FSType != "" {
		o.FSType = o.usage.FSType
	}
	if o.FSType == "" {
		o.FSType = request.Ext4
	}
	return o.usage.CheckAllowed(o.FSType, o.Mkfs)
}

// judgeSize derives the size.
func (o *order) judgeSize(r *spec.CapacityRange) error {
	o.required, o.limit = r.GetRequiredBytes(), r.GetLimitBytes()
	if o.required < 0 || o.limit < 0 || o.limit > 0 && o.limit < o.required {
		return request.Refuse("%d to %d bytes is no range", o.required, o.limit)
	}
	size := o.required
	if size == 0 {
		size = defaultSize
		if o.limit > 0 {
			size = min(size, o.limit)
		}
	}
	size = admission.RoundSize(max(size, minSize))
	switch {
	case o.limit > 0 && size > o.limit:
		return status.Errorf(codes.OutOfRange,
			"at most %d bytes are wanted; sizes are multiples of 2 MiB from 10 MiB on, so that it would have %d", o.limit, size)
	case o.Volume.Encrypted && size <= lh.LUKSHeaderBytes:
		return status.Errorf(codes.OutOfRange, "an encrypted volume is larger than 16 MiB, %d bytes are wanted", size)
	case o.usage.Block:
	case o.FSType == request.XFS && size < minXFS:
		return status.Errorf(codes.OutOfRange, "a file system xfs needs 300 MiB at least, %d bytes are wanted", size)
	case o.FSType == request.Ext4 && size >= maxExt4:
		return status.Errorf(codes.OutOfRange, "a file system ext4 is smaller than 16 TiB, %d bytes are wanted; use xfs",
			size)
	}
	o.required = size
	return nil
}

// CreateVolume implements the controller service. It answers when the volume can be used: content
// that it is to have is there.
func (c *Server) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse,
	error) {
	o, err := c.judge(r)
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.begin(ctx, o.Volume.Name, "CreateVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	v, err := c.manager.Volume(ctx, o.Volume.Name)
	switch {
	case err == nil && c.movable(&o, v):
		if err = c.discard(ctx, v.Name, v.ResourceVersion); err == nil {
			err = status.Errorf(codes.Aborted, "volume %s had no place, and is to be elsewhere now; retry", v.Name)
		}
	case err == nil:
		err = c.same(&o, v)
	case client.IsNotFound(err):
		if err = c.image(ctx, &o); err == nil {
			v, err = c.create(ctx, &o)
		}
	default: // whether a former call has ordered it is not known
		err = request.FromManager(err, codes.Unavailable, "reading volume "+o.Volume.Name)
	}
	if err != nil {
		return nil, err
	}
	request.Step("created")
	keys, err := c.finish(ctx, &v, &o)
	if err != nil {
		return nil, err
	}
	return &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId: v.Name, CapacityBytes: size(v), VolumeContext: r.GetParameters(), ContentSource: o.content,
		AccessibleTopology: kept(o.accessible, keys)}}, nil
}

// create orders a volume.
func (c *Server) create(ctx context.Context, o *order) (*resource.Volume, error) {
	v, err := c.manager.CreateVolume(ctx, o.Volume)
	return v, request.Refused(request.FromManager(err, codes.Internal, "creating volume "+o.Volume.Name), func() error {
		_, err := c.manager.Volume(ctx, o.Volume.Name)
		return err
	})
}

// finish waits until a volume that was ordered can be used. A volume that will not be is removed
// before its caller is told so: nobody else would, since a claim without a volume that is deleted
// leads to no call. Other errors say that the volume is still being made.
func (c *Server) finish(ctx context.Context, v **resource.Volume, o *order) (keys []string, err error) {
	name := (*v).Name
	*v, err = c.awaitUsable(ctx, name)
	// A call before this one may have ordered the growth of what was filled, and not have waited.
	if err == nil && (size(*v) < o.required || madeOf(*v) != "" && !grown(*v)) {
		*v, err = c.growNew(ctx, *v, o.required)
	}
	var failure *unusable
	if errors.As(err, &failure) {
		if err := c.discard(ctx, name, failure.version); err != nil {
			return nil, err
		}
		return nil, failure.told
	}
	if err == nil && len(o.accessible) > 0 {
		if keys, err = request.TopologyKeys(ctx, c.manager); err != nil {
			err = request.FromManager(err, codes.Unavailable, "reading setting "+request.TopologySetting)
		}
	}
	return keys, request.Unfinished(err)
}

// unusable is why a new volume will not become one that can be used, by what was read of it at a
// version.
type unusable struct {
	told    error
	version string
}

func (e *unusable) Error() string { return e.told.Error() }

// fresh reports whether a volume has no place and has never been used: nothing can be lost with it.
func fresh(v *resource.Volume) bool {
	placed := slices.ContainsFunc(v.Replicas, func(r resource.Replica) bool { return r.HostID != "" })
	return v.State == stateDetached && !placed && neverUsed(v)
}

// neverUsed reports whether nobody can have written to a volume.
func neverUsed(v *resource.Volume) bool {
	return len(v.VolumeAttachment.Attachments) == 0 && v.LastAttachedBy == "" &&
		v.Conditions[lh.VolumeConditionHasContent].Status != "True"
}

// movable reports whether a volume that is there differs from an order by its topology alone, and
// has no place yet: the scheduler of Pods has chosen another node for the claim since.
func (c *Server) movable(o *order, v *resource.Volume) bool {
	return fresh(v) && len(v.TopologyRequirement) > 0 && v.AccessMode == o.Volume.AccessMode &&
		v.Migratable == o.Volume.Migratable &&
		!slices.Equal(v.TopologyRequirement, o.Volume.TopologyRequirement)
}

// discard deletes a volume that will not be usable, by what was read of it at a version, and waits
// until it is gone. If it has changed since it stays: another driver may have completed it, and it
// may be in use.
func (c *Server) discard(ctx context.Context, name, version string) error {
	err := c.manager.DeleteVolumeAt(ctx, name, version)
	switch {
	case client.IsConflict(err):
		return status.Errorf(codes.Aborted, "volume %s, which could not be made, has changed meanwhile; retry", name)
	case err != nil && !client.IsNotFound(err):
		return request.Unfinished(request.FromManager(err, codes.Unavailable, "deleting volume "+name))
	}
	c.log.Info("a volume that cannot be made is removed", "volume", name)
	return request.Unfinished(c.awaitGone(ctx, name))
}

// awaitUsable waits until a workload may use a new volume.
func (c *Server) awaitUsable(ctx context.Context, name string) (v *resource.Volume, err error) {
	began := time.Now()
	err = request.Await(ctx, "creating volume "+name, func() (bool, string, error) {
		if v, err = c.manager.Volume(ctx, name); err != nil {
			return false, "", request.FromManager(err, codes.Unavailable, "reading volume "+name)
		}
		scheduled := v.Conditions[lh.VolumeConditionScheduled]
		switch {
		case v.State == stateDeleting:
			return false, "", status.Errorf(codes.Aborted, "volume %s is being deleted; retry when it is gone", name)
		case v.CloneStatus.State == cloneFailed && neverUsed(v):
			return false, "", &unusable{status.Errorf(codes.Internal, "volume %s could not be filled from %s; it is removed",
				name, v.DataSource), v.ResourceVersion}
		case v.State == stateDetached && !v.Ready && scheduled.Status == "False" && time.Since(began) > placePatience:
			if !fresh(v) {
				return false, "", status.Errorf(codes.Aborted, "not all of volume %s has a place: %s; retry", name,
					scheduled.Message)
			}
			return false, "", &unusable{status.Errorf(codes.ResourceExhausted, "no place for volume %s: %s", name,
				scheduled.Message), v.ResourceVersion}
		}
		settled := v.State == stateDetached || v.State == stateAttached
		why := "state " + v.State + ", " + v.NotReadyMessage
		if text := v.Conditions[lh.VolumeConditionRestore].Message; v.RestoreRequired && text != "" {
			why += " (" + text + ")"
		}
		return settled && v.Ready, why, nil
	})
	return v, err
}

// same refuses a volume of the wanted name that is not what is wanted. It does not look at the
// source of its content, which may have grown since, or be gone when the volume has its content.
func (c *Server) same(o *order, v *resource.Volume) error {
	differs := func(what string, have, want any) error {
		return status.Errorf(codes.AlreadyExists, "volume %s exists with another %s: %v, wanted %v", v.Name, what, have, want)
	}
	if v.State == stateDeleting {
		return status.Errorf(codes.Aborted, "volume %s is being deleted; retry when it is gone", v.Name)
	}
	source, err := o.source()
	switch {
	case err != nil:
		return err
	case madeOf(v) != source:
		return differs("data source", madeOf(v), source)
	case source == "" && size(v) < o.required, o.limit > 0 && size(v) > o.limit:
		return differs("size", size(v), o.required)
	case v.AccessMode != o.Volume.AccessMode:
		return differs("access mode", v.AccessMode, o.Volume.AccessMode)
	case v.Migratable != o.Volume.Migratable:
		return differs("word on migration", v.Migratable, o.Volume.Migratable)
	case v.Encrypted != o.Volume.Encrypted:
		return differs("word on encryption", v.Encrypted, o.Volume.Encrypted)
	case !o.settle(v.TopologyRequirement):
		return differs("topology", v.TopologyRequirement, o.Volume.TopologyRequirement)
	}
	return nil
}

// DeleteVolume implements the controller service. It answers when the volume is gone.
func (c *Server) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse,
	error) {
	name := r.GetVolumeId()
	if err := request.CheckID(name); err != nil {
		if status.Code(err) == codes.NotFound {
			return &spec.DeleteVolumeResponse{}, nil
		}
		return nil, err
	}
	ctx, end, err := c.begin(ctx, name, "DeleteVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	err = request.Await(ctx, "deleting volume "+name, func() (bool, string, error) { return c.remove(ctx, name) })
	if err != nil {
		return nil, err
	}
	request.Step("deleted")
	if err := c.awaitGone(ctx, name); err != nil {
		return nil, err
	}
	return &spec.DeleteVolumeResponse{}, nil
}

// remove orders the deletion of a volume that nobody uses. A volume that has changed since that was
// seen is looked at again.
func (c *Server) remove(ctx context.Context, name string) (done bool, why string, err error) {
	v, err := c.manager.Volume(ctx, name)
	if err == nil {
		for _, t := range v.VolumeAttachment.Attachments {
			if t.AttachmentType == attacherCSI || t.AttachmentType == attacherUser {
				return false, "", status.Errorf(codes.FailedPrecondition, "volume %s is in use on node %s; detach it there first",
					name, t.NodeID)
			}
		}
		if v.State == stateDeleting {
			return true, "", nil
		}
		if err := c.keepSnapshots(ctx, v); err != nil {
			return false, "", err
		}
		err = c.manager.DeleteVolumeAt(ctx, name, v.ResourceVersion)
	}
	switch {
	case client.IsConflict(err):
		return false, "it changes", nil
	case err != nil && !client.IsNotFound(err):
		return false, "", request.FromManager(err, codes.Internal, "deleting volume "+name)
	}
	return true, "", nil
}

// keepSnapshots refuses to delete a volume of which there are snapshots that callers of
// CreateSnapshot rely on, unless its class says that they go with it.
func (c *Server) keepSnapshots(ctx context.Context, v *resource.Volume) error {
	if v.DeleteSnapshotsWithVolume {
		return nil
	}
	all, err := c.manager.SnapshotObjects(ctx, v.Name)
	if client.IsNotFound(err) {
		return nil // so is the volume
	}
	if err != nil {
		return request.FromManager(err, codes.Internal, "listing the snapshots of volume "+v.Name)
	}
	all = slices.DeleteFunc(all, func(s resource.SnapshotCR) bool {
		return s.MarkRemoved || !naming.IsOrderedByCSI(s.Name, s.Labels)
	})
	if len(all) == 0 {
		return nil
	}
	s := slices.MinFunc(all, func(a, b resource.SnapshotCR) int { return strings.Compare(a.Name, b.Name) })
	return status.Errorf(codes.FailedPrecondition, "volume %s stays while there are snapshots of it (%d); delete the "+
		"VolumeSnapshot of %s first, or if no VolumeSnapshotContent has that handle any more: ankole snapshot delete %s %s",
		v.Name, len(all), handle{volume: v.Name, snapshot: s.Name}, v.Name, s.Name)
}

// awaitGone waits until a volume that is being deleted is gone.
func (c *Server) awaitGone(ctx context.Context, name string) error {
	return request.Await(ctx, "deleting volume "+name, func() (bool, string, error) {
		v, err := c.manager.Volume(ctx, name)
		if client.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", request.FromManager(err, codes.Internal, "reading volume "+name)
		}
		return false, "state " + v.State, nil
	})
}

// begin holds the lock of what a call works on, and bounds the call by patience, until end is
// called. ABORTED: another call works on it.
func (c *Server) begin(ctx context.Context, about, call string) (_ context.Context, end func(), err error) {
	release, err := c.locks.Take(about, call)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	return ctx, func() { cancel(); release() }, nil
}

// volume reads a volume that a call is about.
func (c *Server) volume(ctx context.Context, id string) (*resource.Volume, error) {
	if err := request.CheckID(id); err != nil {
		return nil, err
	}
	v, err := c.manager.Volume(ctx, id)
	return v, request.FromManager(err, codes.Internal, "reading volume "+id)
}

// size of a volume in bytes.
func size(v *resource.Volume) int64 {
	n, _ := strconv.ParseInt(v.Size, 10, 64) // the manager writes decimal numbers
	return n
}
