// Made by "npm run types" of schemas.json; do not edit.

export interface Resource {
  id: string;
  type: string;
  links: Record<string, string>;
  actions: Record<string, string>;
}

export interface ApiVersion {
}

export interface Schema {
  collectionMethods: string[];
  pluralName: string;
  resourceActions: Record<string, string>;
  resourceFields: Record<string, string>;
  resourceMethods: string[];
}

export interface Error {
  code: string;
  detail: string;
  message: string;
  status: number;
}

export interface AttachInput {
  attachedBy: string;
  attacherType: string;
  attachmentID: string;
  disableFrontend: boolean;
  hostId: string;
}

export interface DetachInput {
  attachmentID: string;
  forceDetach: boolean;
  hostId: string;
}

export interface SnapshotInput {
  backupMode: string;
  labels: Record<string, string>;
  name: string;
}

export interface SnapshotCRInput {
  labels: Record<string, string>;
  name: string;
}

export interface Backup {
  backupMode: string;
  backupTargetName: string;
  blockSize: string;
  compressionMethod: string;
  created: string;
  error: string;
  labels: Record<string, string>;
  messages: Record<string, string>;
  name: string;
  newlyUploadDataSize: string;
  progress: number;
  reUploadedDataSize: string;
  size: string;
  snapshotCreated: string;
  snapshotName: string;
  state: string;
  url: string;
  volumeBackingImageName: string;
  volumeCreated: string;
  volumeName: string;
  volumeSize: string;
}

export interface BackupInput {
  name: string;
}

export interface BackupStatus {
  backupURL: string;
  error: string;
  id: string;
  progress: number;
  replica: string;
  size: string;
  snapshot: string;
  state: string;
}

export interface SyncBackupResource {
  syncAllBackupTargets: boolean;
  syncAllBackupVolumes: boolean;
  syncBackupTarget: boolean;
  syncBackupVolume: boolean;
}

export interface Orphan {
  dataEngine: string;
  name: string;
  nodeID: string;
  orphanType: string;
  parameters: Record<string, string>;
}

export interface RestoreStatus {
  backupURL: string;
  error: string;
  filename: string;
  isRestoring: boolean;
  lastRestored: string;
  progress: number;
  replica: string;
  state: string;
}

export interface PurgeStatus {
  error: string;
  isPurging: boolean;
  progress: number;
  replica: string;
  state: string;
}

export interface RebuildStatus {
  error: string;
  fromReplicaList: string[];
  isRebuilding: boolean;
  progress: number;
  replica: string;
  state: string;
}

export interface ReplicaRemoveInput {
  name: string;
}

export interface SalvageInput {
  names: string[];
}

export interface ActivateInput {
  frontend: string;
}

export interface ExpandInput {
  size: string;
}

export interface EngineUpgradeInput {
  image: string;
}

export interface Replica {
  address: string;
  currentImage: string;
  dataEngine: string;
  dataPath: string;
  diskID: string;
  diskPath: string;
  failedAt: string;
  hostId: string;
  image: string;
  instanceManagerName: string;
  mode: string;
  name: string;
  running: boolean;
}

export interface Controller {
  actualSize: string;
  address: string;
  currentImage: string;
  endpoint: string;
  hostId: string;
  image: string;
  instanceManagerName: string;
  isExpanding: boolean;
  lastExpansionError: string;
  lastExpansionFailedAt: string;
  lastRestoredBackup: string;
  name: string;
  requestedBackupRestore: string;
  running: boolean;
  size: string;
  unmapMarkSnapChainRemovedEnabled: boolean;
}

export interface DiskUpdate {
  allowScheduling: boolean;
  diskDriver: string;
  diskType: string;
  evictionRequested: boolean;
  path: string;
  storageReserved: number;
  tags: string[];
}

export interface UpdateReplicaCountInput {
  replicaCount: number;
}

export interface UpdateReplicaAutoBalanceInput {
  replicaAutoBalance: string;
}

export interface UpdateRebuildConcurrentSyncLimitInput {
  rebuildConcurrentSyncLimit: number;
}

export interface UpdateDataLocalityInput {
  dataLocality: string;
}

export interface UpdateAccessModeInput {
  accessMode: string;
}

export interface UpdateSnapshotDataIntegrityInput {
  snapshotDataIntegrity: string;
}

export interface UpdateSnapshotMaxCountInput {
  snapshotMaxCount: number;
}

export interface UpdateSnapshotMaxSizeInput {
  snapshotMaxSize: string;
}

export interface UpdateReplicaRebuildingBandwidthLimitInput {
  replicaRebuildingBandwidthLimit: string;
}

export interface UpdateUblkQueueDepthInput {
  ublkQueueDepth: number;
}

export interface UpdateUblkNumberOfQueueInput {
  ublkNumberOfQueue: number;
}

export interface UpdateBackupCompressionInput {
  backupCompressionMethod: string;
}

export interface UpdateUnmapMarkSnapChainRemovedInput {
  unmapMarkSnapChainRemoved: string;
}

export interface UpdateReplicaSoftAntiAffinityInput {
  replicaSoftAntiAffinity: string;
}

export interface UpdateReplicaZoneSoftAntiAffinityInput {
  replicaZoneSoftAntiAffinity: string;
}

export interface UpdateReplicaDiskSoftAntiAffinityInput {
  replicaDiskSoftAntiAffinity: string;
}

export interface UpdateFreezeFilesystemForSnapshotInput {
  freezeFilesystemForSnapshot: string;
}

export interface UpdateBackupTargetInput {
  backupTargetName: string;
}

export interface UpdateOfflineRebuildingInput {
  offlineRebuilding: string;
}

export interface WorkloadStatus {
  podName: string;
  podStatus: string;
  workloadName: string;
  workloadType: string;
}

export interface CloneStatus {
  attemptCount: number;
  nextAllowedAttemptAt: string;
  progress: number;
  snapshot: string;
  sourceVolume: string;
  state: string;
}

export interface VolumeDataLayout {
  mode: string;
  type: string;
}

export interface Empty {
}

export interface VolumeRecurringJob {
  isGroup: boolean;
  name: string;
}

export interface VolumeRecurringJobInput {
  isGroup: boolean;
  name: string;
}

export interface PVCreateInput {
  fsType: string;
  pvName: string;
  secretName: string;
  secretNamespace: string;
  storageClassName: string;
}

export interface PVCCreateInput {
  namespace: string;
  pvcName: string;
}

export interface SettingDefinition {
  category: string;
  dataEngineSpecific: boolean;
  default: string;
  description: string;
  displayName: string;
  floatRange: Record<string, string>;
  options: string[];
  range: Record<string, string>;
  readOnly: boolean;
  required: boolean;
  type: string;
}

export interface VolumeCondition {
  lastProbeTime: string;
  lastTransitionTime: string;
  message: string;
  reason: string;
  status: string;
  type: string;
}

export interface NodeCondition {
  lastProbeTime: string;
  lastTransitionTime: string;
  message: string;
  reason: string;
  status: string;
  type: string;
}

export interface DiskCondition {
  lastProbeTime: string;
  lastTransitionTime: string;
  message: string;
  reason: string;
  status: string;
  type: string;
}

export interface LonghornCondition {
  lastProbeTime: string;
  lastTransitionTime: string;
  message: string;
  reason: string;
  status: string;
  type: string;
}

export interface Event {
  event: unknown;
  eventType: string;
}

export interface SupportBundle {
  errorMessage: string;
  name: string;
  nodeID: string;
  progressPercentage: number;
  state: string;
}

export interface SupportBundleInitateInput {
  description: string;
  issueURL: string;
}

export interface Tag {
  name: string;
  tagType: string;
}

export interface InstanceManager {
  conditions: Record<string, string>;
  currentState: string;
  dataEngine: string;
  image: string;
  instanceEngineFrontends: Record<string, string>;
  instanceEngines: Record<string, string>;
  instanceReplicas: Record<string, string>;
  instances: Record<string, string>;
  managerType: string;
  name: string;
  nodeID: string;
  waitsFor: string[];
}

export interface InstanceProcess {
  spec: string;
  status: string;
}

export interface BackingImageDiskFileStatus {
  dataEngine: string;
  lastStateTransitionTime: string;
  message: string;
  progress: number;
  state: string;
}

export interface BackingImageCleanupInput {
  disks: string[];
}

export interface UpdateMinNumberOfCopiesInput {
  minNumberOfCopies: number;
}

export interface BackingImageRestoreInput {
  dataEngine: string;
  secret: string;
  secretNamespace: string;
}

export interface Attachment {
  attachmentID: string;
  attachmentType: string;
  conditions: LonghornCondition[];
  nodeID: string;
  parameters: Record<string, string>;
  satisfied: boolean;
}

export interface VolumeAttachment {
  attachments: Record<string, Attachment>;
  volume: string;
}

export interface Volume {
  accessMode: string;
  backingImage: string;
  backupBlockSize: string;
  backupCompressionMethod: string;
  backupStatus: BackupStatus[];
  backupTargetName: string;
  cloneMode: string;
  cloneStatus: CloneStatus;
  conditions: Record<string, VolumeCondition>;
  controllers: Controller[];
  created: string;
  currentImage: string;
  dataEngine: string;
  dataLayout: unknown;
  dataLocality: string;
  dataSource: string;
  deleteSnapshotsWithVolume: boolean;
  disableFrontend: boolean;
  diskSelector: string[];
  encrypted: boolean;
  freezeFilesystemForSnapshot: string;
  fromBackup: string;
  frontend: string;
  image: string;
  kubernetesStatus: KubernetesStatus;
  lastAttachedBy: string;
  lastBackup: string;
  lastBackupAt: string;
  migratable: boolean;
  name: string;
  nodeSelector: string[];
  notReadyMessage: string;
  numberOfReplicas: number;
  nvmeTcpNrIoQueues: number;
  offlineRebuilding: string;
  purgeStatus: PurgeStatus[];
  ready: boolean;
  rebuildConcurrentSyncLimit: number;
  rebuildStatus: RebuildStatus[];
  recurringJobSelector: VolumeRecurringJob[];
  replicaAutoBalance: string;
  replicaDiskSoftAntiAffinity: string;
  replicaRebuildingBandwidthLimit: number;
  replicaSoftAntiAffinity: string;
  replicaZoneSoftAntiAffinity: string;
  replicas: Replica[];
  restoreInitiated: boolean;
  restoreRequired: boolean;
  restoreStatus: RestoreStatus[];
  restoreVolumeRecurringJob: string;
  revisionCounterDisabled: boolean;
  robustness: string;
  shareEndpoint: string;
  shareState: string;
  size: string;
  snapshotDataIntegrity: string;
  snapshotMaxCount: number;
  snapshotMaxSize: string;
  staleReplicaTimeout: number;
  standby: boolean;
  state: string;
  topologyRequirement: string[];
  ublkNumberOfQueue: number;
  ublkQueueDepth: number;
  unmapMarkSnapChainRemoved: string;
  volumeAttachment: VolumeAttachment;
  waitsFor: string[];
}

export interface Snapshot {
  checksum: string;
  children: Record<string, boolean>;
  created: string;
  labels: Record<string, string>;
  name: string;
  parent: string;
  removed: boolean;
  size: string;
  usercreated: boolean;
}

export interface SnapshotCR {
  checksum: string;
  children: Record<string, boolean>;
  crCreationTime: string;
  createSnapshot: boolean;
  creationTime: string;
  error: string;
  labels: Record<string, string>;
  markRemoved: boolean;
  name: string;
  orderedByCSI: boolean;
  ownerID: string;
  parent: string;
  readyToUse: boolean;
  restoreSize: number;
  size: number;
  userCreated: boolean;
  volume: string;
}

export interface BackupTarget {
  available: boolean;
  backupTargetURL: string;
  credentialSecret: string;
  message: string;
  name: string;
  pollInterval: string;
}

export interface BackupVolume {
  backingImageChecksum: string;
  backingImageName: string;
  backupTargetName: string;
  created: string;
  dataStored: string;
  labels: Record<string, string>;
  lastBackupAt: string;
  lastBackupName: string;
  messages: Record<string, string>;
  name: string;
  size: string;
  storageClassName: string;
  volumeName: string;
}

export interface BackupBackingImage {
  backingImageName: string;
  backupTargetName: string;
  compressionMethod: string;
  created: string;
  error: string;
  labels: Record<string, string>;
  messages: Record<string, string>;
  name: string;
  progress: number;
  secret: string;
  secretNamespace: string;
  size: number;
  state: string;
  url: string;
}

export interface Setting {
  applied: boolean;
  definition: SettingDefinition;
  name: string;
  value: string;
}

export interface RecurringJob {
  concurrency: number;
  cron: string;
  executionCount: number;
  groups: string[];
  labels: Record<string, string>;
  name: string;
  ownerID: string;
  parameters: Record<string, string>;
  retain: number;
  retainAge: string;
  retentionPolicy: string;
  task: string;
}

export interface EngineImage {
  buildDate: string;
  cliAPIMinVersion: number;
  cliAPIVersion: number;
  conditions: string[];
  controllerAPIMinVersion: number;
  controllerAPIVersion: number;
  dataFormatMinVersion: number;
  dataFormatVersion: number;
  default: boolean;
  gitCommit: string;
  image: string;
  incompatible: boolean;
  name: string;
  noRefSince: string;
  nodeDeploymentMap: Record<string, string>;
  ownerID: string;
  refCount: number;
  state: string;
  version: string;
  waitsFor: string[];
}

export interface BackingImage {
  currentChecksum: string;
  dataEngine: string;
  deletionTimestamp: string;
  diskFileStatusMap: Record<string, BackingImageDiskFileStatus>;
  diskSelector: string[];
  expectedChecksum: string;
  minNumberOfCopies: number;
  name: string;
  nodeSelector: string[];
  parameters: Record<string, string>;
  secret: string;
  secretNamespace: string;
  size: number;
  sourceType: string;
  uuid: string;
  virtualSize: number;
  waitsFor: string[];
}

export interface Node {
  address: string;
  allowScheduling: boolean;
  autoEvicting: boolean;
  conditions: Record<string, NodeCondition>;
  disks: Record<string, DiskInfo>;
  engineManagerCPURequest: number;
  evictionRequested: boolean;
  instanceManagerCPURequest: number;
  name: string;
  region: string;
  replicaManagerCPURequest: number;
  tags: string[];
  waitsFor: string[];
  zone: string;
}

export interface DiskUpdateInput {
  disks: DiskUpdate[];
}

export interface DiskInfo {
  allowScheduling: boolean;
  conditions: Record<string, DiskCondition>;
  diskDriver: string;
  diskType: string;
  diskUUID: string;
  evictionRequested: boolean;
  healthData: Record<string, string>;
  healthDataLastCollectedAt: string;
  path: string;
  scheduledBackingImage: Record<string, string>;
  scheduledReplica: Record<string, string>;
  storageAvailable: number;
  storageMaximum: number;
  storageReserved: number;
  storageScheduled: number;
  tags: string[];
}

export interface KubernetesStatus {
  lastPVCRefAt: string;
  lastPodRefAt: string;
  namespace: string;
  pvName: string;
  pvStatus: string;
  pvcName: string;
  workloadsStatus: WorkloadStatus[];
}

export interface BackupTargetListOutput {
  data: BackupTarget[];
  type: string;
}

export interface BackupVolumeListOutput {
  data: BackupVolume[];
  type: string;
}

export interface BackupListOutput {
  data: Backup[];
  type: string;
}

export interface SnapshotListOutput {
  data: Snapshot[];
  type: string;
}

export interface SystemBackup {
  createdAt: string;
  error: string;
  managerImage: string;
  name: string;
  state: string;
  version: string;
  volumeBackupPolicy: string;
}

export interface SystemRestore {
  createdAt: string;
  error: string;
  name: string;
  state: string;
  systemBackup: string;
}

export interface SnapshotCRListOutput {
  data: SnapshotCR[];
  type: string;
}

/** The actions that each kind has. */
export interface ActionsOf {
  volume: 'activate' | 'attach' | 'cancelExpansion' | 'detach' | 'engineUpgrade' | 'expand' | 'offlineReplicaRebuilding' | 'pvCreate' | 'pvcCreate' | 'recurringJobAdd' | 'recurringJobDelete' | 'recurringJobList' | 'replicaRemove' | 'salvage' | 'snapshotBackup' | 'snapshotCRCreate' | 'snapshotCRDelete' | 'snapshotCRGet' | 'snapshotCRList' | 'snapshotCreate' | 'snapshotDelete' | 'snapshotGet' | 'snapshotList' | 'snapshotPurge' | 'snapshotRevert' | 'trimFilesystem' | 'updateAccessMode' | 'updateBackupCompressionMethod' | 'updateBackupTargetName' | 'updateDataLocality' | 'updateFreezeFilesystemForSnapshot' | 'updateRebuildConcurrentSyncLimit' | 'updateReplicaAutoBalance' | 'updateReplicaCount' | 'updateReplicaDiskSoftAntiAffinity' | 'updateReplicaRebuildingBandwidthLimit' | 'updateReplicaSoftAntiAffinity' | 'updateReplicaZoneSoftAntiAffinity' | 'updateSnapshotDataIntegrity' | 'updateSnapshotMaxCount' | 'updateSnapshotMaxSize' | 'updateUblkNumberOfQueue' | 'updateUblkQueueDepth' | 'updateUnmapMarkSnapChainRemoved';
  backupTarget: 'backupTargetSync' | 'backupTargetUpdate';
  backupVolume: 'backupDelete' | 'backupGet' | 'backupList' | 'backupListByVolume' | 'backupVolumeSync';
  backupBackingImage: 'backupBackingImageRestore';
  backingImage: 'backingImageCleanup' | 'backupBackingImageCreate' | 'updateMinNumberOfCopies' | 'upload';
  node: 'diskUpdate';
}
