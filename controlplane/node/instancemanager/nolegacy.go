//go:build nolegacy

package instancemanager

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/setting"
)

// Without support for types engine and replica an object of one of them is an instance manager of
// another image: removed when it is idle, never given a request of its own.

func legacy(*v1beta2.InstanceManager) bool { return false }

func isLegacy(v1beta2.InstanceManagerType) bool { return false }

// LegacyCPUPercent has no share of an older type.
type LegacyCPUPercent struct{}

var legacyPodSettings []string

func legacyPercent(setting.Values) LegacyCPUPercent { return LegacyCPUPercent{} }

func legacyCPU(v1beta2.InstanceManagerType, *v1beta2.Node, PodSettings) (own int, percent float64, name string) {
	return 0, 0, ""
}

func legacyInstances(*v1beta2.InstanceManagerStatus, *heard.Processes) {}

func decideLegacy(*v1beta2.InstanceManager, seen) loop.Decision { return loop.Decision{} }
