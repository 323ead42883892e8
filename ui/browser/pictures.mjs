// Pictures of every page, light and dark, wide and narrow, of a small cluster in use, and one of each page in all four looks.
// docs/guide/ui.md shows some of the former and all of the latter. browser.mjs says what it needs; beside that
//
//   STORE      directory for backups
//   PICTURES   folder that the pictures are written to
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { address, ask, button, go, limit, logIn, must, open, ready, run, step, token, told } from './browser.mjs';

const { STORE: store, PICTURES: folder } = process.env;
const pages = ['dashboard', 'volumes', 'volumes/orders', 'nodes', 'nodes/node-1', 'recurringjobs', 'backups', 'backups/orders', 'backups-all', 'backups-verification', 'backups-images', 'backuptargets',
  'backingimages', 'backingimages/debian-12', 'engineimages', 'instancemanagers', 'orphans', 'events', 'settings'];
const sizes = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } };
// A picture has so many bytes at most: everybody who clones the repository pays for those that are kept.
const most = 60_000;

// until asks again and again until what it is told holds.
async function until(what, f) {
  const end = Date.now() + limit;
  for (let got = await f(); ; got = await f()) {
    if (got) return got;
    must(Date.now() < end, `Timeout ${limit} ms: ${what}`);
    await new Promise((done) => { setTimeout(done, 300); });
  }
}

const act = (kind, name, action, input = {}) => ask('POST', `${kind}/${name}?action=${action}`, input);

async function attached(name, node) {
  await until(`${name} is detached`, async () => (await ask('GET', `volumes/${name}`)).state === 'detached');
  await act('volumes', name, 'attach', { hostId: node, disableFrontend: false, attachmentID: '' });
  await until(`${name} is healthy`, async () => (await ask('GET', `volumes/${name}`)).robustness === 'healthy');
}

// imaged makes a backing image of so many bytes, with two copies.
async function imaged(name, size) {
  await ask('POST', 'backingimages', { name, sourceType: 'upload', parameters: {}, minNumberOfCopies: 2 });
  const form = new FormData();
  form.append('chunk', new Blob([randomBytes(size)]), name);
  const send = () => fetch(`${address}/v1/backingimages/${name}?action=upload&size=${size}`, { method: 'POST', headers: { Authorization: `Bearer ${token}` }, body: form });
  await until(`${name} is uploaded`, async () => (await send()).ok);
  await until(`${name} has two copies`, async () => Object.values((await ask('GET', `backingimages/${name}`)).diskFileStatusMap).filter((f) => f.state === 'ready').length === 2);
}

// fill makes what the pages show, and tells the name of what the target has of the volume.
async function fill() {
  const target = await ask('GET', 'backuptargets/default');
  await act('backuptargets', 'default', 'backupTargetUpdate', { name: target.name, backupTargetURL: `vfs://${store}`, credentialSecret: '', pollInterval: '300' });
  await ask('POST', 'backingimages', { name: 'installer', sourceType: 'upload', parameters: {}, minNumberOfCopies: 1 });
  await imaged('debian-12', 16 << 20);
  for (const [name, size, numberOfReplicas, backingImage] of [['orders', 256, 3, ''], ['images', 64, 2, ''], ['scratch', 32, 1, 'debian-12']]) {
    await ask('POST', 'volumes', { name, size: String(size << 20), numberOfReplicas, backingImage });
  }
  await attached('orders', 'node-1');
  await attached('images', 'node-2');
  await ask('POST', 'recurringjobs', { name: 'nightly', task: 'snapshot', cron: '0 2 * * *', retain: 7, concurrency: 2, groups: ['default'], labels: {} });
  await until('the target is available', async () => (await ask('GET', 'backuptargets/default')).available);
  for (const name of ['monday', 'tuesday']) {
    await act('volumes', 'orders', 'snapshotCreate', { name });
    await until(`snapshot ${name} is known`, () => act('volumes', 'orders', 'snapshotBackup', { name }).catch((e) => told(`  ${e.message}`)));
  }
  const of = await until('the target has the volume', async () => (await ask('GET', 'backupvolumes')).data.find((b) => b.volumeName === 'orders'));
  await until('two backups are complete', async () => (await act('backupvolumes', of.id, 'backupList')).data.filter((b) => b.state === 'Completed').length === 2);
  await act('backingimages', 'debian-12', 'backupBackingImageCreate', { backupTargetName: 'default' });
  await until('the backup of the image is complete', async () => (await ask('GET', 'backupbackingimages')).data.some((b) => b.state === 'Completed'));
  await ask('POST', `backupverifications/${of.id}`, {});
  await until('the backups are verified', async () => (await ask('GET', `backupverifications/${of.id}`)).state === 'done');
  return of.id;
}

async function empty(of) {
  await ask('DELETE', 'recurringjobs/nightly');
  for (const name of ['orders', 'images', 'scratch']) await ask('DELETE', `volumes/${name}`);
  await ask('DELETE', `backupvolumes/${of}`);
  for (const b of (await ask('GET', 'backupbackingimages')).data) await ask('DELETE', `backupbackingimages/${b.id}`);
  for (const name of ['installer', 'debian-12']) await until(`${name} is deleted`, () => ask('DELETE', `backingimages/${name}`).then(() => true, () => false));
}

// used writes to a volume until what it returns is called, where its endpoint is a file here.
async function used(name) {
  const { endpoint } = (await ask('GET', `volumes/${name}`)).controllers[0];
  const device = endpoint.startsWith('/') ? await openFile(endpoint, 'r+').catch(() => undefined) : undefined;
  if (!device) {
    told(`  ${name} is not written to: its endpoint is ${endpoint}`);
    return () => undefined;
  }
  let on = true;
  const writing = (async () => {
    for (let i = 0; on; i++) {
      await device.write(randomBytes((1 + (i % 7)) << 16), 0, undefined, (i % 128) << 20);
      await device.datasync();
    }
  })();
  return async () => {
    on = false;
    await writing;
    await device.close();
  };
}

async function screenshot(page, quality) {
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality });
  await session.detach();
  return Buffer.from(data, 'base64');
}

const looks = new Map(); // of each page: pictures by look and size

async function take(page, place, look, width) {
  const picture = await screenshot(page, 70);
  const name = `${place.replace('/', '-')}-${look}-${width}`;
  must(picture.length < most, `the picture ${name} has ${picture.length} bytes, ${most} are too many`);
  writeFileSync(`${folder}/${name}.webp`, picture);
  looks.set(place, { ...looks.get(place), [`${look}-${width}`]: await page.screenshot() });
  return picture.length;
}

// together makes one picture of each page in its four looks, as good as the bound lets it be.
async function together() {
  const scale = 0.6, gap = 8;
  const wide = Math.round(sizes.wide.width * scale), high = Math.round(sizes.wide.height * scale), narrow = Math.round((sizes.narrow.width * high) / sizes.narrow.height);
  const page = await open({ width: wide + narrow + gap, height: 2 * high + gap });
  let all = 0;
  for (const [place, of] of looks) {
    const shown = (name, width) => `<img width="${width}" height="${high}" src="data:image/png;base64,${of[name].toString('base64')}">`;
    await page.setContent(`<body style="margin:0;display:grid;gap:${gap}px;grid-template-columns:auto auto;background:#888">` +
      ['light', 'dark'].map((look) => shown(`${look}-wide`, wide) + shown(`${look}-narrow`, narrow)).join(''));
    await page.evaluate(() => Promise.all([...document.images].map((i) => i.decode())));
    let picture;
    for (let quality = 70; !picture || picture.length >= most; quality -= 10) {
      must(quality > 0, `the picture of ${place} has ${picture?.length} bytes at the least quality`);
      picture = await screenshot(page, quality);
    }
    writeFileSync(`${folder}/${place.replace('/', '-')}.webp`, picture);
    all += picture.length;
  }
  await page.context().close();
  told(`  ${looks.size} pictures, ${Math.round(all / 1000)} kB`);
}

async function main() {
  let of;
  await step('a small cluster in use', async () => { of = await fill(); });
  const over = await used('orders');
  for (const [width, size] of Object.entries(sizes)) {
    const page = await logIn(size);
    for (const look of ['light', 'dark']) {
      await step(`every page, ${look} and ${width}`, async () => {
        if (look === 'dark') await button(page, 'Dark').click();
        let all = 0;
        for (const p of pages) {
          await go(page, p === 'backups/orders' ? `backups/${of}` : p);
          await page.getByRole('heading', { level: 1 }).waitFor();
          await ready(page);
          if (p === 'backups/orders') await page.getByRole('heading', { name: 'Verification' }).waitFor();
          if (p === 'dashboard' || p === 'volumes/orders') await page.locator('.ak-chart svg').first().waitFor();
          // One picture has some points of a line.
          for (let i = 0; p === 'volumes/orders' && look === 'light' && width === 'wide' && i < 8; i++) await page.waitForResponse(/volumerates/);
          all += await take(page, p, look, width);
        }
        told(`  ${pages.length} pictures, ${Math.round(all / 1000)} kB`);
      });
    }
    await page.context().close();
  }
  await over();
  await step('each page in its four looks', together);
  await step('the cluster is left empty', () => empty(of));
}

await run(main);
