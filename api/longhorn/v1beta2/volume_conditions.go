package v1beta2

// Condition types of a Volume.
const (
	VolumeConditionScheduled                = "Scheduled"
	VolumeConditionRestore                  = "Restore"
	VolumeConditionTooManySnapshots         = "TooManySnapshots"
	VolumeConditionWaitForBackingImage      = "WaitForBackingImage"
	VolumeConditionBackingImageIncompatible = "BackingImageIncompatible"
	VolumeConditionOfflineRebuilding        = "OfflineRebuilding"
	// VolumeConditionHasContent is True once a Pod has run with the volume, and is never taken back:
	// such a volume was formatted, or written to as a block device.
	VolumeConditionHasContent = "HasContent"
	// Our additions, each True while: a disk has no room for the wanted size; somebody on the node has
	// the file system mounted that is to leave it; the file system takes no writes and its disks are
	// full. The message names the disks, or who that is.
	VolumeConditionWaitForExpansion = "WaitForExpansion"
	VolumeConditionDeviceKept       = "DeviceKept"
	VolumeConditionNoSpace          = "NoSpace"
)

// Reasons of the conditions of a Volume.
const (
	VolumeReasonReplicaSchedulingFailure        = "ReplicaSchedulingFailure"
	VolumeReasonLocalReplicaSchedulingFailure   = "LocalReplicaSchedulingFailure"
	VolumeReasonRestoreInProgress               = "RestoreInProgress"
	VolumeReasonRestoreFailure                  = "RestoreFailure"
	VolumeReasonTooManySnapshots                = "TooManySnapshots"
	VolumeReasonPodRan                          = "PodRan"
	VolumeReasonBackingImageVirtualSizeTooLarge = "BackingImageVirtualSizeTooLarge"
	VolumeReasonOfflineRebuildingInProgress     = "OfflineRebuildingInProgress"
)
