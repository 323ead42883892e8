package setting

// Settings of category scheduling.
const (
	ReplicaSoftAntiAffinity                     = "replica-soft-anti-affinity"
	ReplicaAutoBalance                          = "replica-auto-balance"
	ReplicaAutoBalanceDiskPressurePercentage    = "replica-auto-balance-disk-pressure-percentage"
	StorageOverProvisioningPercentage           = "storage-over-provisioning-percentage"
	StorageMinimalAvailablePercentage           = "storage-minimal-available-percentage"
	StorageReservedPercentageForDefaultDisk     = "storage-reserved-percentage-for-default-disk"
	DisableSchedulingOnCordonedNode             = "disable-scheduling-on-cordoned-node"
	ReplicaZoneSoftAntiAffinity                 = "replica-zone-soft-anti-affinity"
	AllowVolumeCreationWithDegradedAvailability = "allow-volume-creation-with-degraded-availability"
	ReplicaDiskSoftAntiAffinity                 = "replica-disk-soft-anti-affinity"
	AllowEmptyNodeSelectorVolume                = "allow-empty-node-selector-volume"
	AllowEmptyDiskSelectorVolume                = "allow-empty-disk-selector-volume"
)

var schedulingDefinitions = []Definition{
	{
		Name: ReplicaSoftAntiAffinity, DisplayName: "Replica Node Level Soft Anti-Affinity",
		Description: "Two replicas of a volume may share a node.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: ReplicaAutoBalance, DisplayName: "Replica Auto Balance",
		Description: "Spread replicas again when nodes or zones come back: not at all, just until one is spread out, " +
			"or evenly. A volume can override it.",
		Category: CategoryScheduling, Type: TypeString, Required: true,
		Default: "disabled", Options: []string{"disabled", "least-effort", "best-effort"},
	},
	{
		Name: ReplicaAutoBalanceDiskPressurePercentage, DisplayName: "Replica Auto Balance Disk Pressure Threshold (%)",
		Description: "Percentage of used space from which an even spread moves replicas to another disk of the same " +
			"node. 0 turns that off.",
		Category: CategoryScheduling, Type: TypeInt, Required: true,
		Default: "90",
	},
	{
		Name: StorageOverProvisioningPercentage, DisplayName: "Storage Over Provisioning Percentage",
		Description: "Total size of the replicas that may be placed on a disk, in percent of the space not reserved on it.",
		Category:    CategoryScheduling, Type: TypeInt, Required: true,
		Default: "100", Range: from(0),
	},
	{
		Name: StorageMinimalAvailablePercentage, DisplayName: "Storage Minimal Available Percentage",
		Description: "A disk takes no more replicas when they would leave less than this percentage of it free.",
		Category:    CategoryScheduling, Type: TypeInt, Required: true,
		Default: "25", Range: between(0, 100),
	},
	{
		Name: StorageReservedPercentageForDefaultDisk, DisplayName: "Storage Reserved Percentage For Default Disk",
		Description: "Percentage of a default disk that is set aside when the disk is made. Disks that exist keep " +
			"their reserve.",
		Category: CategoryScheduling, Type: TypeInt, Required: true,
		Default: "30", Range: between(0, 100),
	},
	{
		Name: DisableSchedulingOnCordonedNode, DisplayName: "Disable Scheduling On Cordoned Node",
		Description: "Place no replicas on nodes that are cordoned in Kubernetes.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: ReplicaZoneSoftAntiAffinity, DisplayName: "Replica Zone Level Soft Anti-Affinity",
		Description: "Two replicas of a volume may share a zone. Nodes without the label of a zone count as one zone.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: AllowVolumeCreationWithDegradedAvailability, DisplayName: "Allow Volume Creation with Degraded Availability",
		Description: "A volume can be created and attached as soon as one of its replicas has a place. When off, all " +
			"must have one.",
		Category: CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: ReplicaDiskSoftAntiAffinity, DisplayName: "Replica Disk Level Soft Anti-Affinity",
		Description: "Two replicas of a volume may share a disk.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: AllowEmptyNodeSelectorVolume, DisplayName: "Allow Scheduling Empty Node Selector Volumes To Any Node",
		Description: "Volumes that ask for no node tags may use nodes with tags.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: AllowEmptyDiskSelectorVolume, DisplayName: "Allow Scheduling Empty Disk Selector Volumes To Any Disk",
		Description: "Volumes that ask for no disk tags may use disks with tags.",
		Category:    CategoryScheduling, Type: TypeBool, Required: true,
		Default: "true",
	},
}
