package setting

// Settings of ours; other clients show them like any other.
const (
	BlockDeviceTransport = "block-device-transport"
	BlockDeviceWait      = "block-device-wait"
	APIAnonymousAccess   = "api-anonymous-access"
	APIHostNames         = "api-host-names"
	APITokenAudience     = "api-token-audience"
	// AllowedImageRegistries and AllowedDiskPaths show what the managers were given at their start.
	AllowedImageRegistries = "allowed-image-registries"
	AllowedDiskPaths       = "allowed-disk-paths"
	SnapshotSpaceFactor    = "default-snapshot-space-factor"
	ClaimsLeaveDefaultJobs = "allow-claims-to-leave-default-jobs"
	// BackupVerifyInterval is in hours, BackupVerifyBandwidthLimit in MiB per second.
	BackupVerifyInterval       = "backup-verify-interval"
	BackupVerifyBandwidthLimit = "backup-verify-bandwidth-limit"
	// BackupBandwidthLimit is in MiB per second, of a node.
	BackupBandwidthLimit = "backup-bandwidth-limit"
	// ReplicaRebuildingBandwidthLimit is known to clients as one of data engine v2.
	ReplicaRebuildingBandwidthLimit = "replica-rebuilding-bandwidth-limit"
)

// Values of APITokenAudience.
const (
	AudienceAny = "any"
	AudienceOwn = "longhorn-backend"
)

// Values of APIAnonymousAccess.
const (
	AnonymousNone     = "none"
	AnonymousReadOnly = "read-only"
	AnonymousAll      = "all"
)

// Values of BlockDeviceTransport.
const (
	TransportAuto     = "auto"
	TransportUblk     = "ublk"
	TransportFUSELoop = "fuse-loop"
	TransportNBDUnix  = "nbd-unix"
)

var additionalDefinitions = []Definition{
	{
		Name: BlockDeviceTransport, DisplayName: "Block Device Transport",
		Description: "How an engine makes the block device of a volume. auto takes the best one the node has; ublk is one of " +
			"the kernel's driver ublk_drv (Linux 6.5; 6.16 to expand a volume in use), which has to be loaded on the node; " +
			"fuse-loop is a loop device over a file of the engine; nbd-unix is no device but a socket that speaks the " +
			"NBD protocol. It holds for engines started after the change.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: TransportAuto, Options: []string{TransportAuto, TransportUblk, TransportFUSELoop,
			TransportNBDUnix},
	},
	{
		Name: BlockDeviceWait, DisplayName: "Block Device Wait",
		Description: "Seconds that the block device of an attached volume stays, and I/O on it waits, while no engine " +
			"can serve it because too few replicas are there. Then I/O fails, and the volume is faulted and detached. " +
			"A volume that waits already is detached after the new time; its device may fail after the old one.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: "300", Range: between(10, 86400),
	},
	{
		Name: APIAnonymousAccess, DisplayName: "Anonymous Access to the API",
		Description: "What the REST API does for callers who show no Kubernetes token and have not logged in: nothing " +
			"(none), only what changes nothing (read-only), or everything (all), which is for clients that know no " +
			"tokens, in clusters where whoever reaches the API may do everything. Metrics and health answer everybody. " +
			"Callers without a token cannot change this setting.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: AnonymousNone, Options: []string{AnonymousNone, AnonymousReadOnly, AnonymousAll},
	},
	{
		Name: APITokenAudience, DisplayName: "Audience of Tokens for the API",
		Description: "Which Kubernetes tokens the REST API takes: those for the API server of the cluster too (any), or only " +
			"those that are for nobody else (longhorn-backend): kubectl create token ACCOUNT --audience longhorn-backend. The " +
			"former are good for all that their user may do in the cluster, wherever they get to. Callers without a token " +
			"cannot change this setting.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: AudienceAny, Options: []string{AudienceAny, AudienceOwn},
	},
	{
		Name: APIHostNames, DisplayName: "Host Names of the API",
		Description: "Names, separated by semicolons, by which callers without a token may ask for the REST API, besides " +
			"addresses, localhost, the Services of the system and the host in manager-url. A name that is not known may be " +
			"one that a page of another site lets point to this server. An asterisk stands for every name.",
		Category: CategoryGeneral, Type: TypeString,
	},
	{
		Name: AllowedImageRegistries, DisplayName: "Allowed Image Registries",
		Description: "Registries, or paths in them, from which images of engines and instance managers may be: what they " +
			"hold runs as root on nodes. It is given to the managers at their start, in the chart by value " +
			"allowedImageRegistries, and nobody can change it here. Images that are known already stay.",
		Category: CategorySystemInfo, Type: TypeString, ReadOnly: true,
	},
	{
		Name: AllowedDiskPaths, DisplayName: "Allowed Disk Paths",
		Description: "Directories of nodes in which disks may be; empty: any. It is given to the managers at their start, in " +
			"the chart by value allowedDiskPaths, and nobody can change it here. Disks that are known already stay.",
		Category: CategorySystemInfo, Type: TypeString, ReadOnly: true,
	},
	{
		Name: SnapshotSpaceFactor, DisplayName: "Default Snapshot Space Factor",
		Description: "How many times the size of a volume its snapshots may occupy in each replica, if the volume has no " +
			"snapshotMaxSize; 0 sets no limit. Beyond it no snapshot is taken until some are deleted. It is written down with a " +
			"volume when that is created; volumes that are there keep what they have.",
		Category: CategorySnapshot, Type: TypeInt, Required: true,
		Default: "10", Range: between(0, 1000),
	},
	{
		Name: ClaimsLeaveDefaultJobs, DisplayName: "Allow Claims to Leave Default Jobs",
		Description: "Whether a PersistentVolumeClaim that is the source of its volume's recurring jobs can take the volume " +
			"out of group default. If not, its labels add jobs and groups to those of the group.",
		Category: CategorySnapshot, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: BackupVerifyInterval, DisplayName: "Backup Verify Interval",
		Description: "Hours between the end of a verification of the backups of a volume, or of a backing image, and the next " +
			"one, which reads every block that the backup target has of it; 0 means that only those take place that somebody asks for.",
		Category: CategoryBackup, Type: TypeInt, Required: true,
		Default: "0", Range: between(0, 8784),
	},
	{
		Name: BackupVerifyBandwidthLimit, DisplayName: "Backup Verify Bandwidth Limit",
		Description: "What verifications of backups read from a backup target at most, in MiB per second. One volume or " +
			"backing image of a target is verified at a time.",
		Category: CategoryBackup, Type: TypeInt, Required: true,
		Default: "20", Range: between(1, 1<<20),
	},
	{
		Name: BackupBandwidthLimit, DisplayName: "Backup Bandwidth Limit",
		Description: "What all backups and restores on a node together send to backup targets and read from them at most, in " +
			"MiB per second, as it is stored; 0 means no limit. It holds for those that begin after a change.",
		Category: CategoryBackup, Type: TypeInt, Required: true,
		Default: "0", Range: between(0, 1<<20),
	},
	{
		Name: ReplicaRebuildingBandwidthLimit, DisplayName: "Replica Rebuilding Bandwidth Limit",
		Description: "What the engine of a volume sends to replicas that it rebuilds at most, in MiB per second; 0 means no " +
			"limit. Rebuilds give way to users of the volume in any case. It holds for rebuilds under way too.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: `{"v1":"0","v2":"0"}`, DataEngineSpecific: true, Range: between(0, 1<<20),
	},
}
