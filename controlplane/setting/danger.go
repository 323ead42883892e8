package setting

// Settings of category danger Zone.
const (
	TaintToleration                             = "taint-toleration"
	SystemManagedComponentsNodeSelector         = "system-managed-components-node-selector"
	SystemManagedCSIComponentsResourceLimits    = "system-managed-csi-components-resource-limits"
	PriorityClass                               = "priority-class"
	ConcurrentReplicaRebuildPerNodeLimit        = "concurrent-replica-rebuild-per-node-limit"
	ConcurrentBackingImageReplenishPerNodeLimit = "concurrent-backing-image-replenish-per-node-limit"
	GuaranteedInstanceManagerCPU                = "guaranteed-instance-manager-cpu"
	StorageNetwork                              = "storage-network"
	EndpointNetworkForRWXVolume                 = "endpoint-network-for-rwx-volume"
	EngineImagePodLivenessProbePeriod           = "engine-image-pod-liveness-probe-period"
	EngineImagePodLivenessProbeTimeout          = "engine-image-pod-liveness-probe-timeout"
	EngineImagePodLivenessProbeFailureThreshold = "engine-image-pod-liveness-probe-failure-threshold"
	InstanceManagerPodLivenessProbeTimeout      = "instance-manager-pod-liveness-probe-timeout"
	V1DataEngine                                = "v1-data-engine"
	DisableSnapshotPurge                        = "disable-snapshot-purge"
)

var dangerDefinitions = []Definition{
	{
		Name: TaintToleration, DisplayName: "Kubernetes Taint Toleration",
		Description: "Tolerations for the components of the system, as key=value:effect or key:effect with ; between " +
			"them. It is applied when all volumes are detached, and it restarts the components.",
		Category: CategoryDangerZone, Type: TypeString,
		Apply: ApplyWhenDetached,
	},
	{
		Name: SystemManagedComponentsNodeSelector, DisplayName: "System Managed Components Node Selector",
		Description: "Labels a node must have to run components of the system, as label:value with ; between them. It " +
			"is applied when all volumes are detached.",
		Category: CategoryDangerZone, Type: TypeString,
		Apply: ApplyWhenDetached,
	},
	{
		Name: SystemManagedCSIComponentsResourceLimits, DisplayName: "System Managed CSI Components Resource Limits",
		Description: "Requests and limits of the CSI components, as a JSON object from component to resource " +
			"requirements. A change restarts them.",
		Category: CategoryDangerZone, Type: TypeString,
	},
	{
		Name: PriorityClass, DisplayName: "Priority Class",
		Description: "Priority class of the components of the system. It must exist. It is applied when all volumes " +
			"are detached.",
		Category: CategoryDangerZone, Type: TypeString,
		Apply: ApplyWhenDetached,
	},
	{
		Name: ConcurrentReplicaRebuildPerNodeLimit, DisplayName: "Concurrent Replica Rebuild Per Node Limit",
		Description: "Number of replicas that a node rebuilds at the same time. 0 stops rebuilding.",
		Category:    CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "5", Range: from(0),
	},
	{
		Name: ConcurrentBackingImageReplenishPerNodeLimit, DisplayName: "Concurrent Backing Image Replenish Per Node Limit",
		Description: "Number of copies of backing images that a node makes at the same time. 0 stops it.",
		Category:    CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "5", Range: from(0),
	},
	{
		Name: GuaranteedInstanceManagerCPU, DisplayName: "Guaranteed Instance Manager CPU",
		Description: "Share of the allocatable CPU of a node, in percent, that its instance manager requests. 0 " +
			"requests nothing. A node can override it in thousandths of a CPU. A change reaches an instance manager " +
			"when its last instance has stopped.",
		Category: CategoryDangerZone, Type: TypeFloat, Required: true,
		Default: `{"v1":"12","v2":"12"}`, DataEngineSpecific: true, Range: between(0, 40), Apply: ApplyWhenIdle,
	},
	{
		Name: StorageNetwork, DisplayName: "Storage Network",
		Description: "Network for data between engines and replicas, as namespace/name of a " +
			"NetworkAttachmentDefinition. Empty means the network of the cluster. It can be changed while all volumes " +
			"are detached.",
		Category: CategoryDangerZone, Type: TypeString,
		Apply: ApplyRefusedWhileAttached,
	},
	{
		Name: EndpointNetworkForRWXVolume, DisplayName: "Endpoint Network for RWX Volume",
		Description: "Network for the shares of volumes used by many nodes, as namespace/name of a " +
			"NetworkAttachmentDefinition. Empty means the network of the cluster. It is applied when those volumes " +
			"are detached.",
		Category: CategoryDangerZone, Type: TypeString,
		Apply: ApplyWhenSharesDetached,
	},
	{
		Name: EngineImagePodLivenessProbePeriod, DisplayName: "Engine Image Pod Liveness Probe Period",
		Description: "Seconds between two liveness probes of the Pods that install engine images.",
		Category:    CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "5", Range: between(1, 60),
	},
	{
		Name: EngineImagePodLivenessProbeTimeout, DisplayName: "Engine Image Pod Liveness Probe Timeout",
		Description: "Seconds one such probe may take.",
		Category:    CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "4", Range: between(1, 60),
	},
	{
		Name: EngineImagePodLivenessProbeFailureThreshold, DisplayName: "Engine Image Pod Liveness Probe Failure Threshold",
		Description: "Number of such probes that must fail in a row before the Pod is restarted.",
		Category:    CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "3", Range: between(1, 60),
	},
	{
		Name: InstanceManagerPodLivenessProbeTimeout, DisplayName: "Instance Manager Pod Liveness Probe Timeout",
		Description: "Seconds a liveness probe of an instance manager may take. It is applied to instance managers " +
			"without instances.",
		Category: CategoryDangerZone, Type: TypeInt, Required: true,
		Default: "10", Range: between(1, 60), Apply: ApplyWhenIdle,
	},
	{
		Name: V1DataEngine, DisplayName: "V1 Data Engine",
		Description: "The data engine that keeps replicas as files. It cannot be turned off while one of its engines runs.",
		Category:    CategoryDangerZone, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: DisableSnapshotPurge, DisplayName: "Disable Snapshot Purge",
		Description: "Refuse to free the space of deleted snapshots. It does not go together with the automatic " +
			"cleanup of snapshots the system makes.",
		Category: CategoryDangerZone, Type: TypeBool, Required: true,
		Default: "false",
	},
}
