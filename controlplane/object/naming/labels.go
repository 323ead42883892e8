package naming

import (
	"maps"
	"strings"
)

// Labels without a prefix.
const (
	LabelVolume          = "longhornvolume"
	LabelNode            = "longhornnode"
	LabelDiskUUID        = "longhorndiskuuid"
	LabelInstanceManager = "longhorninstancemanager"
	LabelEngine          = "longhornengine"
	LabelReplica         = "longhornreplica"
	LabelBackupTarget    = "backup-target"
	LabelBackupVolume    = "backup-volume"
	// LabelBackedUpImage is on a BackupBackingImage.
	LabelBackedUpImage = "backing-image"
	// LabelCRD marks our CustomResourceDefinitions; its value is empty.
	LabelCRD = "longhorn-manager"
	// LabelApp selects the agents' Pods with value AppManager, those of the controllers with
	// AppController.
	LabelApp      = "app"
	AppManager    = "longhorn-manager"
	AppController = "longhorn-ui"
)

// Labels with prefix longhorn.io.
const (
	LabelPrefix = "longhorn.io/"

	LabelManagedBy                = LabelPrefix + "managed-by"
	LabelComponent                = LabelPrefix + "component"
	LabelOnNode                   = LabelPrefix + "node"
	LabelOnDisk                   = LabelPrefix + "disk-uuid"
	LabelInstanceManagerType      = LabelPrefix + "instance-manager-type"
	LabelInstanceManagerImage     = LabelPrefix + "instance-manager-image"
	LabelEngineImage              = LabelPrefix + "engine-image"
	LabelShareManager             = LabelPrefix + "share-manager"
	LabelShareManagerImage        = LabelPrefix + "share-manager-image"
	LabelBackingImage             = LabelPrefix + "backing-image"
	LabelBackingImageDataSource   = LabelPrefix + "backing-image-data-source"
	LabelDataEngine               = LabelPrefix + "data-engine"
	LabelOrphanType               = LabelPrefix + "orphan-type"
	LabelExportFromVolume         = LabelPrefix + "export-from-volume"
	LabelForExportingBackingImage = LabelPrefix + "for-exporting-backing-image"
	LabelForCloningVolume         = LabelPrefix + "for-cloning-volume"
	LabelCloneSourceVolume        = LabelPrefix + "clone-source-volume"
	LabelVolumeAccessMode         = LabelPrefix + "volume-access-mode"
	LabelVersion                  = LabelPrefix + "version"
	LabelSystemRestore            = LabelPrefix + "system-restore"
	LabelCRDAPIVersion            = LabelPrefix + "crd-api-version"
	LabelAdmissionWebhook         = LabelPrefix + "admission-webhook"
	LabelRecoveryBackend          = LabelPrefix + "recovery-backend"
	// LabelVolumeEncrypted, "true" among the labels of a backup, says that the volume had a LUKS2
	// header before what its user had. It is our addition.
	LabelVolumeEncrypted = "ankole.storage/volume-encrypted"
	// LabelDeleteObjectOnly keeps remote data when a backup object is deleted.
	LabelDeleteObjectOnly = LabelPrefix + "delete-custom-resource-only"

	// LabelSettingPrefix is followed by a setting's name; value SettingIgnored says that the volume
	// follows the setting.
	LabelSettingPrefix = "setting.longhorn.io/"
	SettingIgnored     = "ignored"
)

// Values of LabelManagedBy and LabelComponent.
const (
	ManagedByManager = "longhorn-manager"

	// ComponentManager is that of the agents' Pods, ComponentController of the controllers'; ours, not
	// the reference's.
	ComponentController             = "controller"
	ComponentManager                = "manager"
	ComponentInstanceManager        = "instance-manager"
	ComponentEngineImage            = "engine-image"
	ComponentBackingImage           = "backing-image"
	ComponentBackingImageManager    = "backing-image-manager"
	ComponentBackingImageDataSource = "backing-image-data-source"
	ComponentShareManager           = "share-manager"
	ComponentShareManagerConfigMap  = "share-manager-configmap"
	ComponentOrphan                 = "orphan"
)

// Labels of Kubernetes nodes, and the annotations that describe the disks and tags of a new node.
const (
	NodeLabelCreateDefaultDisk = "node.longhorn.io/create-default-disk"
	// CreateDefaultDiskTrue makes a default disk; CreateDefaultDiskConfig reads NodeAnnotationDisks
	// instead.
	CreateDefaultDiskTrue   = "true"
	CreateDefaultDiskConfig = "config"

	NodeAnnotationDisks = "node.longhorn.io/default-disks-config"
	NodeAnnotationTags  = "node.longhorn.io/default-node-tags"

	NodeLabelZone   = "topology.kubernetes.io/zone"
	NodeLabelRegion = "topology.kubernetes.io/region"
	// NodeLabelHostname selects the node in PersistentVolumes and Pods.
	NodeLabelHostname = "kubernetes.io/hostname"
)

// Annotations.
const (
	// AnnotationConfigMapValue is the value that was last taken over from ConfigMap
	// longhorn-default-setting, AnnotationConfigMapResourceVersion the version that it came with.
	AnnotationConfigMapValue           = LabelPrefix + "configmap-value"
	AnnotationConfigMapResourceVersion = LabelPrefix + "configmap-resource-version"
	// AnnotationUpdateSetting lets the manager change a read-only setting; it is put on for that
	// one update.
	AnnotationUpdateSetting         = LabelPrefix + "update-setting-from-longhorn"
	AnnotationLastTolerations       = LabelPrefix + "last-applied-tolerations"
	AnnotationVolumeSchedulingError = LabelPrefix + "volume-scheduling-error"
	AnnotationLastCronJobSpec       = LabelPrefix + "last-applied-cronjob-spec"
	AnnotationDeleteNode            = LabelPrefix + "delete-node-from-longhorn"
	AnnotationDeleteEngineImage     = LabelPrefix + "delete-engine-image-from-longhorn"
	AnnotationDeleteBackupTarget    = LabelPrefix + "delete-backup-target-from-longhorn"
	// AnnotationUpgradeRolledBack is on a Volume of which an upgrade of the engine was given up: when.
	AnnotationUpgradeRolledBack = LabelPrefix + "engine-upgrade-rolled-back"
	AnnotationSafeToEvict       = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	AnnotationNetworks          = "k8s.v1.cni.cncf.io/networks"
	AnnotationNetworkStatus     = "k8s.v1.cni.cncf.io/network-status"
	// AnnotationNetworkStatusOld is the older name of the same annotation.
	AnnotationNetworkStatusOld = "k8s.v1.cni.cncf.io/networks-status"
	// AnnotationNetworkClaimed is on the setting storage-network: which volume was the last to claim
	// it, and when. It is written so that a change that was judged before is refused.
	AnnotationNetworkClaimed = LabelPrefix + "last-claimed"
	AnnotationAWSRole        = "iam.amazonaws.com/role"
	// AnnotationInstalledBy is our addition, on definitions of kinds: the version of the manager that
	// installed them.
	AnnotationInstalledBy = LabelPrefix + "installed-by"
	// AnnotationSnapshotSpace is our addition, on Volumes: what setting default-snapshot-space-factor
	// was when the volume was created.
	AnnotationSnapshotSpace = LabelPrefix + "snapshot-space-factor"
	// AnnotationTLSSeen is on the Pod of an instance manager that has shown a certificate, with the
	// value "true"; ours, not the reference's.
	AnnotationTLSSeen = LabelPrefix + "grpc-tls-seen"

	AnnotationLastSystemRestored          = LabelPrefix + "last-system-restored"
	AnnotationLastSystemRestoredAt        = LabelPrefix + "last-system-restored-at"
	AnnotationLastSystemRestoredBackup    = LabelPrefix + "last-system-restored-backup"
	AnnotationLastSkippedSystemRestored   = LabelPrefix + "last-skipped-system-restored"
	AnnotationLastSkippedSystemRestoredAt = LabelPrefix + "last-skipped-system-restored-at"
)

// ManagementNetwork is what log lines call the network of the cluster.
const ManagementNetwork = "management network"

// Network is what log lines call the network for data: a storage network, or that of the cluster.
func Network(storageNetwork string) string {
	if storageNetwork == "" {
		return ManagementNetwork
	}
	return "storage network " + storageNetwork
}

// Interfaces the storage networks give to Pods.
const (
	StorageNetworkInterface  = "lhnet1"
	EndpointNetworkInterface = "lhnet2"
)

// Labels of recurring jobs. On volumes a job or group is chosen by its label with value Enabled.
const (
	LabelRecurringJobPrefix      = "recurring-job.longhorn.io/"
	LabelRecurringJobGroupPrefix = "recurring-job-group.longhorn.io/"
	LabelRecurringJobSource      = LabelRecurringJobPrefix + "source"
	// LabelRecurringJobOwner is on the CronJob of a recurring job.
	LabelRecurringJobOwner = "recurring-job.longhorn.io"
	// LabelRecurringJob is on snapshots and backups made by a job.
	LabelRecurringJob = "RecurringJob"
	Enabled           = "enabled"

	// Labels stored with a backup volume; their values are JSON.
	LabelVolumeRecurringJobInfo = "VolumeRecurringJobInfo"
	LabelKubernetesStatus       = "KubernetesStatus"

	RestoredRecurringJobPrefix = "restored-recurring-job-"
)

// ChoosesJobs says whether labels of a volume choose any recurring job or group.
func ChoosesJobs(labels map[string]string) bool {
	for key, value := range labels {
		if ChoosesJob(key, value) {
			return true
		}
	}
	return false
}

// ChoosesJob says whether a label of a volume chooses a recurring job or a group.
func ChoosesJob(key, value string) bool {
	return value == Enabled && key != LabelRecurringJobSource &&
		(strings.HasPrefix(key, LabelRecurringJobPrefix) || strings.HasPrefix(key, LabelRecurringJobGroupPrefix))
}

// IsJobSource says whether labels of a claim are the source of those of its volume: they say which
// recurring jobs it follows.
func IsJobSource(labels map[string]string) bool { return labels[LabelRecurringJobSource] == Enabled }

// VolumeLabels returns the label that ties an object to its volume.
func VolumeLabels(volume string) map[string]string {
	return map[string]string{LabelVolume: volume}
}

// componentLabels are on everything the system manages by itself.
func componentLabels(component string, more map[string]string) map[string]string {
	labels := map[string]string{LabelManagedBy: ManagedByManager, LabelComponent: component}
	maps.Copy(labels, more)
	return labels
}

// InstanceManagerLabels returns the labels of an instance manager, its Pod and the selector of its
// PDB.
func InstanceManagerLabels(node, image, managerType string) map[string]string {
	return componentLabels(ComponentInstanceManager, map[string]string{
		LabelInstanceManagerType:  managerType,
		LabelInstanceManagerImage: InstanceManagerImageLabel(image),
		LabelOnNode:               NodeLabel(node),
	})
}

// OrphanLabels returns the labels of every Orphan.
func OrphanLabels(node, orphanType string) map[string]string {
	return componentLabels(ComponentOrphan, map[string]string{LabelNode: NodeLabel(node), LabelOrphanType: orphanType})
}

// OrphanInstanceLabels returns the labels of the Orphan of a process. kind is LabelEngine or
// LabelReplica, for its name; one that is no label value is left out.
func OrphanInstanceLabels(node, orphanType, instanceManager, kind, name string) map[string]string {
	labels := OrphanLabels(node, orphanType)
	labels[LabelInstanceManager] = instanceManager
	if len(name) <= maxLabelValue {
		labels[kind] = name
	}
	return labels
}

// maxLabelValue is the length of a label's value that Kubernetes takes.
const maxLabelValue = 63

// NodeLabel returns the value of every label that names a node: its name, and if that is longer
// than a label's value may be, a prefix of it, a dash and eight digits of its SHA-512. Selectors
// ask for this value too; a name is never read back from a label.
func NodeLabel(node string) string {
	if len(node) <= maxLabelValue {
		return node
	}
	return node[:maxLabelValue-suffixDigits-1] + "-" + sha512Prefix(node, suffixDigits)
}

// EngineImageLabels returns the labels of an EngineImage, its DaemonSet and that one's Pods.
func EngineImageLabels(engineImageName string) map[string]string {
	return componentLabels(ComponentEngineImage, map[string]string{LabelEngineImage: engineImageName})
}

// ReplicaLabels returns the labels of a Replica. Those of a place it does not have yet are left
// out.
func ReplicaLabels(volume, node, diskUUID, backingImage string) map[string]string {
	labels := VolumeLabels(volume)
	for key, value := range map[string]string{
		LabelNode: NodeLabel(node), LabelDiskUUID: diskUUID, LabelBackingImage: backingImage,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	return labels
}
