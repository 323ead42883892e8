import { expect, test } from 'vitest';
import { apply } from './apply';
import type { Resource } from './types.gen';

const o = (id: string, more: object = {}): Resource => ({ id, type: 't', links: {}, actions: {}, ...more });

test('a whole list replaces what there was', () => {
  expect(apply([o('x')], { type: 'collection', data: [o('a')] }).map((r) => r.id)).toEqual(['a']);
});

test('changes add, replace and remove in the order of the ids, and leave the rest as it is', () => {
  const before = [o('a'), o('c'), o('d')];
  const after = apply(before, { type: 'changes', removed: ['d'], data: [o('b'), o('a', { links: { self: 'x' } })] });
  expect(after.map((r) => r.id)).toEqual(['a', 'b', 'c']);
  expect(after[0]?.links).toEqual({ self: 'x' });
  expect(after[2]).toBe(before[1]);
});

test('changes without a list before them are one', () => {
  expect(apply(undefined, { type: 'changes', removed: [], data: [o('a')] })).toHaveLength(1);
});
