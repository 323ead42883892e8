// What Lighthouse says of the pages of a cluster, as tools/lighthouse.sh starts it. It opens them in a browser that has logged in, as on a
// desktop. In the environment: URL, TOKEN and CHROME as browser.mjs has them, and
//
//   VERSION   which Lighthouse npx runs
//   REPORTS   folder for the reports
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const { URL: address, TOKEN: token, CHROME: chrome, VERSION: version, REPORTS: reports } = process.env;
const name = 'measured';
const pages = ['dashboard', 'volumes', `volumes/${name}`, 'nodes', 'nodes/node-1', 'recurringjobs', 'backups', 'backups-all', 'backups-verification', 'backuptargets',
  'backingimages', 'engineimages', 'instancemanagers', 'orphans', 'events', 'settings'];
// What search engines want of pages counts for nothing here: nobody may see these who has not logged in.
const categories = ['performance', 'accessibility', 'best-practices'];

async function freePort() {
  const server = createServer();
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  const { port } = server.address();
  await new Promise((done) => { server.close(done); });
  return port;
}

const measure = (place, port, file) => new Promise((done, fail) => {
  const run = spawn('npx', ['--yes', `lighthouse@${version}`, `${address}/#/${place}`, `--port=${port}`, '--preset=desktop', `--only-categories=${categories}`,
    '--output=json', '--output=html', `--output-path=${file}`, '--quiet'], { stdio: ['ignore', 'inherit', 'inherit'] });
  run.on('error', fail);
  run.on('exit', (status) => (status === 0 ? done() : fail(new Error(`Lighthouse ends with ${status} at ${place}`))));
});

async function main() {
  const profile = mkdtempSync(join(tmpdir(), 'lighthouse-'));
  const port = await freePort();
  const browser = await chromium.launchPersistentContext(profile, { executablePath: chrome, args: [`--remote-debugging-port=${port}`, '--no-sandbox', '--disable-gpu'] });
  try {
    const page = await browser.newPage();
    await page.goto(`${address}/#token=${encodeURIComponent(token)}`);
    await page.getByRole('heading', { level: 1, name: 'Dashboard' }).waitFor();
    const made = await fetch(`${address}/v1/volumes`, { method: 'POST', headers: { Authorization: `Bearer ${token}` }, body: JSON.stringify({ name, size: '32Mi', numberOfReplicas: 2 }) });
    if (!made.ok) throw new Error(`${made.status} ${await made.text()}`);
    const found = new Map();
    console.log(`| page | ${categories.join(' | ')} | first content, s | largest, s | blocked, ms | moved |\n| --- |${' --- |'.repeat(categories.length + 4)}`);
    for (const place of pages) {
      const file = join(reports, place.replace('/', '-'));
      await measure(place, port, file);
      const report = JSON.parse(readFileSync(`${file}.report.json`, 'utf8'));
      const of = (audit, digits, by = 1) => (report.audits[audit].numericValue / by).toFixed(digits);
      console.log(`| ${place} | ${categories.map((c) => Math.round(report.categories[c].score * 100)).join(' | ')} | ${of('first-contentful-paint', 1, 1000)} | ` +
        `${of('largest-contentful-paint', 1, 1000)} | ${of('total-blocking-time', 0)} | ${of('cumulative-layout-shift', 3)} |`);
      for (const c of categories) {
        for (const { id, weight } of report.categories[c].auditRefs) {
          const { score, title, displayValue } = report.audits[id];
          if (score === null || score >= 0.9) continue;
          const key = `${c}, ${id} (${weight > 0 ? `weight ${weight}` : 'no weight'}): ${title}`;
          found.set(key, [...(found.get(key) ?? []), `${place}${displayValue ? ` (${displayValue})` : ''}`]);
        }
      }
    }
    for (const [what, where] of found) console.log(`\n${what}\n  ${where.join(', ')}`);
  } finally {
    await browser.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

await main();
