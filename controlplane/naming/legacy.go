//go:build !nolegacy

package naming

// Containers of the Pods of instance managers of types engine and replica.
const (
	LegacyEngineManagerContainer  = "engine-manager"
	LegacyReplicaManagerContainer = "replica-manager"
)

// LegacyEngineManagerName returns the name of an instance manager of type engine.
func LegacyEngineManagerName(node, image string) string {
	return "instance-manager-e-" + instanceManagerHash(node, image)
}

// LegacyReplicaManagerName returns the name of an instance manager of type replica.
func LegacyReplicaManagerName(node, image string) string {
	return "instance-manager-r-" + instanceManagerHash(node, image)
}

// LegacyEngineName returns the name older versions gave to engines, given a RandomSuffix.
func LegacyEngineName(volume, suffix string) string { return volume + "-e-" + suffix }
