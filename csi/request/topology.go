package request

import (
	"context"
	"strings"

	"ankole.storage/controlplane/setting"
)

// Keys of topology segments: labels of Kubernetes nodes that the manager knows.
const (
	LabelZone   = "topology.kubernetes.io/zone"
	LabelRegion = "topology.kubernetes.io/region"
	LabelHost   = "kubernetes.io/hostname"
	// TopologySetting names the keys that volumes may be bound by.
	TopologySetting = setting.CSIAllowedTopologyKeys
)

// TopologyKeys are the keys that volumes may be bound by, as the setting says; none by default.
// Errors are those of the manager.
func TopologyKeys(ctx context.Context, m Manager) ([]string, error) {
	s, err := m.Setting(ctx, TopologySetting)
	if err != nil {
		return nil, err
	}
	var keys []string
	for key := range strings.SplitSeq(s.Value, ",") {
		if key = strings.TrimSpace(key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
