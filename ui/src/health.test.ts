import { expect, test } from 'vitest';
import type { Node, Volume } from './api/wire';
import { healthOf, nodeState, processesOf, redundancyOf, removable, replicaSizes, spaceOf, whyOf } from './health';

test('each volume is in one class', () => {
  const of = (state: string, robustness: string) => healthOf({ state, robustness });
  expect([of('attached', 'healthy'), of('attached', 'degraded'), of('attached', 'unknown'), of('attaching', 'healthy'),
    of('detached', 'faulted'), of('attached', 'faulted'), of('detached', 'unknown')]).toEqual(
    ['Healthy', 'Degraded', 'In progress', 'In progress', 'Faulted', 'Faulted', 'Detached']);
});

const yes = { status: 'True' };
const disk = (more: object) => ({ allowScheduling: true, conditions: { Schedulable: yes }, ...more });
const node = (more: object) => ({ allowScheduling: true, conditions: { Ready: yes, Schedulable: yes }, disks: { d: disk({}) }, ...more }) as unknown as Node;

test('states of nodes', () => {
  expect([node({}), node({ allowScheduling: false }), node({ conditions: {} }), node({ disks: { d: disk({ allowScheduling: false }) } }),
    node({ disks: { d: disk({ conditions: {} }) } }), node({ disks: null })].map(nodeState)).toEqual(
    ['Schedulable', 'Disabled', 'Down', 'Disabled', 'Unschedulable', 'Unschedulable']);
});

test('a disk is removed when nothing is on it', () => {
  const of = (more: object) => removable({ allowScheduling: false, scheduledReplica: {}, scheduledBackingImage: {}, ...more });
  expect([of({}), of({ scheduledReplica: null, scheduledBackingImage: null }), of({ allowScheduling: true }), of({ scheduledReplica: { r: '1' } }), of({ scheduledBackingImage: { golden: '1' } })]).toEqual(
    [true, true, false, false, false]);
});

test('the parts of the space add up to the whole', () => {
  const volumes = [{ controllers: [{ actualSize: '30' }], replicas: [{ diskID: 'a', failedAt: '' }, { diskID: 'b', failedAt: 'x' }] }] as unknown as Volume[];
  const nodes = [node({ disks: { d: disk({ diskUUID: 'a', storageMaximum: 100, storageAvailable: 40, storageReserved: 10, storageScheduled: 500 }),
    e: disk({ diskUUID: 'b', storageMaximum: 50, storageAvailable: 70, storageReserved: 5, storageScheduled: 0 }) } })];
  const s = spaceOf(nodes, replicaSizes(volumes));
  expect(s).toEqual({ maximum: 150, used: 60, available: 90, reserved: 15, allocated: 500, volumes: 30, others: 30 });
  expect(s.volumes + s.others + s.available).toBe(s.maximum);
});

test('why a volume waits', () => {
  const v = { state: 'attached', ready: false, notReadyMessage: 'it is faulted', controllers: null, replicas: [], rebuildStatus: [{ replica: 'r', isRebuilding: true, progress: 7 }],
    conditions: { Scheduled: { status: 'False', reason: 'NoRoom', message: 'no disk has room' }, Restore: { status: 'False', message: '' } },
    volumeAttachment: { attachments: { t: { nodeID: 'n', satisfied: false, conditions: [{ message: 'the node is gone' }] } } } } as unknown as Volume;
  expect(whyOf(v).map((r) => r.what)).toEqual(['Not ready', 'Scheduled: NoRoom', 'Rebuild of r', 'Attachment to n']);
  expect(whyOf({ ...v, standby: true }).map((r) => r.what)).not.toContain('Not ready');
});

test('what only tells something is no reason', () => {
  const v = { state: 'attached', ready: true, controllers: [], replicas: [], rebuildStatus: [], volumeAttachment: { attachments: {} },
    conditions: { HasContent: { status: 'True', reason: 'PodRan', message: 'a Pod has run with it' }, TooManySnapshots: { status: 'False', message: 'few' },
      NoSpace: { status: 'True', message: 'the disk is full' } } } as unknown as Volume;
  expect(whyOf(v).map((r) => r.what)).toEqual(['NoSpace']);
});

test('a best-effort volume says that its node has no replica', () => {
  const on = (dataLocality: string, hostId: string, mode: string) => whyOf({ state: 'attached', ready: true, dataLocality, controllers: [{ hostId: 'a' }],
    replicas: [{ name: 'r', hostId, mode }] } as unknown as Volume).map((r) => r.what);
  expect([on('best-effort', 'a', 'RW'), on('disabled', 'b', 'RW')]).toEqual([[], []]);
  expect([on('best-effort', 'b', 'RW'), on('best-effort', 'a', 'WO')]).toEqual([['Data locality'], ['Data locality']]);
});

test('processes of an instance manager in both forms', () => {
  const of = (m: object) => processesOf({ instanceEngines: null, instanceReplicas: null, instances: null, managerType: 'aio', ...m });
  expect(of({ instanceEngines: { e: {} }, instanceReplicas: { r: {}, s: {} } })).toEqual({ engines: ['e'], replicas: ['r', 's'] });
  expect(of({ managerType: 'engine', instances: { e: { status: { type: 'engine' } }, f: {} } })).toEqual({ engines: ['e', 'f'], replicas: [] });
  expect(of({ managerType: 'replica', instances: { r: null } })).toEqual({ engines: [], replicas: ['r'] });
  expect(of({})).toEqual({ engines: [], replicas: [] });
});

test('redundancy counts nodes with copies that are in use', () => {
  const r = (hostId: string, mode = 'RW', failedAt = '') => ({ hostId, mode, failedAt }) as Volume['replicas'][number];
  const of = (state: string, numberOfReplicas: number, ...replicas: Volume['replicas']) => redundancyOf({ state, numberOfReplicas, replicas });
  expect(of('attached', 2, r('a'), r('b'))).toBe('Full');
  expect(of('attached', 1, r('a'))).toBe('Full');
  expect(of('attached', 3, r('a'), r('b'), r('c', 'WO'))).toBe('Limited');
  expect(of('attached', 3, r('a'), r('a'), r('a'))).toBe('One node');
  expect(of('attached', 2, r('a', 'ERR'), r('', ''))).toBe('None');
  expect(of('detached', 2, r('a', ''), r('b', '', '2026-01-01T00:00:00Z'))).toBe('One node');
});
