import { expect, test } from 'vitest';
import type { BackingImage, Node, Volume } from './api/wire';
import { backupsToMake, checksumProblem, copiesOf, imageProgress, imageState, mayBeUploaded, sourceOf, takesUpload, usersOf } from './images';

const file = (state: string, message = '', progress = 0) => ({ state, message, progress, lastStateTransitionTime: '', dataEngine: 'v1' });
const image = (files: Record<string, ReturnType<typeof file>>, more: Partial<BackingImage> = {}) => ({
  name: 'golden', deletionTimestamp: '', minNumberOfCopies: 1, sourceType: 'download', parameters: { url: 'http://h/i' }, diskFileStatusMap: files, expectedChecksum: '',
  currentChecksum: '', ...more }) as unknown as BackingImage;
const node = (name: string, disks: Record<string, string>) => ({ name, disks: Object.fromEntries(Object.entries(disks).map(([d, diskUUID]) => [d, { diskUUID }])) }) as unknown as Node;
const volume = (name: string, backingImage: string, ...disks: string[]) => ({ name, backingImage, replicas: disks.map((diskID) => ({ diskID })) }) as unknown as Volume;

test('each image is in one class', () => {
  const of = (...states: string[]) => imageState(image(Object.fromEntries(states.map((s, i) => [String(i), file(s)]))));
  expect([of('ready'), of('ready', 'ready'), of('ready', 'failed'), of('ready', 'in-progress'), of('ready', 'unknown'), of('pending', 'starting'), of('in-progress', 'failed'),
    of('ready-for-transfer'), of('unknown', 'failed'), of('failed', 'pending'), of('failed-and-cleanup'), of('pending'), of(''), of()]).toEqual(
    ['Ready', 'Ready', 'Degraded', 'Degraded', 'Degraded', 'In progress', 'In progress', 'In progress', 'Unknown', 'Failed', 'Failed', 'Waiting', 'Waiting', 'Waiting']);
  expect([imageState(image({ a: file('ready') }, { minNumberOfCopies: 2 })), imageState(image({ a: file('ready') }, { deletionTimestamp: 'now' })), imageState(image({ a: file('ready') }, { minNumberOfCopies: 0 })),
    imageState({ ...image({}), diskFileStatusMap: null as never })]).toEqual(['Degraded', 'Deleting', 'Ready', 'Waiting']);
});

test('what has come', () => {
  expect([imageProgress(image({ a: file('in-progress', '', 20), b: file('in-progress', '', 41), c: file('pending') })), imageProgress(image({ a: file('ready', '', 100) }))]).toEqual([31, undefined]);
});

test('an upload is taken when somebody listens, and once', () => {
  const of = (files: Record<string, ReturnType<typeof file>>, more = {}) => takesUpload(image(files, { sourceType: 'upload', ...more }));
  expect([of({ a: file('pending') }), of({ a: file('pending', 'the Pod is not there') }), of({ a: file('failed', 'cut') }), of({ a: file('in-progress') }), of({ a: file('ready') }), of({}),
    of({ a: file('pending') }, { sourceType: 'download' }), of({ a: file('pending') }, { deletionTimestamp: 'now' })]).toEqual([true, false, true, false, false, false, false, false]);
  expect([mayBeUploaded(image({}, { sourceType: 'upload' })), mayBeUploaded(image({ a: file('ready') }, { sourceType: 'upload' })), mayBeUploaded(image({}))]).toEqual([true, false, false]);
});

test('where images come from', () => {
  const of = (sourceType: string, parameters: Record<string, string> | null) => sourceOf({ sourceType, parameters } as BackingImage);
  expect([of('download', { url: 'http://h/i' }), of('upload', null), of('export-from-volume', { 'volume-name': 'v', 'export-type': 'raw' }), of('clone', { 'backing-image': 'b' }), of('restore', {}), of('restore', { 'backup-target-name': 'default' }), of('new', {})]).toEqual(
    ['http://h/i', 'upload', 'volume v', 'image b', 'backup', 'backup on default', 'new']);
});

test('a target has one backup of each image', () => {
  const backups = [{ backingImageName: 'a', backupTargetName: 'default' }, { backingImageName: 'b', backupTargetName: 'second' }];
  const of = (target: string) => backupsToMake([{ name: 'a' }, { name: 'b' }], backups, target).map((b) => b.name);
  expect([of('default'), of('second'), of('third')]).toEqual([['b'], ['a'], ['a', 'b']]);
});

test('copies have a place, and say who uses them', () => {
  const volumes = [volume('v', 'golden', 'b', 'x'), volume('w', 'other', 'a'), volume('u', 'golden', 'b')];
  const copies = copiesOf(image({ b: file('ready'), gone: file('unknown'), a: file('ready') }), [node('node-2', { d: 'b' }), node('node-1', { d: 'a' })], volumes);
  expect(copies.map((c) => [c.node, c.name, c.disk, c.volumes])).toEqual([['', '', 'gone', []], ['node-1', 'd', 'a', []], ['node-2', 'd', 'b', ['v', 'u']]]);
  expect(usersOf('golden', volumes).map((v) => v.name)).toEqual(['v', 'u']);
  expect(usersOf('golden', undefined)).toEqual([]);
});

test('checksums as they are typed', () => {
  expect([checksumProblem(''), checksumProblem('ab'.repeat(64)), checksumProblem('AB'.repeat(64)), checksumProblem('ab')].map((p) => p === undefined)).toEqual([true, true, false, false]);
});
