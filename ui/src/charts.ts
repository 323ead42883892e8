import type { VolumeRates } from './api/wire';
import { bytes } from './format';
import type { Space } from './health';

/** A part of something, as a chart shows it. */
export interface Part {
  name: string;
  value: number;
}

/** Line is the space of a node. */
export interface Line extends Space {
  name: string;
}

/** spaceParts are what is used and by whom, and what is free; they add up to the size. */
export const spaceParts = (s: Space): Part[] => [{ name: 'By volumes', value: s.volumes }, { name: 'By others', value: s.others }, { name: 'Free', value: s.available }];

/** promiseParts are what is promised to replicas, what is reserved for others, and what is neither. Where more is promised than there is, nothing is left. */
export const promiseParts = (s: Space): Part[] => [{ name: 'Allocated', value: s.allocated }, { name: 'Reserved', value: s.reserved },
  { name: 'Neither', value: Math.max(0, s.maximum - s.reserved - s.allocated) }];

/** A chart of nodes shows so many; the table has them all. */
export const mostNodes = 16;

/** fullest are the nodes of which the largest share is used, the fullest first. */
export const fullest = (lines: readonly Line[]): Line[] =>
  [...lines].sort((a, b) => b.used / (b.maximum || 1) - a.used / (a.maximum || 1) || a.name.localeCompare(b.name, undefined, { numeric: true })).slice(0, mostNodes);

/** Sample is what the users of a volume did at a time, in ms since 1970; without rates the engine did not answer. */
export interface Sample {
  at: number;
  rates?: VolumeRates;
}

/** What a page keeps of what it has seen, and how often it asks, in ms. */
export const kept = 5 * 60_000;
export const askEvery = 2_000;

/** withSample adds a sample and drops those that are too old. */
export const withSample = (all: readonly Sample[], s: Sample): Sample[] => [...all.filter((o) => o.at > s.at - kept && o.at < s.at), s];

type Figure = Exclude<keyof VolumeRates, 'volume' | 'known'>;

/** Rate is a chart of what the users of a volume do. */
export interface Rate {
  title: string;
  read: Figure;
  write: Figure;
  said: (n: number) => string;
  /** least is where the axis ends at least, so that next to nothing looks so. */
  least: number;
  /** binary: sizes, which are told by powers of two. */
  binary?: boolean;
}

/** duration says a time that is given in ns. */
export function duration(n: number): string {
  if (n >= 1e9) return `${Number((n / 1e9).toPrecision(3))} s`;
  return n >= 1e6 ? `${Number((n / 1e6).toPrecision(3))} ms` : `${Math.round(n / 1000)} µs`;
}

export const rates: Rate[] = [
  { title: 'Throughput', read: 'readBytes', write: 'writeBytes', said: (n) => `${bytes(Math.round(n))}/s`, least: 2 ** 20, binary: true },
  { title: 'Operations', read: 'reads', write: 'writes', said: (n) => `${Math.round(n)}/s`, least: 100 },
  { title: 'Latency', read: 'readNanos', write: 'writeNanos', said: duration, least: 1e6 },
];

/** seriesOf are the points of a line; a gap stands where the engine did not answer. */
export const seriesOf = (all: readonly Sample[], figure: Figure): { x: number; y: number | null }[] =>
  all.map((s) => ({ x: s.at, y: s.rates ? s.rates[figure] : null }));

/** topOf is where the axis of a chart ends: a number that people read, of which a half is one too. */
export function topOf(all: readonly Sample[], r: Rate): number {
  const most = Math.max(r.least, ...all.flatMap((s) => (s.rates ? [s.rates[r.read], s.rates[r.write]] : [])));
  if (r.binary) return 2 ** Math.ceil(Math.log2(most));
  const ten = 10 ** Math.floor(Math.log10(most));
  return ten * ([1, 2, 4, 6, 8].find((n) => n * ten >= most) ?? 10);
}

/** sizeTicks are some sizes up to one that people read: multiples of a power of two. */
export function sizeTicks(most: number): number[] {
  if (most < 4) return [0];
  const step = 2 ** Math.floor(Math.log2(most / 2.5));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}
