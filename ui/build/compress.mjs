// Leaves of dist/ only compressed files, which is what the program embeds, and the file that git keeps there.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const dist = new URL('../dist', import.meta.url).pathname;
let first = 0;
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  if (!entry.isFile()) continue;
  const packed = gzipSync(readFileSync(path), { level: 9 });
  packed.fill(0, 4, 8); // the time is no part of the content
  writeFileSync(`${path}.gz`, packed);
  rmSync(path);
  first += packed.length;
}
writeFileSync(join(dist, '.keep'), '');
console.log(`the UI has ${Math.round(first / 1000)} kB, compressed`);
