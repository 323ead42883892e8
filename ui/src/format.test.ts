import { expect, test } from 'vitest';
import { ago, bytes, local, pairs, pairsOf, parseTime, percent, seconds, sizeOf, typed, words } from './format';

test('sizes are said as they are typed', () => {
  expect([0, '21474836480', 1536, 5e9, 2 ** 40, undefined, 1000.3 * 2 ** 30].map(bytes)).toEqual(
    ['0 B', '20 GiB', '1.5 KiB', '4.66 GiB', '1 TiB', '0 B', '1000 GiB']);
  expect(['21474836480', 512, 1536].map(typed)).toEqual(['20Gi', '512', '1536']);
});

test('both forms of time are read, and what is no time is none', () => {
  const want = Date.UTC(2023, 4, 3, 9, 57, 48);
  expect(parseTime('2023-05-03 09:57:48 +0000 UTC')?.getTime()).toBe(want);
  expect(parseTime('2023-05-03T09:57:48Z')?.getTime()).toBe(want);
  expect([parseTime(''), parseTime('soon'), parseTime('0001-01-01T00:00:00Z')]).toEqual([undefined, undefined, undefined]);
  expect(local(new Date(2023, 4, 3, 9, 7, 8))).toBe('2023-05-03 09:07:08');
});

test('how long ago is said in the largest unit', () => {
  const now = Date.UTC(2026, 4, 10);
  const before = (s: number) => ago(new Date(now - s * 1000), now);
  expect([0, 119, 120, 7199, 7200, 172799, 172800, -5].map(before)).toEqual(['0 s ago', '119 s ago', '2 min ago', '119 min ago', '2 h ago', '47 h ago', '2 d ago', '0 s ago']);
});

test('a share of nothing is none, and a small one is not nothing', () => {
  expect([percent(1, 3), percent(1, 0), percent(1, 1000), percent(0, 5)]).toEqual(['33 %', '–', '< 1 %', '0 %']);
});

test('durations are read in both forms', () => {
  expect(['300', '5m0s', '1h0m0s', '0s', '1h5m7s', ''].map(seconds)).toEqual([300, 300, 3600, 0, 3907, 0]);
});

test('words are divided by blanks and commas', () => {
  expect(words(' ssd,  fast\nx ')).toEqual(['ssd', 'fast', 'x']);
});

test('labels are read as they are said', () => {
  const labels = { app: 'web', note: 'a=b', bare: '' };
  expect(pairs(labels)).toBe('app=web, note=a=b, bare=');
  expect(pairsOf('app=web, note=a=b  bare')).toEqual(labels);
  expect(pairs(undefined)).toBe('');
});

test('sizes as people type them', () => {
  expect(['20Gi', '1.5Ki', '5M', ' 512 ', '1k'].map(sizeOf)).toEqual([20 * 2 ** 30, 1536, 5e6, 512, 1000]);
  expect(['', 'x', '-1', '3Xi', '1 Gi'].map(sizeOf)).toEqual(Array(5).fill(undefined));
});
