//go:build !nolegacy

package instance

import "ankole.storage/api/longhorn/v1beta2"

// legacyProcesses are the processes, of either kind, in an instance manager of type engine or
// replica.
func legacyProcesses(im *v1beta2.InstanceManager) map[string]v1beta2.InstanceProcess {
	return im.Status.Instances
}
