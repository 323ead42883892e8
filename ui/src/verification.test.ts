import { expect, test } from 'vitest';
import type { BackupDamage, BackupVerification } from './api/wire';
import { backupResult, decisionOf, hurtBy, resultOf, underWay } from './verification';

const of = (change: Partial<BackupVerification>): BackupVerification => ({ backupVolume: 'v-1', volume: 'v', backupBackingImage: '', backingImage: '', target: 'default', state: 'done', requestedAt: '', startedAt: '',
  endedAt: '', progress: 0, blocks: 0, readBytes: 0, backups: [], faults: [], faultCount: 0, error: '', ...change });
const backups = [{ name: 'a', faults: 0 }, { name: 'b', faults: 2 }];

test('a verification says how far it is and what it has found', () => {
  expect(resultOf(of({ state: 'none' }))).toEqual({ word: '', text: 'never verified' });
  expect(resultOf(of({ state: 'waiting' })).word).toBe('waiting');
  expect(resultOf(of({ state: 'inProgress', progress: 40, blocks: 1 }))).toEqual({ word: '40 %', text: '1 block read, nothing found yet' });
  expect(resultOf(of({ state: 'inProgress', progress: 40, blocks: 9, faultCount: 1 })).text).toBe('9 blocks read, 1 object damaged or missing');
  expect(resultOf(of({ blocks: 9, backups: backups.slice(0, 1) }))).toEqual({ word: 'sound', text: '1 backup: all sound, 9 blocks read' });
  expect(resultOf(of({ faultCount: 2, backups }))).toEqual({ word: 'damaged', text: '2 objects damaged or missing; backups hurt: 1 of 2' });
  expect(resultOf(of({ state: 'inProgress', error: 'the target hid', backups }))).toEqual({ word: 'Error', text: 'the target hid' });
  expect((['none', 'waiting', 'inProgress', 'done'] as const).map((state) => underWay({ state }))).toEqual([false, true, true, false]);
});

test('a backup is sound when all was read and nothing of it is damaged', () => {
  expect(['a', 'b', 'c'].map((name) => backupResult(of({ backups }), name))).toEqual(['sound', 'damaged', '']);
  expect(['a', 'b'].map((name) => backupResult(of({ backups, state: 'inProgress' }), name))).toEqual(['', 'damaged']);
  expect(backupResult(of({ backups, error: 'it ended before its time' }), 'a')).toBe('');
  expect(backupResult(undefined, 'a')).toBe('');
});

test('a fault names the backups that it hurts, and how many it does not name', () => {
  expect(hurtBy({ backups: ['a', 'b'], backupCount: 2 })).toBe('a, b');
  expect(hurtBy({ backups: ['a', 'b'], backupCount: 5 })).toBe('a, b, and 3 more');
  expect(hurtBy({ backups: [], backupCount: 0 })).toBe('none');
});

test('damage is accepted after an attempt has failed, and acknowledged when ranges are zero', () => {
  const d = (change: Partial<BackupDamage>): BackupDamage => ({ volume: 'v', fromBackup: 's3://', restoring: false, problem: '', activating: false, held: '', accepted: false, damage: '', refused: '', ...change });
  expect(decisionOf(undefined)).toBeUndefined();
  expect(decisionOf(d({ restoring: true }))).toBeUndefined();
  expect(decisionOf(d({ restoring: true, problem: '2 blocks' }))).toBe('accept');
  expect(decisionOf(d({ restoring: true, problem: '2 blocks', accepted: true }))).toBeUndefined();
  expect(decisionOf(d({ damage: 'zero: [0, 5)' }))).toBe('acknowledge');
  expect(decisionOf(d({ damage: 'zero: [0, 5)', refused: 'the volume is being deleted' }))).toBeUndefined();
});
