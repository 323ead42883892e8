import { expect, test } from 'vitest';
import { type Layer, order } from './tree';

const layer = (name: string, parent: string, created = name): Layer => ({ name, parent, created, removed: false, byUser: true, size: 0, labels: {} });
const shape = (layers: Layer[]) => order(layers).map((l) => `${' '.repeat(l.depth)}${l.name}`);

test('a chain stays at one depth', () => {
  expect(shape([layer('volume-head', 'b'), layer('b', 'a'), layer('a', '')])).toEqual(['a', 'b', 'volume-head']);
});

test('what branches off is deeper and stands before the chain with the head', () => {
  expect(shape([layer('a', ''), layer('b', 'a'), layer('c', 'b'), layer('volume-head', 'a')])).toEqual(['a', ' b', ' c', 'volume-head']);
});

test('a parent that is gone makes a root, and a circle loses nothing', () => {
  expect(shape([layer('a', 'gone'), layer('x', 'y'), layer('y', 'x')])).toEqual(['a', 'x', 'y']);
});

test('a chain of many needs no stack', () => {
  const many = Array.from({ length: 20_000 }, (_, i) => layer(`s${i}`, i ? `s${i - 1}` : '', String(i)));
  expect(order(many)).toHaveLength(20_000);
});
