package setting

// Settings of category backup.
const (
	AllowRecurringJobWhileVolumeDetached = "allow-recurring-job-while-volume-detached"
	FailedBackupTTL                      = "failed-backup-ttl"
	BackupExecutionTimeout               = "backup-execution-timeout"
	RestoreVolumeRecurringJobs           = "restore-volume-recurring-jobs"
	RecurringSuccessfulJobsHistoryLimit  = "recurring-successful-jobs-history-limit"
	RecurringFailedJobsHistoryLimit      = "recurring-failed-jobs-history-limit"
	RecurringJobMaxRetention             = "recurring-job-max-retention"
	BackupCompressionMethod              = "backup-compression-method"
	BackupConcurrentLimit                = "backup-concurrent-limit"
	RestoreConcurrentLimit               = "restore-concurrent-limit"
	DefaultBackupBlockSize               = "default-backup-block-size"
)

var backupDefinitions = []Definition{
	{
		Name: AllowRecurringJobWhileVolumeDetached, DisplayName: "Allow Recurring Job While Volume Is Detached",
		Description: "Recurring snapshots and backups attach detached volumes while they run. A workload that wants " +
			"the volume waits for the end of the job.",
		Category: CategoryBackup, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: FailedBackupTTL, DisplayName: "Failed Backup Time to Live",
		Description: "Minutes a failed backup is kept in the list. 0 keeps it. It is looked at whenever the backup " +
			"store is polled.",
		Category: CategoryBackup, Type: TypeInt, Required: true,
		Default: "1440", Range: from(0),
	},
	{
		Name: BackupExecutionTimeout, DisplayName: "Backup Execution Timeout",
		Description: "Minutes an operation on the backup store, such as listing or deleting, may take.",
		Category:    CategoryBackup, Type: TypeInt, Required: true,
		Default: "1", Range: from(1),
	},
	{
		Name: RestoreVolumeRecurringJobs, DisplayName: "Restore Volume Recurring Jobs",
		Description: "Bring back the recurring jobs stored with a backup when its volume is restored. A volume can " +
			"override it.",
		Category: CategoryBackup, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: RecurringSuccessfulJobsHistoryLimit, DisplayName: "Cronjob Successful Jobs History Limit",
		Description: "Number of finished runs kept for each recurring job.",
		Category:    CategoryBackup, Type: TypeInt,
		Default: "1", Range: from(0),
	},
	{
		Name: RecurringFailedJobsHistoryLimit, DisplayName: "Cronjob Failed Jobs History Limit",
		Description: "Number of failed runs kept for each recurring job.",
		Category:    CategoryBackup, Type: TypeInt,
		Default: "1", Range: from(0),
	},
	{
		Name: RecurringJobMaxRetention, DisplayName: "Maximum Retention Number for Recurring Job",
		Description: "Largest number of snapshots or backups a recurring job may keep.",
		Category:    CategoryBackup, Type: TypeInt, Required: true,
		Default: "100", Range: between(1, 250),
	},
	{
		Name: BackupCompressionMethod, DisplayName: "Backup Compression Method",
		Description: "Compression of the backups of new volumes.",
		Category:    CategoryBackup, Type: TypeString, Required: true,
		Default: "lz4", Options: []string{"none", "lz4", "gzip"},
	},
	{
		Name: BackupConcurrentLimit, DisplayName: "Backup Concurrent Limit Per Backup",
		Description: "Number of blocks one backup works on at the same time.",
		Category:    CategoryBackup, Type: TypeInt, Required: true,
		Default: "2", Range: from(1),
	},
	{
		Name: RestoreConcurrentLimit, DisplayName: "Restore Concurrent Limit Per Backup",
		Description: "Number of blocks one restore works on at the same time.",
		Category:    CategoryBackup, Type: TypeInt, Required: true,
		Default: "2", Range: from(1),
	},
	{
		Name: DefaultBackupBlockSize, DisplayName: "Default Backup Block Size",
		Description: "Size in MiB of the blocks of backups of new volumes.",
		Category:    CategoryBackup, Type: TypeInt, Required: true,
		Default: "2", Options: []string{"2", "16"},
	},
}
