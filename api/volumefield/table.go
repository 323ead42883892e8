package volumefield

// override are the words of most fields that override a setting; balance and integrity those of the others.
var (
	override  = []string{ignored, "enabled", "disabled"}
	balance   = []string{ignored, "disabled", "least-effort", "best-effort"}
	integrity = []string{ignored, "disabled", "enabled", "fast-check"}
)

// same is a parameter of the field's name.
var same = &Parameter{}

const (
	ignored  = "ignored"
	created  = "create"
	required = "create,required"
)

// Why parameters are refused that need what is not built.
const (
	MissingSources = "has a backing image made, which this version does not do: make the image first, and name it in " +
		"parameter backingImage"
	MissingExports = "exports a volume to a backing image, which this version does not do"
)

// All is the table, in the order in which parameters are listed.
var All = []Field{
	{Name: "name", Type: "string", Kind: Own, API: "create,required,unique"},
	{Name: "size", Kind: Size, Keeps: true, API: required, Shown: "100G", Doc: "a Kubernetes quantity, for instance 20Gi",
		Flag: &Option{"size", "size, for instance 20Gi (rounded up to 2Mi)"}},
	{Name: "numberOfReplicas", Kind: Number, What: "replica count", Least: 1, Most: 20,
		Setting: "default-replica-count", Keeps: true, API: required, Shown: "2",
		Doc:       "0 means setting default-replica-count",
		Change:    &Change{Action: "updateReplicaCount", Field: "replicaCount", When: WhenAttached},
		Parameter: same,
		Flag:      &Option{"replicas", "number of copies, 1 to 20 (default: setting default-replica-count)"}},
	{Name: "staleReplicaTimeout", Kind: Number, Most: 1 << 30, API: created, Shown: "2880", Doc: "in minutes",
		Parameter: &Parameter{Default: "2880"}},
	{Name: "dataLocality", Kind: Word, What: "data locality mode",
		Words:   []string{"disabled", "best-effort", "strict-local"},
		Setting: "default-data-locality", Keeps: true, API: created, Shown: "disabled",
		Change:    &Change{Action: "updateDataLocality", When: WhenAtRest},
		Parameter: same,
		Flag:      &Option{"data-locality", "disabled, best-effort or strict-local"}},
	{Name: "replicaAutoBalance", Kind: Word, What: "replica auto balance option", Words: balance, Default: ignored,
		Change: &Change{Action: "updateReplicaAutoBalance", Input: "ReplicaAutoBalance",
			Type: "UpdateReplicaAutoBalanceInput", When: WhenAtRest},
		Parameter: same},
	{Name: "diskSelector", Kind: Tags, API: created, Parameter: same,
		Flag: &Option{"disk-tag", "tag that the disks of all replicas carry; may be repeated"}},
	{Name: "nodeSelector", Kind: Tags, API: created, Parameter: same,
		Flag: &Option{"node-tag", "tag that the nodes of all replicas carry; may be repeated"}},
	{Name: "migratable", Kind: Flag, Doc: "access mode rwx on two nodes, while the user moves",
		Parameter: same},
	{Name: "encrypted", Kind: Flag, Doc: "LUKS between the device and its users; the node service makes it",
		Parameter: same},
	{Name: "revisionCounterDisabled", Kind: Flag, API: required, Shown: "false",
		Parameter: &Parameter{Name: "disableRevisionCounter", Default: "true"}},
	{Name: "unmapMarkSnapChainRemoved", Kind: Word, What: "unmap mark snapshot chain removed option", Words: override,
		Default: ignored, API: required, Shown: ignored,
		Change:    &Change{Action: "updateUnmapMarkSnapChainRemoved", When: WhenAtRest},
		Parameter: same},
	{Name: "replicaSoftAntiAffinity", Kind: Word, What: "replica soft anti-affinity option", Words: override,
		Default: ignored, API: required, Shown: ignored,
		Change:    &Change{Action: "updateReplicaSoftAntiAffinity", When: WhenAtRest},
		Parameter: same},
	{Name: "replicaZoneSoftAntiAffinity", Kind: Word, What: "replica zone soft anti-affinity option", Words: override,
		Default: ignored, API: required, Shown: ignored,
		Change:    &Change{Action: "updateReplicaZoneSoftAntiAffinity", When: WhenAtRest},
		Parameter: same},
	{Name: "replicaDiskSoftAntiAffinity", Kind: Word, What: "replica disk soft anti-affinity option", Words: override,
		Default: ignored, API: required, Shown: ignored,
		Change:    &Change{Action: "updateReplicaDiskSoftAntiAffinity", When: WhenAtRest},
		Parameter: same},
	{Name: "frontend", Kind: Word, What: "volume frontend specified", Words: []string{"blockdev"}, Keeps: true,
		API: created, NotBuilt: map[string]string{"iscsi": "iSCSI target"},
		Parameter: same},
	{Name: "freezeFilesystemForSnapshot", Kind: Word, What: "freeze filesystem for snapshot option", Words: override,
		Default:   ignored,
		Change:    &Change{Action: "updateFreezeFilesystemForSnapshot", When: WhenAtRest},
		Parameter: same},
	{Name: "snapshotDataIntegrity", Kind: Word, What: "snapshot data integrity", Words: integrity, Default: ignored,
		API: created, Shown: ignored,
		Change:    &Change{Action: "updateSnapshotDataIntegrity", When: WhenAtRest},
		Parameter: same},
	{Name: "snapshotMaxCount", Kind: Number, What: "snapshot max count", Least: 2, Most: 250,
		Setting: "snapshot-max-count", Change: &Change{Action: "updateSnapshotMaxCount", When: WhenAtRest},
		Parameter: same},
	{Name: "snapshotMaxSize", Kind: Size, What: "snapshot max size", Doc: "in bytes",
		Change:    &Change{Action: "updateSnapshotMaxSize", When: WhenAtRest},
		Parameter: same},
	{Name: "offlineRebuilding", Kind: Word, What: "offline rebuilding option", Words: override, Default: ignored,
		Change: &Change{Action: "offlineReplicaRebuilding", Input: "UpdateOfflineRebuildingInput",
			When: WhenOpened},
		Parameter: same},
	{Name: "rebuildConcurrentSyncLimit", Kind: Number, What: "rebuild concurrent sync limit", Most: 5, API: created,
		Shown: "0", Doc: "files at the same time; 0 leaves it to the setting",
		Change:    &Change{Action: "updateRebuildConcurrentSyncLimit", When: WhenAtRest},
		Parameter: same},
	{Name: "replicaRebuildingBandwidthLimit", Kind: Number, Type: "int64", What: "replica rebuilding bandwidth limit",
		Most: 1 << 20, Unit: " MiB per second", Doc: "in MiB per second; 0 leaves it to the setting",
		Change: &Change{Action: "updateReplicaRebuildingBandwidthLimit", Quantity: true, When: WhenAtRest}},
	{Name: "backupTargetName", Kind: Text, What: "backup target name", Default: "default", Keeps: true,
		Change:    &Change{Action: "updateBackupTargetName", Input: "UpdateBackupTargetInput", When: WhenAtRest},
		Parameter: same},
	{Name: "backupBlockSize", Kind: Size, Keeps: true, Doc: "in bytes", Parameter: same},
	{Name: "backupCompressionMethod", Kind: Word, What: "backup compression method",
		Words: []string{"none", "lz4", "gzip"}, Setting: "backup-compression-method", Keeps: true,
		API: created, Shown: "lz4",
		Change: &Change{Action: "updateBackupCompressionMethod", Type: "UpdateBackupCompressionInput", When: WhenAtRest}},
	{Name: "restoreVolumeRecurringJob", Kind: Word, What: "restore volume recurring job option", Words: override,
		Default: ignored},
	{Name: "fromBackup", Kind: Text, API: created, Parameter: same},
	{Name: "dataSource", Kind: Text, Keeps: true, API: created,
		Doc: "vol://volume or snap://volume/snapshot; the size is that volume's",
		Parameter: &Parameter{Refused: "would give whoever uses the class the content of that volume: a " +
			"claim names the source of its content itself, in spec.dataSource"}},
	{Name: "cloneMode", Kind: Word, What: "clone mode", Words: []string{"full-copy"}, Keeps: true, API: created,
		Parameter: same},
	{Name: "recurringJobSelector", Kind: Own, Type: "[]VolumeRecurringJob", API: created,
		Parameter: same},
	{Name: "dataEngine", Kind: Word, What: "data engine", Words: []string{"v1"}, Default: "v1", API: required, Shown: "v1",
		Parameter: same},
	{Name: "deleteSnapshotsWithVolume", Kind: Flag, API: created, Shown: "false",
		Doc:       "the CSI driver deletes the volume though VolumeSnapshots stand on it",
		Parameter: same},
	{Name: "accessMode", Kind: Word, What: "access mode", Words: []string{"rwo", "rwx", "rwop"}, Default: "rwo",
		Keeps: true, API: created, Shown: "rwo",
		Change: &Change{Action: "updateAccessMode", When: WhenDetached}},
	{Name: "backingImage", Kind: Text, API: created, Doc: "the image below the volume; it must be there",
		Parameter: same,
		Flag:      &Option{"backing-image", "image that the volume is made from"}},
	{Name: "standby", Kind: Flag, API: created, Shown: "false"},
	{Name: "topologyRequirement", Kind: Own, Type: "[]TopologyTerm", Schema: "array[string]", Keeps: true,
		Doc: "a list of objects; the schema has always said strings"},
}
