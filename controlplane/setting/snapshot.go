package setting

// Settings of category snapshot.
const (
	FreezeFilesystemForSnapshot                              = "freeze-filesystem-for-snapshot"
	AutoCleanupSystemGeneratedSnapshot                       = "auto-cleanup-system-generated-snapshot"
	AutoCleanupRecurringJobBackupSnapshot                    = "auto-cleanup-recurring-job-backup-snapshot"
	SnapshotDataIntegrity                                    = "snapshot-data-integrity"
	SnapshotDataIntegrityImmediateCheckAfterSnapshotCreation = "snapshot-data-integrity-immediate-check-after-snapshot-creation"
	SnapshotDataIntegrityCronJob                             = "snapshot-data-integrity-cronjob"
	SnapshotMaxCount                                         = "snapshot-max-count"
	SnapshotCountWarningThreshold                            = "snapshot-count-warning-threshold"
	AutoCleanupWhenDeleteBackup                              = "auto-cleanup-when-delete-backup"
	AutoCleanupSnapshotAfterOnDemandBackupCompleted          = "auto-cleanup-snapshot-after-on-demand-backup-completed"
)

var snapshotDefinitions = []Definition{
	{
		Name: FreezeFilesystemForSnapshot, DisplayName: "Freeze Filesystem For Snapshot",
		Description: "Freeze the mounted file system while a snapshot is taken, rather than only syncing it. A volume " +
			"can override it.",
		Category: CategorySnapshot, Type: TypeBool, Required: true,
		Default: `{"v1":"false"}`, DataEngineSpecific: true,
	},
	{
		Name: AutoCleanupSystemGeneratedSnapshot, DisplayName: "Automatically Cleanup System Generated Snapshot",
		Description: "Remove the snapshots that the system makes for rebuilds once they are done.",
		Category:    CategorySnapshot, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: AutoCleanupRecurringJobBackupSnapshot, DisplayName: "Automatically Cleanup Recurring Job Backup Snapshot",
		Description: "Remove the snapshot that a recurring backup was made from.",
		Category:    CategorySnapshot, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: SnapshotDataIntegrity, DisplayName: "Snapshot Data Integrity",
		Description: "Checksums of snapshots: none, computed in every check, or only for files that changed since the " +
			"last one. A volume can override it.",
		Category: CategorySnapshot, Type: TypeString, Required: true,
		Default: `{"v1":"fast-check","v2":"fast-check"}`, DataEngineSpecific: true,
		Options: []string{"disabled", "enabled", "fast-check"},
	},
	{
		Name:        SnapshotDataIntegrityImmediateCheckAfterSnapshotCreation,
		DisplayName: "Immediate Snapshot Data Integrity Check After Creating a Snapshot",
		Description: "Compute the checksum of a snapshot as soon as it is taken.",
		Category:    CategorySnapshot, Type: TypeBool, Required: true,
		Default: `{"v1":"false"}`, DataEngineSpecific: true,
	},
	{
		Name: SnapshotDataIntegrityCronJob, DisplayName: "Snapshot Data Integrity Check CronJob",
		Description: "When checksums of snapshots are checked, as a cron line of five fields.",
		Category:    CategorySnapshot, Type: TypeString, Required: true,
		Default: `{"v1":"0 0 */7 * *","v2":"0 0 */7 * *"}`, DataEngineSpecific: true,
	},
	{
		Name: SnapshotMaxCount, DisplayName: "Snapshot Maximum Count",
		Description: "Number of snapshots a volume may have, for volumes created without one.",
		Category:    CategorySnapshot, Type: TypeInt, Required: true,
		Default: "250", Range: between(2, 250),
	},
	{
		Name: SnapshotCountWarningThreshold, DisplayName: "Snapshot Count Warning Threshold",
		Description: "Number of snapshots of a volume from which its condition TooManySnapshots warns.",
		Category:    CategorySnapshot, Type: TypeInt, Required: true,
		Default: "100", Range: between(2, 250),
	},
	{
		Name: AutoCleanupWhenDeleteBackup, DisplayName: "Automatically Cleanup Snapshot When Deleting Backup",
		Description: "Delete the snapshot a backup was made from together with the backup.",
		Category:    CategorySnapshot, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name:        AutoCleanupSnapshotAfterOnDemandBackupCompleted,
		DisplayName: "Automatically Cleanup Snapshot After On-Demand Backup Completed",
		Description: "Delete the snapshot a backup was made from when the backup is complete, unless a recurring job " +
			"made it.",
		Category: CategorySnapshot, Type: TypeBool, Required: true,
		Default: "false",
	},
}
