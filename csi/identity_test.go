package csi

import (
	"context"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"ankole.storage/csi/request"
	"ankole.storage/rest/resource"
)

// keys is a manager that states which keys of topology are allowed, and has no other calls.
type keys struct {
	request.Manager
	allowed string
}

func (k keys) Setting(_ context.Context, name string) (*resource.Setting, error) {
	return &resource.Setting{Name: name, Value: k.allowed}, nil
}

// TestTopologyIsOffered: only where the setting names keys.
func TestTopologyIsOffered(t *testing.T) {
	for _, allowed := range []string{"", request.LabelZone, request.LabelZone + "," + request.LabelHost + ",other"} {
		caps, err := (&identity{manager: keys{allowed: allowed}}).GetPluginCapabilities(t.Context(),
			&spec.GetPluginCapabilitiesRequest{})
		topology := false
		for _, c := range caps.GetCapabilities() {
			topology = topology || c.GetService().GetType() == spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS
		}
		if err != nil || topology != (allowed != "") {
			t.Errorf("%q: topology is offered: %v, %v", allowed, topology, err)
		}
	}
}
