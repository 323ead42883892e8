import { expect, test } from 'vitest';
// @ts-expect-error it is a script without types
import { generate } from '../../build/types.mjs';
import schemas from '../../schemas.json?raw';
import have from './types.gen.ts?raw';

test('the types are those of the schema document; "npm run types" writes them anew', () => {
  expect(have).toBe(generate(schemas));
});
