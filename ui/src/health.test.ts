import { expect, test } from 'vitest';
import type { Node, Volume } from './api/wire';
import { devicesOf, healthOf, nodeState, processesOf, redundancyOf, removable, replicaSizes, spaceOf, workOf } from './health';

test('each volume is in one class', () => {
  const of = (state: string, robustness: string) => healthOf({ state, robustness });
  expect([of('attached', 'healthy'), of('attached', 'degraded'), of('attached', 'unknown'), of('attaching', 'healthy'),
    of('detached', 'faulted'), of('attached', 'faulted'), of('detached', 'unknown')]).toEqual(
    ['Healthy', 'Degraded', 'In progress', 'In progress', 'Faulted', 'Faulted', 'Detached']);
});

test('what is done with a volume is told with its progress', () => {
  const of = (more: object) => workOf({ rebuildStatus: [], restoreStatus: [], controllers: [], ...more } as unknown as Volume);
  expect([of({}), of({ rebuildStatus: null, restoreStatus: null, controllers: null }), of({ restoreStatus: [{ isRestoring: false, progress: 100 }] }),
    of({ restoreStatus: [{ isRestoring: true, progress: 10 }, { isRestoring: true, progress: 31 }, { isRestoring: false, progress: 100 }] }),
    of({ rebuildStatus: [{ isRebuilding: true, progress: 42 }], controllers: [{ isExpanding: true }] })]).toEqual(
    [[], [], [], ['restoring 21 %'], ['rebuilding 42 %', 'expanding']]);
});

const yes = { status: 'True' };
const disk = (more: object) => ({ allowScheduling: true, conditions: { Schedulable: yes }, ...more });
const node = (more: object) => ({ allowScheduling: true, conditions: { Ready: yes, Schedulable: yes }, disks: { d: disk({}) }, ...more }) as unknown as Node;

test('a disk is as sound as the worst device below it', () => {
  const sound = { healthStatus: 'PASSED', attributes: [{ name: 'Temperature', rawValue: 31 }] };
  expect([devicesOf({ healthData: null }), devicesOf({ healthData: { sda: sound } }), devicesOf({ healthData: { sda: sound, sdb: { healthStatus: 'FAILED' }, sdc: {} } })]).toEqual(
    [undefined, { verdict: 'PASSED', said: 'sda: PASSED\n  Temperature: 31' }, { verdict: 'FAILED', said: 'sda: PASSED\n  Temperature: 31\nsdb: FAILED\nsdc: UNKNOWN' }]);
});

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
