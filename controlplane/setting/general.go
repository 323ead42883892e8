package setting

// Settings of category general.
const (
	CreateDefaultDiskLabeledNodes                           = "create-default-disk-labeled-nodes"
	DefaultDataPath                                         = "default-data-path"
	DefaultControlPath                                      = "default-control-path"
	UpgradeChecker                                          = "upgrade-checker"
	UpgradeResponderURL                                     = "upgrade-responder-url"
	ManagerURL                                              = "manager-url"
	AllowCollectingLonghornUsageMetrics                     = "allow-collecting-longhorn-usage-metrics"
	KubernetesMetricsServerMetricsEnabled                   = "kubernetes-metrics-server-metrics-enabled"
	DefaultReplicaCount                                     = "default-replica-count"
	DefaultDataLocality                                     = "default-data-locality"
	DefaultLonghornStaticStorageClass                       = "default-longhorn-static-storage-class"
	AutoSalvage                                             = "auto-salvage"
	AutoDeletePodWhenVolumeDetachedUnexpectedly             = "auto-delete-pod-when-volume-detached-unexpectedly"
	BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly = "blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly"
	RegistrySecret                                          = "registry-secret"
	NodeDownPodDeletionPolicy                               = "node-down-pod-deletion-policy"
	NodeDrainPolicy                                         = "node-drain-policy"
	DetachManuallyAttachedVolumesWhenCordoned               = "detach-manually-attached-volumes-when-cordoned"
	DisableRevisionCounter                                  = "disable-revision-counter"
	ReplicaReplenishmentWaitInterval                        = "replica-replenishment-wait-interval"
	ReplicaRebuildConcurrentSyncLimit                       = "replica-rebuild-concurrent-sync-limit"
	ConcurrentVolumeBackupRestorePerNodeLimit               = "concurrent-volume-backup-restore-per-node-limit"
	SystemManagedPodsImagePullPolicy                        = "system-managed-pods-image-pull-policy"
	ConcurrentAutomaticEngineUpgradePerNodeLimit            = "concurrent-automatic-engine-upgrade-per-node-limit"
	BackingImageCleanupWaitInterval                         = "backing-image-cleanup-wait-interval"
	BackingImageRecoveryWaitInterval                        = "backing-image-recovery-wait-interval"
	KubernetesClusterAutoscalerEnabled                      = "kubernetes-cluster-autoscaler-enabled"
	SupportBundleFailedHistoryLimit                         = "support-bundle-failed-history-limit"
	SupportBundleNodeCollectionTimeout                      = "support-bundle-node-collection-timeout"
	DeletingConfirmationFlag                                = "deleting-confirmation-flag"
	EngineReplicaTimeout                                    = "engine-replica-timeout"
	RemoveSnapshotsDuringFilesystemTrim                     = "remove-snapshots-during-filesystem-trim"
	FastReplicaRebuildEnabled                               = "fast-replica-rebuild-enabled"
	ReplicaFileSyncHTTPClientTimeout                        = "replica-file-sync-http-client-timeout"
	LongGRPCTimeout                                         = "long-grpc-timeout"
	LogLevel                                                = "log-level"
	DefaultMinNumberOfBackingImageCopies                    = "default-min-number-of-backing-image-copies"
	RWXVolumeFastFailover                                   = "rwx-volume-fast-failover"
	OfflineReplicaRebuilding                                = "offline-replica-rebuilding"
	NodeDiskHealthMonitoring                                = "node-disk-health-monitoring"
	SnapshotHeavyTaskConcurrentLimit                        = "snapshot-heavy-task-concurrent-limit"
	CSIAllowedTopologyKeys                                  = "csi-allowed-topology-keys"
	CSIStorageCapacityTracking                              = "csi-storage-capacity-tracking"
	AllowLiveEngineUpgradeOnSameImageCommit                 = "allow-live-engine-upgrade-on-same-image-commit"
)

var generalDefinitions = []Definition{
	{
		Name: CreateDefaultDiskLabeledNodes, DisplayName: "Create Default Disk on Labeled Nodes",
		Description: "When on, a new node gets its default disk only if the Kubernetes node carries the label " +
			"node.longhorn.io/create-default-disk. When off, every new node gets one. Nodes that already have disks " +
			"are left alone.",
		Category: CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: DefaultDataPath, DisplayName: "Default Data Path",
		Description: "Directory on the host that becomes the default disk of a new node. Absolute, and not the root " +
			"directory. It cannot be changed once a node exists.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: "/var/lib/longhorn/", Apply: ApplyFixedByNodes,
	},
	{
		Name: DefaultControlPath, DisplayName: "Default Control Path",
		Description: "Directory on the host for engine binaries, sockets and logs. Absolute, not the root directory " +
			"and not below /dev. It cannot be changed once a node exists.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: "/var/lib/longhorn/", Apply: ApplyFixedByNodes,
	},
	{
		Name: UpgradeChecker, DisplayName: "Enable Upgrade Checker",
		Description: "Ask the upgrade service from time to time whether there is a newer version.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: UpgradeResponderURL, DisplayName: "Upgrade Responder URL",
		Description: "Address of the upgrade service.",
		Category:    CategoryGeneral, Type: TypeString, Required: true,
		Default: "https://longhorn-upgrade-responder.rancher.io/v1/checkupgrade",
	},
	{
		Name: ManagerURL, DisplayName: "Manager URL",
		Description: "Address under which the API is seen from outside, used in the links of API answers: scheme, " +
			"host and optional port only. Empty means the address the client used.",
		Category: CategoryGeneral, Type: TypeString,
	},
	{
		Name: AllowCollectingLonghornUsageMetrics, DisplayName: "Allow Collecting Longhorn Usage Metrics",
		Description: "Send figures about how the system is used along with the question for newer versions.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: KubernetesMetricsServerMetricsEnabled, DisplayName: "Kubernetes Metrics Server Metrics Enabled",
		Description: "Read the CPU and memory use of nodes and Pods from the Kubernetes metrics server.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: DefaultReplicaCount, DisplayName: "Default Replica Count",
		Description: "Number of replicas of a volume that is created without one.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: `{"v1":"3","v2":"3"}`, DataEngineSpecific: true, Range: between(1, 20),
	},
	{
		Name: DefaultDataLocality, DisplayName: "Default Data Locality",
		Description: "Data locality of a volume that is created without one. With best-effort one replica is kept on " +
			"the node of the workload if possible; strict-local demands it. Existing volumes keep theirs.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: "disabled", Options: []string{"disabled", "best-effort", "strict-local"},
	},
	{
		Name: DefaultLonghornStaticStorageClass, DisplayName: "Default Longhorn Static StorageClass Name",
		Description: "Storage class written into PersistentVolumes and claims that are made for existing volumes. It " +
			"must exist, except for longhorn-static, which is made when needed.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: "longhorn-static",
	},
	{
		Name: AutoSalvage, DisplayName: "Automatic salvage",
		Description: "Bring a faulted volume back by itself, from the replicas that failed last.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name:        AutoDeletePodWhenVolumeDetachedUnexpectedly,
		DisplayName: "Automatically Delete Workload Pod when The Volume Is Detached Unexpectedly",
		Description: "Delete the Pods of a workload whose volume was detached unexpectedly, so that their controller " +
			"starts them again and they mount the volume anew. Pods without a controller are never deleted.",
		Category: CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name:        BlacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly,
		DisplayName: "Blacklist for Automatically Delete Workload Pod when The Volume Is Detached Unexpectedly",
		Description: "Controllers whose Pods are exempt from that deletion, as apiVersion/Kind with ; between them, " +
			"for example apps/StatefulSet;apps/DaemonSet. Case matters.",
		Category: CategoryGeneral, Type: TypeString,
	},
	{
		Name: RegistrySecret, DisplayName: "Registry secret",
		Description: "Name of the image pull secret that Pods of the system use. It takes effect as Pods are restarted.",
		Category:    CategoryGeneral, Type: TypeString,
	},
	{
		Name: NodeDownPodDeletionPolicy, DisplayName: "Pod Deletion Policy When Node is Down",
		Description: "Which Pods stuck on a node that is down are deleted by force, so that they can start on another node.",
		Category:    CategoryGeneral, Type: TypeString, Required: true,
		Default: "do-nothing",
		Options: []string{"do-nothing", "delete-statefulset-pod", "delete-deployment-pod",
			"delete-both-statefulset-and-deployment-pod"},
	},
	{
		Name: NodeDrainPolicy, DisplayName: "Node Drain Policy",
		Description: "What holds up the draining of a node: its last healthy replicas, all of them until they are " +
			"evicted elsewhere, or nothing.",
		Category: CategoryGeneral, Type: TypeString, Required: true,
		Default: "block-if-contains-last-replica",
		Options: []string{"block-for-eviction", "block-for-eviction-if-contains-last-replica",
			"block-if-contains-last-replica", "allow-if-replica-is-stopped", "always-allow"},
	},
	{
		Name: DetachManuallyAttachedVolumesWhenCordoned, DisplayName: "Detach Manually Attached Volumes When Cordoned",
		Description: "Detach volumes that were attached through the API or the UI when their node is cordoned.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: DisableRevisionCounter, DisplayName: "Disable Revision Counter",
		Description: "New volumes keep no counter of writes beside their data. Without it every write is cheaper; the " +
			"choice of the newest replica then rests on other records.",
		Category: CategoryGeneral, Type: TypeBool, Required: true,
		Default: `{"v1":"true"}`, DataEngineSpecific: true,
	},
	{
		Name: ReplicaReplenishmentWaitInterval, DisplayName: "Replica Replenishment Wait Interval",
		Description: "Seconds a degraded volume waits for a failed replica to come back before a new one is built " +
			"from nothing.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: "600", Range: from(0),
	},
	{
		Name: ReplicaRebuildConcurrentSyncLimit, DisplayName: "Replica Rebuild Concurrent Sync Limit",
		Description: "Number of files copied at the same time within one rebuild. A volume can override it.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: `{"v1":"1"}`, DataEngineSpecific: true, Range: between(1, 5),
	},
	{
		Name: ConcurrentVolumeBackupRestorePerNodeLimit, DisplayName: "Concurrent Volume Backup Restore Per Node Limit",
		Description: "Number of volumes a node restores from backups at the same time. 0 stops restoring.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "5", Range: from(0),
	},
	{
		Name: SystemManagedPodsImagePullPolicy, DisplayName: "System Managed Pod Image Pull Policy",
		Description: "When the images of Pods managed by the system are pulled.",
		Category:    CategoryGeneral, Type: TypeString, Required: true,
		Default: "if-not-present", Options: []string{"if-not-present", "never", "always"},
	},
	{
		Name: ConcurrentAutomaticEngineUpgradePerNodeLimit, DisplayName: "Concurrent Automatic Engine Upgrade Per Node Limit",
		Description: "Number of volumes per node whose engines are upgraded to the default engine image at the same " +
			"time. 0 leaves upgrades to people; with any other value people may choose the default image only.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: "0", Range: from(0),
	},
	{
		Name: BackingImageCleanupWaitInterval, DisplayName: "Backing Image Cleanup Wait Interval",
		Description: "Minutes until a copy of a backing image that no replica uses is removed from its disk.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "60", Range: from(0),
	},
	{
		Name: BackingImageRecoveryWaitInterval, DisplayName: "Backing Image Recovery Wait Interval",
		Description: "Seconds until the source of a backing image is read again after all its copies have failed.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "300", Range: from(0),
	},
	{
		Name: KubernetesClusterAutoscalerEnabled, DisplayName: "Kubernetes Cluster Autoscaler Enabled (Experimental)",
		Description: "Let the Kubernetes cluster autoscaler remove nodes that hold nothing the system still needs.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: SupportBundleFailedHistoryLimit, DisplayName: "SupportBundle Failed History Limit",
		Description: "Number of failed support bundles that are kept. 0 removes them all.",
		Category:    CategoryGeneral, Type: TypeInt,
		Default: "1", Range: from(0),
	},
	{
		Name: SupportBundleNodeCollectionTimeout, DisplayName: "Timeout for Support Bundle Node Collection",
		Description: "Minutes to wait for the parts of a support bundle that nodes collect; what is missing then is " +
			"left out.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: "30", Range: from(0),
	},
	{
		Name: DeletingConfirmationFlag, DisplayName: "Deleting Confirmation Flag",
		Description: "The uninstaller refuses to run while this is off, since it deletes all data.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: EngineReplicaTimeout, DisplayName: "Engine Replica Timeout",
		Description: "Seconds an engine waits for a replica to answer before it drops the replica. For the last " +
			"replica it waits twice as long.",
		Category: CategoryGeneral, Type: TypeInt, Required: true,
		Default: `{"v1":"8","v2":"8"}`, DataEngineSpecific: true, Range: between(8, 30),
	},
	{
		Name: RemoveSnapshotsDuringFilesystemTrim, DisplayName: "Remove Snapshots During Filesystem Trim",
		Description: "Trimming a file system may give up the newest snapshots, so that their space is freed as well. " +
			"A volume can override it.",
		Category: CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: FastReplicaRebuildEnabled, DisplayName: "Fast Replica Rebuild Enabled",
		Description: "Compare checksums before data is copied in a rebuild, and copy only what differs.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: `{"v1":"true","v2":"true"}`, DataEngineSpecific: true,
	},
	{
		Name: ReplicaFileSyncHTTPClientTimeout, DisplayName: "Timeout of HTTP Client to Replica File Sync Server",
		Description: "Seconds the HTTP client that copies files between replicas waits for an answer.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "30", Range: between(5, 120),
	},
	{
		Name: LongGRPCTimeout, DisplayName: "Long gRPC Timeout",
		Description: "Seconds a call that copies data, such as a rebuild or a clone, may take.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "86400", Range: between(1, 604800),
	},
	{
		Name: LogLevel, DisplayName: "Log Level",
		Description: "Least level of the messages the manager logs.",
		Category:    CategoryGeneral, Type: TypeString, Required: true,
		Default: "Info", Options: []string{"Panic", "Fatal", "Error", "Warn", "Info", "Debug", "Trace"},
	},
	{
		Name: DefaultMinNumberOfBackingImageCopies, DisplayName: "Default Minimum Number of BackingImage Copies",
		Description: "Number of copies of a backing image that is created without one.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "3", Range: from(1),
	},
	{
		Name: RWXVolumeFastFailover, DisplayName: "RWX Volume Fast Failover",
		Description: "Watch share managers by a lease and replace one that has failed within seconds.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: OfflineReplicaRebuilding, DisplayName: "Offline Replica Rebuilding",
		Description: "Rebuild the replicas of degraded volumes while they are detached. A volume can override it. " +
			"Faulted volumes are not touched.",
		Category: CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: NodeDiskHealthMonitoring, DisplayName: "Node Disk Health Monitoring",
		Description: "Read what disks report about their own health.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "true",
	},
	{
		Name: SnapshotHeavyTaskConcurrentLimit, DisplayName: "Snapshot Heavy Task Concurrent Limit",
		Description: "Number of snapshot purges and clones that a node runs at the same time. 0 sets no limit.",
		Category:    CategoryGeneral, Type: TypeInt, Required: true,
		Default: "5", Range: from(0),
	},
	{
		Name: CSIAllowedTopologyKeys, DisplayName: "CSI Allowed Topology Keys",
		Description: "Labels of nodes, separated by commas, that may restrict where a volume is reachable. Empty means none.",
		Category:    CategoryGeneral, Type: TypeString,
	},
	{
		Name: CSIStorageCapacityTracking, DisplayName: "CSI Storage Capacity Tracking",
		Description: "Publish the free storage of nodes to the Kubernetes scheduler.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
	{
		Name: AllowLiveEngineUpgradeOnSameImageCommit, DisplayName: "Allow Live Engine Upgrade On Same Image Commit",
		Description: "Allow a live upgrade between two engine images built from the same commit.",
		Category:    CategoryGeneral, Type: TypeBool, Required: true,
		Default: "false",
	},
}
