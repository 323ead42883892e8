package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/host/version"
)

// DriverName is what StorageClasses, PersistentVolumes and CSIDriver objects call the driver.
const DriverName = naming.CSIDriver

// identity serves the identity service.
type identity struct {
	spec.UnimplementedIdentityServer
	manager request.Manager
}

// GetPluginInfo implements the identity service.
func (*identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: DriverName, VendorVersion: version.Version}, nil
}

// GetPluginCapabilities implements the identity service. Topology is offered where the setting
// names keys: without any, nothing limits where a volume is used.
func (i *identity) GetPluginCapabilities(ctx context.Context, _ *spec.GetPluginCapabilitiesRequest) (
	*spec.GetPluginCapabilitiesResponse, error) {
	keys, err := request.TopologyKeys(ctx, i.manager)
	if err != nil {
		return nil, request.FromManager(err, codes.Internal, "reading setting "+request.TopologySetting)
	}
	services := []spec.PluginCapability_Service_Type{spec.PluginCapability_Service_CONTROLLER_SERVICE}
	if len(keys) > 0 {
		services = append(services, spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	out := &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{
		Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{
			Type: spec.PluginCapability_VolumeExpansion_ONLINE}}}}}
	for _, s := range services {
		out.Capabilities = append(out.Capabilities, &spec.PluginCapability{
			Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: s}}})
	}
	return out, nil
}

// Probe implements the identity service. Nothing has to be ready for a call to be taken: the node
// serves while the manager is away, and a call that needs it says so.
func (*identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
