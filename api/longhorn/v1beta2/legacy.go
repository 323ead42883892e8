package v1beta2

import "k8s.io/apimachinery/pkg/util/json"

// Types of instance managers that are not created any more. They go on as long as they hold running processes.
const (
	InstanceManagerTypeEngine  InstanceManagerType = "engine"
	InstanceManagerTypeReplica InstanceManagerType = "replica"
)

// LegacyInstanceManagerSpec holds what only old clients read in the spec of an InstanceManager.
type LegacyInstanceManagerSpec struct {
	// EngineImage is always empty.
	// +optional
	EngineImage string `json:"engineImage"`
}

// LegacyInstanceManagerStatus holds what only instance managers of types engine and replica use.
type LegacyInstanceManagerStatus struct {
	// Instances are the processes of an instance manager of type engine or replica, by instance name.
	// +optional
	// +nullable
	Instances map[string]InstanceProcess `json:"instances,omitempty"`
}

// LegacyNodeSpec holds the CPU requests for instance managers of types engine and replica.
type LegacyNodeSpec struct {
	// EngineManagerCPURequest is the request in thousandths of a CPU for an instance manager of type engine; 0 leaves
	// it to setting guaranteed-engine-manager-cpu.
	// +optional
	EngineManagerCPURequest int `json:"engineManagerCPURequest"`
	// ReplicaManagerCPURequest is the same for type replica and setting guaranteed-replica-manager-cpu.
	// +optional
	ReplicaManagerCPURequest int `json:"replicaManagerCPURequest"`
}

// LegacyVolumeSpec holds the older name of spec.image.
type LegacyVolumeSpec struct {
	// EngineImage is kept equal to image; either may be written.
	// +optional
	EngineImage string `json:"engineImage,omitempty"`
}

// LegacyInstanceSpec holds the older name of spec.image of Engine and Replica.
type LegacyInstanceSpec struct {
	// EngineImage is kept equal to image; either may be written.
	// +optional
	EngineImage string `json:"engineImage,omitempty"`
}

// MergeImages returns the one engine image meant by the two fields image and engineImage of a spec, given the image
// before the change (empty on creation). The field that was changed wins; if both were, image does.
func MergeImages(before, image, engineImage string) string {
	switch {
	case engineImage == "" || engineImage == image:
		return image
	case image == "" || image == before:
		return engineImage
	}
	return image
}

// Objects that were stored before image had that name have engineImage alone. Whoever reads them finds it in both
// fields: a controller that saw no image would take the volume for one that waits for another engine.

// UnmarshalJSON reads the specification, with the older name of image too.
func (s *VolumeSpec) UnmarshalJSON(data []byte) error {
	type plain VolumeSpec
	return unmarshalImage(data, (*plain)(s), &s.Image, &s.EngineImage)
}

// UnmarshalJSON reads the specification, with the older name of image too.
func (s *EngineSpec) UnmarshalJSON(data []byte) error {
	type plain EngineSpec
	return unmarshalImage(data, (*plain)(s), &s.Image, &s.EngineImage)
}

// UnmarshalJSON reads the specification, with the older name of image too.
func (s *ReplicaSpec) UnmarshalJSON(data []byte) error {
	type plain ReplicaSpec
	return unmarshalImage(data, (*plain)(s), &s.Image, &s.EngineImage)
}

// unmarshalImage reads a specification into one of its type without methods.
func unmarshalImage(data []byte, plain any, image, engineImage *string) error {
	if err := json.Unmarshal(data, plain); err != nil {
		return err
	}
	if *image == "" {
		*image = *engineImage
	}
	return nil
}
