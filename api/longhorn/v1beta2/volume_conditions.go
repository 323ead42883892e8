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
	// the file system mounted that is to leave it; ranges of the volume are zero that its backup had,
	// and nobody has acknowledged that; the file system takes no writes and its disks are full. The
	// message names the disks, who that is, or the ranges.
	VolumeConditionWaitForExpansion = "WaitForExpansion"
	VolumeConditionDeviceKept       = "DeviceKept"
	VolumeConditionBackupDamage     = "BackupDamage"
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
	// VolumeReasonReplicasOrdered, our addition, is that of condition WaitForReplicas while nothing
	// but the usual moment until processes run is waited for.
	VolumeReasonReplicasOrdered = "ReplicasOrdered"
)
