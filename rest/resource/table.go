package resource

import "ankole.storage/api/volumefield"

// Type ties a Go struct to its schema id, its methods and its actions.
type Type struct {
	// ID is the schema id, in the spelling clients know.
	ID string
	// Of is a zero value of the struct whose fields are declared.
	Of any
	// CollectionMethods and ResourceMethods default to GET. They say what clients may try; some
	// routes accept more or less, as the reference has it (a node can be deleted, though its schema
	// does not say so).
	CollectionMethods []string
	ResourceMethods   []string
	Actions           []Action
}

// Action is something a resource can be told to do by POST with ?action=Name.
type Action struct {
	Name string
	// Input and Output are schema ids, or empty for none. A few are misspelt on purpose: clients
	// read them so.
	Input, Output string
	// When says in which states of a volume the action is offered; resources without states always
	// offer theirs.
	When When
}

// When is a set of volume states.
type When = volumefield.When

// Sets of states in which an action of a volume is offered.
const (
	WhenDetached  = volumefield.WhenDetached
	WhenAttaching = volumefield.WhenAttaching
	WhenAttached  = volumefield.WhenAttached
	WhenFaulted   = volumefield.WhenFaulted
	WhenOther     = volumefield.WhenOther
	// WhenSound is every state of a volume that is not faulted.
	WhenSound = WhenDetached | WhenAttaching | WhenAttached | WhenOther
	// WhenAlways is every state.
	WhenAlways = WhenSound | WhenFaulted
	whenAtRest = volumefield.WhenAtRest
	whenOpened = volumefield.WhenOpened
)

// Schema ids used outside this table.
const (
	TypeAPIVersion         = "apiVersion"
	TypeSchema             = "schema"
	TypeError              = "error"
	TypeVolume             = "volume"
	TypeNode               = "node"
	TypeSetting            = "setting"
	TypeEngineImage        = "engineImage"
	TypeInstanceManager    = "instanceManager"
	TypeOrphan             = "orphan"
	TypeVolumeAttachment   = "volumeAttachment"
	TypeEvent              = "event"
	TypeTag                = "tag"
	TypeSnapshot           = "snapshot"
	TypeSnapshotCR         = "snapshotCR"
	TypeEmpty              = "empty"
	TypeVolumeJob          = "volumeRecurringJob"
	TypeRecurringJob       = "recurringJob"
	TypeBackupTarget       = "backupTarget"
	TypeBackupVolume       = "backupVolume"
	TypeBackup             = "backup"
	TypeBackupBackingImage = "backupBackingImage"
	TypeBackingImage       = "backingImage"
	TypeSystemBackup       = "systemBackup"
	TypeSystemRestore      = "systemRestore"
	TypeSupportBundle      = "supportBundle"
)

// Names of actions used outside this table.
const (
	ActionAttach             = "attach"
	ActionDetach             = "detach"
	ActionSalvage            = "salvage"
	ActionActivate           = "activate"
	ActionReplicaRemove      = "replicaRemove"
	ActionUpdateReplicaCount = "updateReplicaCount"
	ActionUpdateDataLocality = "updateDataLocality"
	ActionExpand             = "expand"
	ActionCancelExpansion    = "cancelExpansion"
	ActionTrimFilesystem     = "trimFilesystem"
	ActionEngineUpgrade      = "engineUpgrade"
	ActionDiskUpdate         = "diskUpdate"
	ActionSnapshotCreate     = "snapshotCreate"
	ActionSnapshotList       = "snapshotList"
	ActionSnapshotGet        = "snapshotGet"
	ActionSnapshotDelete     = "snapshotDelete"
	ActionSnapshotRevert     = "snapshotRevert"
	ActionSnapshotPurge      = "snapshotPurge"
	ActionSnapshotCRCreate   = "snapshotCRCreate"
	ActionSnapshotCRList     = "snapshotCRList"
	ActionSnapshotCRGet      = "snapshotCRGet"
	ActionSnapshotCRDelete   = "snapshotCRDelete"
	ActionPVCreate           = "pvCreate"
	ActionPVCCreate          = "pvcCreate"
	ActionRecurringJobAdd    = "recurringJobAdd"
	ActionRecurringJobList   = "recurringJobList"
	ActionRecurringJobDelete = "recurringJobDelete"
	ActionBackupList         = "backupList"
	ActionBackupListByVolume = "backupListByVolume"
	ActionBackupTargetUpdate = "backupTargetUpdate"
	ActionBackupGet          = "backupGet"
	ActionBackupDelete       = "backupDelete"
	ActionBackupTargetSync   = "backupTargetSync"
	ActionBackupVolumeSync   = "backupVolumeSync"

	ActionBackingImageCleanup     = "backingImageCleanup"
	ActionUpload                  = "upload"
	ActionUpdateMinNumberOfCopies = "updateMinNumberOfCopies"
	ActionBackupImageCreate       = "backupBackingImageCreate"
	ActionBackupImageRestore      = "backupBackingImageRestore"
	ActionSnapshotBackup          = "snapshotBackup"
)

var (
	getPost       = []string{"GET", "POST"}
	getDelete     = []string{"GET", "DELETE"}
	getPut        = []string{"GET", "PUT"}
	getPutDelete  = []string{"GET", "PUT", "DELETE"}
	getOnly       = []string{"GET"}
	volumeActions = append(fieldActions(), []Action{
		{"attach", "attachInput", "volume", WhenAlways},
		{"detach", "detachInput", "volume", WhenAlways},
		{"salvage", "salvageInput", "volume", WhenFaulted},
		{ActionActivate, "activateInput", "volume", whenAtRest},
		{ActionExpand, "expandInput", "volume", whenAtRest},
		{ActionCancelExpansion, "", "volume", whenOpened},
		{ActionTrimFilesystem, "", "volume", WhenAttached},
		{ActionEngineUpgrade, "engineUpgradeInput", "volume", whenAtRest},
		{"replicaRemove", "replicaRemoveInput", "volume", whenAtRest},
		{"updateUblkQueueDepth", "UpdateUblkQueueDepthInput", "volume", WhenDetached},
		{"updateUblkNumberOfQueue", "UpdateUblkNumberOfQueueInput", "volume", WhenDetached},
		{ActionSnapshotPurge, "", "volume", WhenAttached},
		{ActionSnapshotCreate, "snapshotInput", "snapshot", WhenAttached},
		{ActionSnapshotList, "", "snapshotListOutput", WhenAttached},
		{ActionSnapshotGet, "snapshotInput", "snapshot", WhenAttached},
		{ActionSnapshotDelete, "snapshotInput", "volume", WhenAttached},
		{ActionSnapshotRevert, "snapshotInput", "snapshot", WhenAttached},
		{ActionSnapshotBackup, "snapshotInput", "volume", WhenSound},
		{ActionSnapshotCRCreate, "snapshotCRInput", "snapshotCR", WhenSound},
		{ActionSnapshotCRList, "", "snapshotCRListOutput", WhenSound},
		{ActionSnapshotCRGet, "snapshotCRInput", "snapshotCR", WhenSound},
		{ActionSnapshotCRDelete, "snapshotCRInput", "empty", WhenSound},
		{ActionPVCreate, "PVCreateInput", "volume", whenAtRest},
		{ActionPVCCreate, "PVCCreateInput", "volume", whenAtRest},
		{ActionRecurringJobAdd, "volumeRecurringJobInput", TypeVolumeJob, whenOpened},
		{ActionRecurringJobList, "", TypeVolumeJob, whenOpened},
		{ActionRecurringJobDelete, "volumeRecurringJobInput", TypeVolumeJob, whenOpened},
	}...)
	backupTargetActions = []Action{
		{ActionBackupTargetSync, "syncBackupResource", "backupTargetListOutput", WhenAlways},
		{ActionBackupTargetUpdate, "backupTarget", "backupTargetListOutput", WhenAlways},
	}
	backupVolumeActions = []Action{
		{ActionBackupList, "", "backupListOutput", WhenAlways},
		{ActionBackupListByVolume, "volume", "backupListOutput", WhenAlways},
		{ActionBackupGet, "backupInput", "backup", WhenAlways},
		{ActionBackupDelete, "backupInput", "backupVolume", WhenAlways},
		{ActionBackupVolumeSync, "syncBackupResource", "backupVolume", WhenAlways},
	}
	backingImageActions = []Action{
		{ActionBackingImageCleanup, "backingImageCleanupInput", "backingImage", WhenAlways},
		{ActionUpload, "", "", WhenAlways},
		{ActionBackupImageCreate, "backupBackingImage", "backupBackingImage", WhenAlways},
		{ActionUpdateMinNumberOfCopies, "updateMinNumberOfCopiesInput", "backingImage", WhenAlways},
	}
)

// fieldActions are those that change one field of a volume.
func fieldActions() (all []Action) {
	for i := range volumefield.All {
		if f := &volumefield.All[i]; f.Change != nil {
			all = append(all, Action{f.Change.Action, f.InputID(), TypeVolume, f.Change.When})
		}
	}
	return all
}

// Types is every declared schema, in the order of the schema document.
var Types = []Type{
	{ID: "apiVersion", Of: APIVersion{}},
	{ID: "schema", Of: Schema{}},
	{ID: "error", Of: Error{}},
	{ID: "attachInput", Of: AttachInput{}},
	{ID: "detachInput", Of: DetachInput{}},
	{ID: "snapshotInput", Of: SnapshotInput{}},
	{ID: "snapshotCRInput", Of: SnapshotCRInput{}},
	{ID: TypeBackup, Of: Backup{}},
	{ID: "backupInput", Of: BackupInput{}},
	{ID: "backupStatus", Of: BackupStatus{}},
	{ID: "syncBackupResource", Of: SyncBackupResource{}},
	{ID: "orphan", Of: Orphan{}},
	{ID: "restoreStatus", Of: RestoreStatus{}},
	{ID: "purgeStatus", Of: PurgeStatus{}},
	{ID: "rebuildStatus", Of: RebuildStatus{}},
	{ID: "replicaRemoveInput", Of: ReplicaRemoveInput{}},
	{ID: "salvageInput", Of: SalvageInput{}},
	{ID: "activateInput", Of: ActivateInput{}},
	{ID: "expandInput", Of: ExpandInput{}},
	{ID: "engineUpgradeInput", Of: EngineUpgradeInput{}},
	{ID: "replica", Of: Replica{}},
	{ID: "controller", Of: Controller{}},
	{ID: "diskUpdate", Of: DiskUpdate{}},
	{ID: "UpdateReplicaCountInput", Of: UpdateReplicaCountInput{}},
	{ID: "UpdateReplicaAutoBalanceInput", Of: UpdateReplicaAutoBalanceInput{}},
	{ID: "UpdateRebuildConcurrentSyncLimitInput", Of: UpdateRebuildConcurrentSyncLimitInput{}},
	{ID: "UpdateDataLocalityInput", Of: UpdateDataLocalityInput{}},
	{ID: "UpdateAccessModeInput", Of: UpdateAccessModeInput{}},
	{ID: "UpdateSnapshotDataIntegrityInput", Of: UpdateSnapshotDataIntegrityInput{}},
	{ID: "UpdateSnapshotMaxCountInput", Of: UpdateSnapshotMaxCountInput{}},
	{ID: "UpdateSnapshotMaxSizeInput", Of: UpdateSnapshotMaxSizeInput{}},
	{ID: "UpdateReplicaRebuildingBandwidthLimitInput", Of: UpdateReplicaRebuildingBandwidthLimitInput{}},
	{ID: "UpdateUblkQueueDepthInput", Of: UpdateUblkQueueDepthInput{}},
	{ID: "UpdateUblkNumberOfQueueInput", Of: UpdateUblkNumberOfQueueInput{}},
	{ID: "UpdateBackupCompressionInput", Of: UpdateBackupCompressionInput{}},
	{ID: "UpdateUnmapMarkSnapChainRemovedInput", Of: UpdateUnmapMarkSnapChainRemovedInput{}},
	{ID: "UpdateReplicaSoftAntiAffinityInput", Of: UpdateReplicaSoftAntiAffinityInput{}},
	{ID: "UpdateReplicaZoneSoftAntiAffinityInput", Of: UpdateReplicaZoneSoftAntiAffinityInput{}},
	{ID: "UpdateReplicaDiskSoftAntiAffinityInput", Of: UpdateReplicaDiskSoftAntiAffinityInput{}},
	{ID: "UpdateFreezeFilesystemForSnapshotInput", Of: UpdateFreezeFilesystemForSnapshotInput{}},
	{ID: "UpdateBackupTargetInput", Of: UpdateBackupTargetInput{}},
	{ID: "UpdateOfflineRebuildingInput", Of: UpdateOfflineRebuildingInput{}},
	{ID: "workloadStatus", Of: WorkloadStatus{}},
	{ID: "cloneStatus", Of: CloneStatus{}},
	{ID: "volumeDataLayout", Of: VolumeDataLayout{}},
	{ID: TypeEmpty, Of: Empty{}},
	{ID: TypeVolumeJob, Of: VolumeRecurringJob{}},
	{ID: "volumeRecurringJobInput", Of: VolumeRecurringJobInput{}},
	{ID: "PVCreateInput", Of: PVCreateInput{}},
	{ID: "PVCCreateInput", Of: PVCCreateInput{}},
	{ID: "settingDefinition", Of: SettingDefinition{}},
	{ID: "volumeCondition", Of: Condition{}},
	{ID: "nodeCondition", Of: Condition{}},
	{ID: "diskCondition", Of: Condition{}},
	{ID: "longhornCondition", Of: Condition{}},
	{ID: "event", Of: Event{}},
	{ID: TypeSupportBundle, Of: SupportBundle{}},
	{ID: "supportBundleInitateInput", Of: SupportBundleInput{}},
	{ID: "tag", Of: Tag{}},
	{ID: "instanceManager", Of: InstanceManager{}},
	{ID: "instanceProcess", Of: InstanceProcess{}},
	{ID: "backingImageDiskFileStatus", Of: BackingImageDiskFileStatus{}},
	{ID: "backingImageCleanupInput", Of: BackingImageCleanupInput{}},
	{ID: "updateMinNumberOfCopiesInput", Of: UpdateMinNumberOfCopiesInput{}},
	{ID: "backingImageRestoreInput", Of: BackingImageRestoreInput{}},
	{ID: "attachment", Of: Attachment{}},
	{ID: "volumeAttachment", Of: VolumeAttachment{}},
	{ID: "volume", Of: Volume{}, CollectionMethods: getPost, ResourceMethods: getDelete, Actions: volumeActions},
	{ID: TypeSnapshot, Of: Snapshot{}},
	{ID: TypeSnapshotCR, Of: SnapshotCR{}},
	{ID: TypeBackupTarget, Of: BackupTarget{}, CollectionMethods: getPost, ResourceMethods: getPutDelete,
		Actions: backupTargetActions},
	{ID: TypeBackupVolume, Of: BackupVolume{}, ResourceMethods: getPutDelete, Actions: backupVolumeActions},
	{ID: TypeBackupBackingImage, Of: BackupBackingImage{}, ResourceMethods: getDelete,
		Actions: []Action{{ActionBackupImageRestore, "backingImageRestoreInput", "backupBackingImage", WhenAlways}}},
	{ID: "setting", Of: Setting{}, ResourceMethods: getPut},
	{ID: TypeRecurringJob, Of: RecurringJob{}, CollectionMethods: getPost, ResourceMethods: getPutDelete},
	{ID: "engineImage", Of: EngineImage{}, CollectionMethods: getPost, ResourceMethods: getDelete},
	{ID: TypeBackingImage, Of: BackingImage{}, CollectionMethods: getPost, ResourceMethods: getDelete,
		Actions: backingImageActions},
	{ID: "node", Of: Node{}, ResourceMethods: getPut,
		Actions: []Action{{"diskUpdate", "diskUpdateInput", "node", WhenAlways}}},
	{ID: "diskUpdateInput", Of: DiskUpdateInput{}},
	{ID: "diskInfo", Of: DiskInfo{}},
	{ID: "kubernetesStatus", Of: KubernetesStatus{}},
	{ID: "backupTargetListOutput", Of: BackupTargetListOutput{}},
	{ID: "backupVolumeListOutput", Of: BackupVolumeListOutput{}},
	{ID: "backupListOutput", Of: BackupListOutput{}},
	{ID: "snapshotListOutput", Of: SnapshotListOutput{}},
	{ID: TypeSystemBackup, Of: SystemBackup{}, CollectionMethods: getPost, ResourceMethods: getDelete},
	{ID: TypeSystemRestore, Of: SystemRestore{}, CollectionMethods: getPost, ResourceMethods: getDelete},
	{ID: "snapshotCRListOutput", Of: SnapshotCRListOutput{}},
}
