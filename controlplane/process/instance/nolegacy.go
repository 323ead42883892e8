//go:build nolegacy

package instance

import "ankole.storage/api/longhorn/v1beta2"

// legacyProcesses: without support for older types nobody reads their field.
func legacyProcesses(*v1beta2.InstanceManager) map[string]v1beta2.InstanceProcess { return nil }
