import { expect, test } from 'vitest';
import schemas from '../schemas.json?raw';
import { elsewhere, fields, isNumber } from './pages/fields';

interface Schema {
  id: string;
  resourceFields: Record<string, unknown>;
  resourceActions?: Record<string, { input?: string }> | null;
}
const all = JSON.parse(schemas) as Schema[];
const volume = all.find((s) => s.id === 'volume');

test('each action that changes a field of a volume can be taken', () => {
  const changes = Object.keys(volume?.resourceActions ?? {}).filter((a) => a.startsWith('update') || a === 'offlineReplicaRebuilding');
  expect([...fields.map((f) => f.action), ...elsewhere].sort()).toEqual(changes.sort());
});

test('the inputs of these actions have the fields', () => {
  for (const { action, field } of fields) {
    const input = all.find((s) => s.id === volume?.resourceActions?.[action]?.input);
    // Some actions name an input that the document does not have, as clients know them.
    if (input) expect(Object.keys(input.resourceFields), action).toContain(field);
  }
});

test('a new volume gets them as the schema has them', () => {
  for (const f of fields) {
    const { type } = volume?.resourceFields[f.field] as { type: string };
    expect(!!isNumber(f), f.field).toBe(type === 'int');
  }
});
