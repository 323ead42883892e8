import type { DiskInfo } from './api/types.gen';
import type { Condition, InstanceManager, Node, Volume } from './api/wire';
import { bytes } from './format';

export type Health = 'Healthy' | 'Degraded' | 'In progress' | 'Faulted' | 'Detached';
export const healths: Health[] = ['Healthy', 'Degraded', 'In progress', 'Faulted', 'Detached'];

/** healthOf puts each volume into exactly one class, so that the classes add up to all. */
export function healthOf(v: Pick<Volume, 'state' | 'robustness'>): Health {
  if (v.state === 'detached') return v.robustness === 'faulted' ? 'Faulted' : 'Detached';
  if (v.state !== 'attached') return 'In progress';
  if (v.robustness === 'healthy') return 'Healthy';
  if (v.robustness === 'degraded') return 'Degraded';
  return v.robustness === 'faulted' ? 'Faulted' : 'In progress';
}

/** workOf says what is being done with the content of a volume, and how far that is: the mean of its replicas. */
export function workOf(v: Pick<Volume, 'rebuildStatus' | 'restoreStatus' | 'controllers'>): string[] {
  const said = (what: string, all: { progress: number }[]) => (all.length ? [`${what} ${Math.round(all.reduce((sum, p) => sum + p.progress, 0) / all.length)} %`] : []);
  return [...said('rebuilding', (v.rebuildStatus ?? []).filter((p) => p.isRebuilding)), ...said('restoring', (v.restoreStatus ?? []).filter((p) => p.isRestoring)),
    ...((v.controllers ?? []).some((c) => c.isExpanding) ? ['expanding'] : [])];
}

export type Redundancy = 'Full' | 'Limited' | 'One node' | 'None';
export const redundancies: Redundancy[] = ['Full', 'Limited', 'One node', 'None'];

/** redundancyOf says on how many nodes the copies are that a volume can go on with: as many as it wants, fewer, one of several, or none. */
export function redundancyOf(v: Pick<Volume, 'state' | 'replicas' | 'numberOfReplicas'>): Redundancy {
  const good = (v.replicas ?? []).filter((r) => r.hostId && !r.failedAt && (v.state !== 'attached' || r.mode === 'RW'));
  const nodes = new Set(good.map((r) => r.hostId)).size;
  if (nodes === 0) return 'None';
  if (nodes >= v.numberOfReplicas) return 'Full';
  return nodes === 1 ? 'One node' : 'Limited';
}

const isTrue = (c: Condition | undefined) => c?.status === 'True';

export type NodeState = 'Schedulable' | 'Unschedulable' | 'Disabled' | 'Down';
export const nodeStates: NodeState[] = ['Schedulable', 'Unschedulable', 'Disabled', 'Down'];

export function nodeState(n: Pick<Node, 'conditions' | 'allowScheduling' | 'disks'>): NodeState {
  if (!isTrue(n.conditions?.Ready)) return 'Down';
  const disks = Object.values(n.disks ?? {});
  const allowed = disks.filter((d) => d.allowScheduling);
  if (!n.allowScheduling || (disks.length > 0 && allowed.length === 0)) return 'Disabled';
  if (!isTrue(n.conditions?.Schedulable) || !allowed.some((d) => isTrue(d.conditions?.Schedulable))) return 'Unschedulable';
  return 'Schedulable';
}

/** removable: nothing is on a disk, and nothing new comes. */
export const removable = (d: Pick<DiskInfo, 'allowScheduling' | 'scheduledReplica' | 'scheduledBackingImage'>) => !d.allowScheduling &&
  Object.keys(d.scheduledReplica ?? {}).length === 0 && Object.keys(d.scheduledBackingImage ?? {}).length === 0;

/** Device is what a device below a disk says of itself, by SMART. The document of schemas has text for it. */
interface Device {
  healthStatus?: string;
  attributes?: { name: string; rawValue: number }[] | null;
}

const verdicts = ['FAILED', 'WARNING', 'UNKNOWN', 'PASSED'];

/** devicesOf is the worst that the devices below a disk say of themselves, and all that they say; nothing where none says anything. */
export function devicesOf(d: { healthData: Record<string, unknown> | null }): { verdict: string; said: string } | undefined {
  const all = Object.entries(d.healthData ?? {}) as [string, Device][];
  const [verdict] = all.map(([, h]) => h.healthStatus ?? 'UNKNOWN').sort((a, b) => verdicts.indexOf(a) - verdicts.indexOf(b));
  if (!verdict) return undefined;
  return { verdict, said: all.flatMap(([name, h]) => [`${name}: ${h.healthStatus ?? 'UNKNOWN'}`, ...(h.attributes ?? []).map((a) => `  ${a.name}: ${a.rawValue}`)]).join('\n') };
}

/** processesOf are the names of what runs in an instance manager. Older ones have all in field instances, of the manager's type where they say none. */
export function processesOf(m: Pick<InstanceManager, 'instanceEngines' | 'instanceReplicas' | 'instances' | 'managerType'>): { engines: string[]; replicas: string[] } {
  const old = Object.entries(m.instances ?? {}).map(([name, p]) => ({ name, type: (p as { status?: { type?: string } } | null)?.status?.type || m.managerType }));
  const of = (now: object | null, type: string) => [...new Set([...Object.keys(now ?? {}), ...old.filter((p) => p.type === type).map((p) => p.name)])].sort();
  return { engines: of(m.instanceEngines, 'engine'), replicas: of(m.instanceReplicas, 'replica') };
}

/** Space is what disks have, in bytes. used and available are all of maximum; what is reserved and what is allocated is promised
 * and lies across both. */
export interface Space {
  maximum: number;
  used: number;
  available: number;
  reserved: number;
  allocated: number;
  /** volumes is the part of used that the engines say their replicas take, others is the rest. */
  volumes: number;
  others: number;
}

/** replicaSizes is what the copies on each disk take, by the disk's UUID: engines tell it of volumes, each copy has it all. */
export function replicaSizes(volumes: readonly Volume[]): Map<string, number> {
  const sizes = new Map<string, number>();
  for (const v of volumes) {
    const size = Math.max(0, ...(v.controllers ?? []).map((c) => Number(c.actualSize) || 0));
    for (const r of v.replicas ?? []) if (r.diskID && !r.failedAt) sizes.set(r.diskID, (sizes.get(r.diskID) ?? 0) + size);
  }
  return sizes;
}

export function spaceOf(nodes: readonly Pick<Node, 'disks'>[], sizes: Map<string, number>): Space {
  const sum: Space = { maximum: 0, used: 0, available: 0, reserved: 0, allocated: 0, volumes: 0, others: 0 };
  for (const n of nodes) {
    for (const d of Object.values(n.disks ?? {})) {
      const used = Math.max(0, d.storageMaximum - d.storageAvailable);
      const volumes = Math.min(used, sizes.get(d.diskUUID) ?? 0);
      sum.maximum += d.storageMaximum;
      sum.available += d.storageMaximum - used;
      sum.used += used;
      sum.volumes += volumes;
      sum.others += used - volumes;
      sum.reserved += d.storageReserved;
      sum.allocated += d.storageScheduled;
    }
  }
  return sum;
}

/** explained says what a figure of the space is made of. */
export const explained = (s: Space) => `${bytes(s.volumes)} by volumes, ${bytes(s.others)} by others, ${bytes(s.available)} free of ${bytes(s.maximum)}`;
