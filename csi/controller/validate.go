package controller

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/request"
)

// ValidateVolumeCapabilities implements the controller service.
func (c *Server) ValidateVolumeCapabilities(ctx context.Context, r *spec.ValidateVolumeCapabilitiesRequest) (
	*spec.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, request.Refuse("a volume id and capabilities are needed")
	}
	v, err := c.volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	u, err := request.UsageOfAll(r.GetVolumeCapabilities())
	switch {
	case err != nil:
		return &spec.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	case u.Mode == request.ModeMany && !v.Migratable:
		return &spec.ValidateVolumeCapabilitiesResponse{Message: "the volume is not migratable"}, nil
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
		MutableParameters: r.GetMutableParameters()}}, nil
}
