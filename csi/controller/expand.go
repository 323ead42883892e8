package controller

import (
	"context"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// ControllerExpandVolume implements the controller service. It answers when the volume has the
// size, attached or not; the file system is the node's part.
func (c *Server) ControllerExpandVolume(ctx context.Context, r *spec.ControllerExpandVolumeRequest) (
	*spec.ControllerExpandVolumeResponse, error) {
	name, limit := r.GetVolumeId(), r.GetCapacityRange().GetLimitBytes()
	if name == "" || r.GetCapacityRange() == nil {
		return nil, request.Refuse("a volume id and a capacity range are needed")
	}
	ctx, end, err := c.begin(ctx, name, "ControllerExpandVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	v, err := c.volume(ctx, name)
	if err != nil {
		return nil, err
	}
	// A range without a lower bound asks for nothing more than there is.
	wanted := max(admission.RoundSize(r.GetCapacityRange().GetRequiredBytes()), size(v))
	if limit > 0 && wanted > limit {
		return nil, status.Errorf(codes.OutOfRange, "volume %s would have %d bytes, at most %d are wanted", name, wanted,
			limit)
	}
	if v, err = c.grow(ctx, v, wanted, 0); err != nil {
		return nil, err
	}
	// The mapper device of a block volume grows on the node.
	onNode := r.GetVolumeCapability().GetBlock() == nil || v.Encrypted
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: size(v), NodeExpansionRequired: onNode}, nil
}

// grow waits until a volume has a size, which it is asked for first if it is smaller. What refuses
// that is asked again for so long.
func (c *Server) grow(ctx context.Context, v *resource.Volume, wanted int64, again time.Duration) (
	*resource.Volume, error) {
	name := v.Name
	if size(v) < wanted {
		if err := c.orderGrowth(ctx, name, wanted, again); err != nil {
			return nil, err
		}
		request.Step("growth-ordered")
	}
	err := request.Await(ctx, "expanding volume "+name, func() (done bool, why string, err error) {
		if v, err = c.volume(ctx, name); err != nil {
			return false, "", err
		}
		if room := v.Conditions[lh.VolumeConditionWaitForExpansion]; room.Status == "True" && !grown(v) {
			return false, "", c.withdrawGrowth(ctx, name, room.Message)
		}
		return size(v) >= wanted && grown(v), "the engine has another size yet" + growthFailure(v), nil
	})
	return v, err
}

// orderGrowth asks for a larger size.
func (c *Server) orderGrowth(ctx context.Context, name string, wanted int64, again time.Duration) error {
	began := time.Now()
	return request.Await(ctx, "expanding volume "+name, func() (bool, string, error) {
		_, err := c.manager.ExpandVolume(ctx, name, strconv.FormatInt(wanted, 10))
		err = request.FromManager(err, codes.FailedPrecondition, "expanding volume "+name)
		if status.Code(err) == codes.FailedPrecondition && time.Since(began) < again {
			return false, status.Convert(err).Message(), nil
		}
		return err == nil, "", err
	})
}

// growthFailure is what an engine says of its last attempt to grow.
func growthFailure(v *resource.Volume) string {
	for _, e := range v.Controllers {
		if e.LastExpansionError != "" {
			return "; its last attempt: " + e.LastExpansionError
		}
	}
	return ""
}

// growNew has a new volume, which has the size of what it was filled with, grow to what its claim
// wants. One that cannot is as useless to the claim as one without a place. What refuses it for a
// moment only, such as the end of the copy, is given time.
func (c *Server) growNew(ctx context.Context, v *resource.Volume, wanted int64) (*resource.Volume, error) {
	grown, err := c.grow(ctx, v, wanted, placePatience)
	if code := status.Code(err); code != codes.FailedPrecondition && code != codes.ResourceExhausted {
		return grown, err
	}
	// Much may have come to be meanwhile; and a manager that cannot read cannot judge either.
	now, unread := c.manager.Volume(ctx, v.Name)
	if unread == nil && size(now) < wanted && neverUsed(now) {
		return nil, &unusable{status.Errorf(codes.ResourceExhausted,
			"volume %s was filled from %s and cannot grow to the %d bytes that are wanted; it is removed: %s", v.Name,
			v.DataSource, wanted, status.Convert(err).Message()), now.ResourceVersion}
	}
	return grown, err
}

// withdrawGrowth takes the wish for a larger size back before its caller is told that there is no
// room: the claim may be made smaller, and a wish that stays would be fulfilled, or refused, for
// ever.
func (c *Server) withdrawGrowth(ctx context.Context, name, why string) error {
	told := status.Errorf(codes.ResourceExhausted, "volume %s cannot grow: %s", name, why)
	_, err := c.manager.CancelExpansion(ctx, name)
	// What the manager refuses has begun meanwhile, or is not there any more: the next call sees it.
	if err := request.FromManager(err, codes.FailedPrecondition,
		"taking back the expansion of volume "+name); err != nil &&
		status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return told
}

// grown reports whether the engine has the size that the volume is to have. One that has never run
// tells no size: it starts with the volume's, unless that has become larger since.
func grown(v *resource.Volume) bool {
	if v.ExpansionRequired {
		return false
	}
	for _, e := range v.Controllers {
		if e.IsExpanding || e.Size != v.Size && (e.Size != "0" || e.Running) {
			return false
		}
	}
	return true
}

// ControllerModifyVolume implements the controller service: what a VolumeAttributesClass asks for.
func (c *Server) ControllerModifyVolume(ctx context.Context, r *spec.ControllerModifyVolumeRequest) (
	*spec.ControllerModifyVolumeResponse, error) {
	name := r.GetVolumeId()
	if name == "" {
		return nil, request.Refuse("no volume id is given")
	}
	changes, err := request.ParseMutable(r.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.begin(ctx, name, "ControllerModifyVolume")
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := c.volume(ctx, name); err != nil {
		return nil, err
	}
	for _, ch := range changes {
		// The value that a volume has changes nothing, so that a call that was cut short is repeated.
		if _, err := c.manager.UpdateVolume(ctx, name, ch.Action, ch.Input); err != nil {
			return nil, request.FromManager(err, codes.FailedPrecondition, "changing "+ch.Name+" of volume "+name)
		}
		request.Step("modified")
	}
	return &spec.ControllerModifyVolumeResponse{}, nil
}
