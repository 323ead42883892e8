// What the schema document says less exactly than the wire has it. A name that the document does not have is a type error.
import type * as gen from './types.gen';

type Exact<T, K extends { [P in keyof T]?: unknown }> = Omit<T, keyof K> & K;

export type Condition = gen.VolumeCondition;
export type Volume = gen.Volume & gen.Resource;
export type Node = gen.Node & gen.Resource;
export type Snapshot = gen.Snapshot & gen.Resource;
export type Setting = gen.Setting & gen.Resource;
export type BackingImage = gen.BackingImage & gen.Resource;
export type Backup = gen.Backup & gen.Resource;
export type BackupBackingImage = gen.BackupBackingImage & gen.Resource;
export type BackupTarget = gen.BackupTarget & gen.Resource;
export type BackupVolume = gen.BackupVolume & gen.Resource;
export type Orphan = gen.Orphan & gen.Resource;
export type RecurringJob = gen.RecurringJob & gen.Resource;
export type EngineImage = Exact<gen.EngineImage, { conditions: Condition[]; nodeDeploymentMap: Record<string, boolean> }> & gen.Resource;
export type Processes = Record<string, unknown> | null;
export type InstanceManager = Exact<gen.InstanceManager,
  { conditions: Record<string, Condition> | null; instances: Processes; instanceEngines: Processes; instanceReplicas: Processes }> &
  gen.Resource;
export interface KubernetesEvent {
  involvedObject: { kind: string; name: string };
  reason: string;
  message: string;
  type: string;
  count?: number;
  firstTimestamp: string | null;
  lastTimestamp: string | null;
  eventTime?: string | null;
  source?: { component?: string };
  reportingComponent?: string;
  metadata: { name: string; creationTimestamp: string };
}
export type Event = Exact<gen.Event, { event: KubernetesEvent }> & gen.Resource;

// Objects of ours, which the document of schemas does not have (rest.TestObjectsOfTheUI).
export interface BackupVerification {
  backupVolume: string;
  volume: string;
  backupBackingImage: string;
  backingImage: string;
  target: string;
  state: 'none' | 'waiting' | 'inProgress' | 'done';
  requestedAt: string;
  startedAt: string;
  endedAt: string;
  progress: number;
  blocks: number;
  readBytes: number;
  backups: VerifiedBackup[];
  faults: BackupFault[];
  faultCount: number;
  error: string;
}
export interface VerifiedBackup {
  name: string;
  faults: number;
}
export interface BackupFault {
  kind: string;
  object: string;
  message: string;
  backups: string[];
  backupCount: number;
}
export interface BackupDamage {
  volume: string;
  fromBackup: string;
  restoring: boolean;
  problem: string;
  activating: boolean;
  held: string;
  accepted: boolean;
  damage: string;
  refused: string;
}
export interface VolumeRates {
  volume: string;
  known: boolean;
  readBytes: number;
  writeBytes: number;
  reads: number;
  writes: number;
  readNanos: number;
  writeNanos: number;
}
