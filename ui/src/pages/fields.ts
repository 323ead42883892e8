import type { Volume } from '../api/wire';

/** Field is one that an action of a volume changes. */
export interface Field {
  action: string;
  /** field of the volume, and of the action's input. */
  field: keyof Volume & string;
  label: string;
  /** choices; without them it is a number, or text. */
  choices?: string[];
  number?: boolean;
}

const override = ['ignored', 'enabled', 'disabled'];

/** The action takes text for this one, where a volume has a number. */
export const isNumber = (f: Field) => f.number || f.field === 'replicaRebuildingBandwidthLimit';

/** fields are those of Change… Others have an entry of their own. */
export const fields: Field[] = [
  { action: 'updateReplicaAutoBalance', field: 'replicaAutoBalance', label: 'Auto balance of replicas', choices: ['ignored', 'disabled', 'least-effort', 'best-effort'] },
  { action: 'updateSnapshotDataIntegrity', field: 'snapshotDataIntegrity', label: 'Data integrity of snapshots', choices: ['ignored', 'disabled', 'enabled', 'fast-check'] },
  { action: 'updateSnapshotMaxCount', field: 'snapshotMaxCount', label: 'Snapshots at most', number: true },
  { action: 'updateSnapshotMaxSize', field: 'snapshotMaxSize', label: 'Space of snapshots at most, in bytes (0: no limit)' },
  { action: 'updateFreezeFilesystemForSnapshot', field: 'freezeFilesystemForSnapshot', label: 'Freeze the file system for snapshots', choices: override },
  { action: 'updateUnmapMarkSnapChainRemoved', field: 'unmapMarkSnapChainRemoved', label: 'Trim removes snapshots below', choices: override },
  { action: 'updateReplicaSoftAntiAffinity', field: 'replicaSoftAntiAffinity', label: 'Replicas may share a node', choices: override },
  { action: 'updateReplicaZoneSoftAntiAffinity', field: 'replicaZoneSoftAntiAffinity', label: 'Replicas may share a zone', choices: override },
  { action: 'updateReplicaDiskSoftAntiAffinity', field: 'replicaDiskSoftAntiAffinity', label: 'Replicas may share a disk', choices: override },
  { action: 'offlineReplicaRebuilding', field: 'offlineRebuilding', label: 'Rebuild while detached', choices: override },
  { action: 'updateRebuildConcurrentSyncLimit', field: 'rebuildConcurrentSyncLimit', label: 'Files at a time of a rebuild (0: as the setting says)', number: true },
  { action: 'updateReplicaRebuildingBandwidthLimit', field: 'replicaRebuildingBandwidthLimit', label: 'MiB per second of rebuilds at most (0: as the setting says)' },
  { action: 'updateBackupTargetName', field: 'backupTargetName', label: 'Backup target' },
  { action: 'updateAccessMode', field: 'accessMode', label: 'Access mode', choices: ['rwo', 'rwop', 'rwx'] },
];

/** elsewhere are actions that change a field in a dialog of their own, or that no value can be given to. */
export const elsewhere = ['updateReplicaCount', 'updateDataLocality', 'updateBackupCompressionMethod', 'updateUblkNumberOfQueue', 'updateUblkQueueDepth'];
