import { expect, test } from 'vitest';
import type { VolumeRates } from './api/wire';
import { duration, fullest, kept, type Line, mostNodes, promiseParts, rates, type Sample, seriesOf, spaceParts, sizeTicks, topOf, withSample } from './charts';

const line = (change: Partial<Line>): Line => ({ name: 'n', maximum: 100, used: 40, available: 60, reserved: 10, allocated: 30, volumes: 25, others: 15, ...change });
const sample = (at: number, readBytes = 0, writeBytes = 0): Sample => ({ at, rates: { volume: 'v', known: true, readBytes, writeBytes, reads: 0, writes: 0, readNanos: 0, writeNanos: 0 } });

test('the parts of the space are the size, those of the promises too while they fit', () => {
  const sum = (parts: { value: number }[]) => parts.reduce((n, p) => n + p.value, 0);
  expect([sum(spaceParts(line({}))), sum(promiseParts(line({})))]).toEqual([100, 100]);
  expect(promiseParts(line({ allocated: 300 })).map((p) => p.value)).toEqual([300, 10, 0]);
});

test('the fullest nodes come first, and no more than a chart has room for', () => {
  expect(fullest([line({ name: 'node-10' }), line({ name: 'full', used: 90 }), line({ name: 'node-9' }), line({ name: 'none', maximum: 0, used: 0 })]).map((l) => l.name))
    .toEqual(['full', 'node-9', 'node-10', 'none']);
  expect(fullest(Array.from({ length: 50 }, (_, i) => line({ name: `n${i}` })))).toHaveLength(mostNodes);
});

test('samples are kept for a time, in their order, each once', () => {
  let all: Sample[] = [];
  for (const at of [0, 1000, 1000, kept + 500]) all = withSample(all, sample(at));
  expect(all.map((s) => s.at)).toEqual([1000, kept + 500]);
});

test('silence of an engine is a gap, not zero', () => {
  expect(seriesOf([sample(1, 5), { at: 2 }, sample(3, 7)], 'readBytes')).toEqual([{ x: 1, y: 5 }, { x: 2, y: null }, { x: 3, y: 7 }]);
});

test('axes end at numbers that people read', () => {
  const tops = (n: number) => rates.map((r) => topOf([sample(1), { at: 2 }, { at: 3, rates: { volume: 'v', known: true, readBytes: n, writeBytes: 0, reads: 0, writes: n, readNanos: n, writeNanos: 1 } }], r));
  expect(tops(0)).toEqual([2 ** 20, 100, 1e6]);
  expect(tops(3.3e6)).toEqual([2 ** 22, 4e6, 4e6]);
  expect(tops(9e6)).toEqual([2 ** 24, 1e7, 1e7]);
  expect(sizeTicks(256 * 2 ** 30).map((n) => n / 2 ** 30)).toEqual([0, 64, 128, 192, 256]);
  expect([sizeTicks(0), sizeTicks(1000).length]).toEqual([[0], 4]);
});

test('figures are said with their units', () => {
  const r = { volume: 'v', known: true, readBytes: 1536, writeBytes: 0, reads: 3, writes: 0, readNanos: 2_500_000, writeNanos: 900 } satisfies VolumeRates;
  expect(rates.map((c) => `${c.said(r[c.read])}, ${c.said(r[c.write])}`)).toEqual(['1.5 KiB/s, 0 B/s', '3/s, 0/s', '2.5 ms, 1 µs']);
  expect([0, 999_000, 120e6, 1e9, 12.34e9].map(duration)).toEqual(['0 µs', '999 µs', '120 ms', '1 s', '12.3 s']);
});
