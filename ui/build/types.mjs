// Prints TypeScript types for the objects of /v1 out of schemas.json, the schema document that the server serves.
import { readFileSync } from 'node:fs';

const plain = { string: 'string', int: 'number', float: 'number', bool: 'boolean' };

export function generate(text) {
  const schemas = JSON.parse(text);
  const known = new Map(schemas.map((s) => [s.id, s.id.charAt(0).toUpperCase() + s.id.slice(1)]));
  const type = (t) => {
    const of = /^(array|map)\[(.*)\]$/.exec(t);
    if (of) return of[1] === 'array' ? `${type(of[2])}[]` : `Record<string, ${type(of[2])}>`;
    return plain[t] ?? known.get(t) ?? 'unknown';
  };
  const out = ['// Made by "npm run types" of schemas.json; do not edit.', '', 'export interface Resource {',
    '  id: string;', '  type: string;', '  links: Record<string, string>;', '  actions: Record<string, string>;', '}', ''];
  const seen = new Set(['Resource']);
  for (const s of schemas) {
    const name = known.get(s.id);
    if (seen.has(name)) continue;
    seen.add(name);
    out.push(`export interface ${name} {`);
    for (const [field, f] of Object.entries(s.resourceFields).sort(([a], [b]) => (a < b ? -1 : 1))) {
      out.push(`  ${field}: ${type(f.type)};`);
    }
    out.push('}', '');
  }
  out.push('/** The actions that each kind has. */', 'export interface ActionsOf {');
  for (const s of schemas) {
    const actions = Object.keys(s.resourceActions ?? {}).sort();
    if (actions.length) out.push(`  ${s.id}: ${actions.map((a) => `'${a}'`).join(' | ')};`);
  }
  out.push('}', '');
  return out.join('\n');
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  process.stdout.write(generate(readFileSync(new URL('../schemas.json', import.meta.url), 'utf8')));
}
