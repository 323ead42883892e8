// Backing images in the web UI: made by download and by upload, used by a volume, cleaned up, deleted. browser.mjs says what it needs; beside that
//
//   WEB      address of a server with an image, golden.raw
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { createGunzip } from 'node:zlib';
import { again, ask, button, choose, confirm, dialog, findings, focused, go, heading, logIn, must, open, picture, ready, run, state, step, tab, token, address, viewer, world } from './browser.mjs';

const { WEB: web } = process.env;
const url = `${web}/golden.raw`;
const row = (page, name) => page.getByRole('row', { name: new RegExp(`^(Select )?${name} `) });
const fact = (page, title) => page.locator('dt', { hasText: title }).locator('xpath=following-sibling::dd');
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
const files = async (name) => Object.values((await ask('GET', `backingimages/${name}`)).diskFileStatusMap).filter((f) => f.state === 'ready').length;
const digest = async (stream) => {
  const sum = createHash('sha512');
  for await (const part of stream) sum.update(part);
  return sum.digest('hex');
};

// slow bounds what the page sends, in bytes per second; it returns what ends that.
async function slow(page, bytes) {
  const session = await page.context().newCDPSession(page);
  const set = (uploadThroughput) => session.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await session.send('Network.enable');
  await set(bytes);
  return () => set(-1).then(() => session.detach());
}

async function main() {
  const sum = await digest((await fetch(url)).body);
  const page = await logIn();
  const images = () => go(page, 'backingimages');
  await step('an empty page says what to do', async () => {
    await images();
    await heading(page, 'Backing images');
    await page.getByText('There is no backing image. Create one from a URL or a file').waitFor();
    await findings(page, 'the page without backing images');
  });
  await step('an image is made from a URL, without a mouse', async () => {
    await page.evaluate(() => document.body.focus());
    await tab(page, 'Create backing image');
    await page.keyboard.press('Enter');
    await dialog(page).locator('#name').waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    must((await focused(page)) === 'Create backing image', `after Escape the focus is on ${await focused(page)}`);
    await page.keyboard.press('Enter');
    await dialog(page).locator('#name').waitFor();
    for (const text of ['golden', '', url, 'abc']) {
      await page.keyboard.type(text);
      await page.keyboard.press('Tab');
    }
    await dialog(page).getByText('A SHA-512 has 128 hexadecimal digits').waitFor();
    must(await button(page, 'Create').isDisabled(), 'a wrong checksum is taken');
    await findings(page, 'the dialog of a backing image');
    await picture(page, 'image-create');
    await page.keyboard.type('2');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type(sum);
    await page.keyboard.press('Enter');
    await dialog(page).waitFor({ state: 'detached' });
    await row(page, 'golden').getByText('Ready', { exact: true }).waitFor();
    const made = await ask('GET', 'backingimages/golden');
    must(made.minNumberOfCopies === 2 && made.expectedChecksum === sum && made.currentChecksum === sum, JSON.stringify(made));
    await row(page, 'golden').getByText('2 of 2').waitFor();
    await findings(page, 'the page of backing images');
    await picture(page, 'images');
  });
  await step('an image that the server does not have says why, and what to do', async () => {
    await button(page, 'Create backing image').click();
    await dialog(page).locator('#name').fill('absent');
    await dialog(page).locator('#url').fill(`${web}/absent.raw`);
    await confirm(page, 'Create');
    await row(page, 'absent').getByText('Failed', { exact: true }).waitFor();
    await row(page, 'absent').getByRole('link', { name: 'absent', exact: true }).click();
    await heading(page, 'absent');
    await page.getByRole('listitem').filter({ hasText: /404/ }).waitFor();
    await page.getByText('it begins anew by itself').waitFor();
    await findings(page, 'the page of an image that has failed');
    await picture(page, 'image-failed');
  });
  await step('filters are in the address', async () => {
    await go(page, 'backingimages?state=Failed&from=download');
    await page.getByText('1 of 2 shown').waitFor();
    await row(page, 'absent').waitFor();
    await page.getByLabel('Name, URL, checksum, tag').fill(sum.slice(0, 20));
    await page.getByText('No backing image fits the filters.').waitFor();
    must(page.url().includes(`q=${sum.slice(0, 20)}`), page.url());
    await images();
  });
  await step('it is deleted', async () => {
    await choose(page, 'Delete…', 'Actions of absent');
    await confirm(page, 'Delete');
    await row(page, 'absent').waitFor({ state: 'detached' });
  });
  const content = randomBytes(8 << 20);
  const file = { name: 'mine.raw', mimeType: 'application/octet-stream', buffer: content };
  await step('an upload that is cut says so', async () => {
    await page.route('**/v1/backingimages/mine?action=upload*', (r) => r.abort());
    await button(page, 'Create backing image').click();
    await dialog(page).locator('#name').fill('mine');
    await dialog(page).locator('#from').selectOption('upload');
    must(await button(page, 'Create').isDisabled(), 'an upload without a file is taken');
    await dialog(page).locator('#file').setInputFiles(file);
    await dialog(page).getByText('8 MiB are sent by this page').waitFor();
    await findings(page, 'the dialog of an upload');
    await confirm(page, 'Create');
    await page.getByText('Upload of mine has failed').waitFor();
    await page.getByText('The connection was cut').waitFor();
    await page.unroute('**/v1/backingimages/mine?action=upload*');
    await button(page, 'Close the failed upload of mine').click();
    await go(page, 'backingimages/mine');
    await page.getByText('send it by Upload…').waitFor();
  }, /ERR_FAILED/);
  await step('one that is stopped is gone', async () => {
    const fast = await slow(page, 200 << 10);
    await choose(page, 'Upload…');
    await dialog(page).locator('#file').setInputFiles(file);
    await confirm(page, 'Upload');
    await page.getByText(/MiB of 8 MiB sent/).waitFor();
    await findings(page, 'an upload');
    await picture(page, 'upload');
    await button(page, 'Stop it').click();
    await page.getByText(/of 8 MiB sent/).waitFor({ state: 'detached' });
    await fast();
  }, /ERR_ABORTED/);
  await step('an upload goes on while other pages are shown', async () => {
    // The server has to learn first that the one before has ended.
    await page.getByRole('heading', { level: 1 }).getByText('mine').waitFor();
    const fast = await slow(page, 2 << 20);
    for (let taken = false; !taken; await pause(500)) {
      await button(page, 'Actions').click();
      taken = await page.getByRole('menuitem', { name: 'Upload…' }).isVisible();
      await page.keyboard.press('Escape');
    }
    await choose(page, 'Upload…');
    await dialog(page).locator('#file').setInputFiles(file);
    await confirm(page, 'Upload');
    await page.getByText('Upload of mine from mine.raw').waitFor();
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await page.getByText('Upload of mine from mine.raw').waitFor();
    await page.getByText('Backing image mine has its file').waitFor();
    await fast();
    await images();
    await row(page, 'mine').getByText(/Ready|Degraded/).waitFor();
    must((await ask('GET', 'backingimages/mine')).size === content.length, 'the image has another size');
  });
  await step('an image is downloaded to this computer', async () => {
    const coming = page.waitForEvent('download');
    await page.getByRole('link', { name: 'Download mine' }).click();
    const got = await (await coming).path();
    const found = await digest(createReadStream(got).pipe(createGunzip()));
    must(found === createHash('sha512').update(content).digest('hex'), 'the download has another content');
  });
  await step('a volume is made from an image', async () => {
    await go(page, 'volumes');
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill('from-image');
    await dialog(page).locator('#size').fill('16Mi');
    await dialog(page).locator('#replicas').fill('1');
    await dialog(page).locator('#backingimage').selectOption('golden');
    must(await dialog(page).locator('#size').inputValue() === '64Mi', 'the size does not follow the image');
    await dialog(page).locator('#size').fill('32Mi');
    await dialog(page).getByText('golden needs 64 MiB at least.').waitFor();
    must(await button(page, 'Create').isDisabled(), 'a volume smaller than its image is taken');
    await findings(page, 'the dialog of a volume from an image');
    await dialog(page).locator('#size').fill('68Mi');
    await confirm(page, 'Create');
    await go(page, 'volumes/from-image');
    await heading(page, 'from-image');
    await page.getByText('no place').first().waitFor({ state: 'detached' });
    await choose(page, 'Attach…');
    await confirm(page, 'Attach');
    await state(page, 'healthy');
    await fact(page, /^Backing image$/).getByRole('link', { name: 'golden' }).click();
    await heading(page, 'golden');
    await page.getByRole('link', { name: 'from-image', exact: true }).waitFor();
    await page.getByText('as expected').waitFor();
    await findings(page, 'the page of an image');
    await picture(page, 'image');
  });
  await step('an image is made from a volume that is in use, and one from an image', async () => {
    const make = async (name, source, fields) => {
      await images();
      await button(page, 'Create backing image').click();
      await dialog(page).locator('#name').fill(name);
      await dialog(page).locator('#from').selectOption(source);
      must(await button(page, 'Create').isDisabled(), `an image from ${source} of nothing is taken`);
      for (const [id, value] of fields) await dialog(page).locator(id).selectOption(value);
      await findings(page, `the dialog of an image from ${source}`);
      await confirm(page, 'Create');
      await row(page, name).getByText(/Ready|Degraded/).waitFor();
    };
    await make('exported', 'export-from-volume', [['#volume', 'from-image'], ['#kind', 'qcow2']]);
    await make('copied', 'clone', [['#image', 'golden']]);
    const [exported, copied, golden] = await Promise.all(['exported', 'copied', 'golden'].map((name) => ask('GET', `backingimages/${name}`)));
    must(exported.virtualSize === 68 << 20 && exported.parameters['export-type'] === 'qcow2', JSON.stringify(exported));
    must(copied.currentChecksum === golden.currentChecksum, 'the copy of an image has another content');
    for (const name of ['exported', 'copied']) {
      await choose(page, 'Delete…', `Actions of ${name}`);
      await confirm(page, 'Delete');
      await row(page, name).waitFor({ state: 'detached' });
    }
  });
  await step('copies go where the tags are, and an image without a place says so', async () => {
    const { id, name, allowScheduling, instanceManagerCPURequest } = (await ask('GET', 'nodes')).data[1];
    const tag = (tags) => ask('PUT', `nodes/${id}`, { allowScheduling, instanceManagerCPURequest, tags });
    await tag(['templates']);
    const make = async (called, field, value) => {
      await images();
      await button(page, 'Create backing image').click();
      await dialog(page).locator('#name').fill(called);
      await dialog(page).locator('#url').fill(url);
      await dialog(page).locator('#copies').fill('1');
      await dialog(page).locator(field).fill(value);
      await confirm(page, 'Create');
      await go(page, `backingimages/${called}`);
      await heading(page, called);
    };
    await make('tagged', '#nodetags', 'templates');
    await fact(page, 'Node tags').getByText('templates').waitFor();
    await page.locator('table[aria-label="Copies"]').getByRole('link', { name, exact: true }).waitFor();
    await page.locator('table[aria-label="Copies"]').getByText('ready', { exact: true }).waitFor();
    must(Object.keys((await ask('GET', 'backingimages/tagged')).diskFileStatusMap).length === 1, 'more than one copy is made');
    await make('nowhere', '#disktags', 'absent');
    await fact(page, 'Disk tags').getByText('absent').waitFor();
    await page.getByText('no disk has been chosen yet').waitFor();
    for (const called of ['tagged', 'nowhere']) {
      await images();
      await choose(page, 'Delete…', `Actions of ${called}`);
      await confirm(page, 'Delete');
      await row(page, called).waitFor({ state: 'detached' });
    }
    await tag([]);
  });
  await step('a disk with an image says so', async () => {
    const all = (await ask('GET', 'nodes')).data.flatMap((n) => Object.values(n.disks).map((d) => ({ ...d, node: n.name })));
    const { node } = all.find((d) => d.scheduledBackingImage?.golden);
    await go(page, 'nodes');
    await page.locator(`table[aria-label="Disks of ${node}"] [data-label=Images] [title*="golden"]`).waitFor();
    await go(page, 'backingimages/golden');
    await heading(page, 'golden');
  });
  await step('fewer copies are wanted, and one that nobody uses is removed', async () => {
    const before = await files('golden');
    must(before >= 2, `${before} copies`);
    await choose(page, 'Change minimum copies…');
    await dialog(page).locator('#copies').fill('1');
    await confirm(page, 'Change');
    await fact(page, 'Copies at least').getByText('1', { exact: true }).waitFor();
    await choose(page, 'Clean up copies…');
    const boxes = dialog(page).getByRole('checkbox');
    await dialog(page).getByText('used by from-image').waitFor();
    must(await dialog(page).getByRole('checkbox', { disabled: true }).count() === 1, 'a copy in use can be chosen');
    await findings(page, 'the dialog of a clean-up');
    await picture(page, 'cleanup');
    must(await boxes.count() === before, `${await boxes.count()} copies are listed`);
    await dialog(page).getByRole('checkbox', { disabled: false }).first().check();
    await confirm(page, 'Remove copies');
    while (await files('golden') >= before) await pause(300);
  });
  await step('who may only read sees images, and no buttons that change', async () => {
    const other = await open();
    await other.goto(`${address}/#token=${encodeURIComponent(viewer)}`);
    await heading(other, 'Dashboard');
    for (const place of ['backingimages', 'backingimages/golden']) {
      await go(other, place);
      await other.getByRole('link', { name: 'Download golden' }).waitFor();
      await ready(other);
      const offered = await other.locator('main').getByRole('button', { name: /create|delete|upload|actions|clean/i }).count();
      must(offered === 0, `${place} offers ${offered} changes`);
    }
    await other.context().close();
  });
  await step('an image that a volume uses is not deleted, and says by whom', async () => {
    await choose(page, 'Delete…');
    await dialog(page).getByText('golden: from-image').waitFor();
    must(await button(page, 'Delete').isDisabled(), 'an image in use can be deleted');
    await findings(page, 'the dialog of an image in use');
    const refused = await fetch(`${address}/v1/backingimages/golden`, { method: 'DELETE', headers: { Authorization: `Bearer ${token}` } });
    must(!refused.ok, 'the server deletes an image in use');
  });
  await step('once the volume is gone it is', async () => {
    await ask('DELETE', 'volumes/from-image');
    await dialog(page).getByText('Every copy is removed from its disk').waitFor();
    await again(page, 'Delete'); // the replicas of the volume may be there for a moment longer
    await heading(page, 'Backing images');
    await row(page, 'golden').waitFor({ state: 'detached' });
  }, /status of 500/);
  await step('several are deleted at once', async () => {
    await page.getByLabel('Select mine').check();
    await choose(page, 'Delete…');
    must((await dialog(page).innerText()).includes('mine (8 MiB'), await dialog(page).innerText());
    await confirm(page, 'Delete');
    await page.getByText('There is no backing image.').waitFor();
  });
  world.allowed = undefined;
}

await run(main);
