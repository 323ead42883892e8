package instancemanager

import (
	"maps"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// legacy tells an instance manager of type engine or replica: made by an older version, kept while
// it has processes that run, never made again.
func legacy(im *v1beta2.InstanceManager) bool {
	return im.Spec.Type == v1beta2.InstanceManagerTypeEngine || im.Spec.Type == v1beta2.InstanceManagerTypeReplica
}

// legacyInstances puts the processes where clients look for them in objects of the old types.
func legacyInstances(status *v1beta2.InstanceManagerStatus, p *Processes) {
	status.InstanceEngines, status.InstanceReplicas = nil, nil
	status.Instances = maps.Clone(p.Engines)
	maps.Copy(status.Instances, p.Replicas)
}

// decideLegacy lets the object go, and with it its Pod, as soon as nothing runs in it. While the
// Pod runs but its processes are not known, nobody can tell.
func decideLegacy(im *v1beta2.InstanceManager, s seen) loop.Decision {
	if mayWork(s) {
		return loop.Decision{After: followRetry}
	}
	return remove(im, s, im)
}
