// Backups of backing images in the web UI: ordered, listed, restored, deleted. browser.mjs says what it needs; beside that
//
//   STORE    directory for backups
import { randomBytes } from 'node:crypto';
import { address, again, ask, button, choose, confirm, dialog, findings, go, heading, logIn, must, open, picture, ready, run, step, token, viewer } from './browser.mjs';

const { STORE: store } = process.env;
const names = ['base', 'tools'];
const row = (page, name) => page.getByRole('row').filter({ has: page.locator('[data-label="Backing image"]').getByText(name, { exact: true }) });
const image = (name) => ask('GET', `backingimages/${name}`);
const copies = async (name) => Object.values((await image(name)).diskFileStatusMap).filter((f) => f.state === 'ready').length;
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function target(url) {
  await ask('POST', 'backuptargets/default?action=backupTargetUpdate', { name: 'default', backupTargetURL: url, credentialSecret: '', pollInterval: '300' });
}

// upload makes an image of random bytes.
async function upload(name) {
  await ask('POST', 'backingimages', { name, sourceType: 'upload', parameters: {}, minNumberOfCopies: 1 });
  const body = new FormData(), size = 4 << 20;
  body.append('chunk', new Blob([randomBytes(size)]), name);
  const send = () => fetch(`${address}/v1/backingimages/${name}?action=upload&size=${size}`, { method: 'POST', headers: { Authorization: `Bearer ${token}` }, body });
  while (!(await send()).ok) await pause(300);
  while (await copies(name) === 0) await pause(300);
}

async function main() {
  const page = await logIn();
  const backups = async (filter = '') => {
    await go(page, `backups-images${filter}`);
    await heading(page, 'Backups of backing images');
  };
  const sums = {};
  await step('two images', async () => {
    for (const name of names) {
      await upload(name);
      sums[name] = (await image(name)).currentChecksum;
    }
  });
  await step('without a target the dialog says where to set one', async () => {
    await target('');
    await go(page, 'backingimages/base');
    await heading(page, 'base');
    await choose(page, 'Back up…');
    await dialog(page).getByText('No backup target has a URL.').waitFor();
    must(await button(page, 'Back up').isDisabled(), 'a backup to no target is taken');
    await findings(page, 'the dialog without a target');
    await button(page, 'Cancel').click();
  });
  await step('an empty list says what to do', async () => {
    await target(`vfs://${store}`);
    await backups();
    await page.getByText('There is no backup of a backing image.').waitFor();
    await findings(page, 'the page without backups of images');
  });
  await step('an image is backed up', async () => {
    await go(page, 'backingimages/base');
    await heading(page, 'base');
    await choose(page, 'Back up…');
    await dialog(page).getByText(`vfs://${store}`).waitFor({ state: 'attached' });
    await findings(page, 'the dialog of a backup of an image');
    await confirm(page, 'Back up');
    await backups();
    await row(page, 'base').getByText('Completed').waitFor();
  });
  await step('of several, those are backed up that the target does not have', async () => {
    await go(page, 'backingimages');
    for (const name of names) await page.getByLabel(`Select ${name}`, { exact: true }).check();
    await choose(page, 'Back up…');
    await dialog(page).getByText('default has a backup of base already').waitFor();
    await confirm(page, 'Back up');
    await backups();
    await row(page, 'tools').getByText('Completed').waitFor();
    must((await ask('GET', 'backupbackingimages')).data.length === 2, 'there are not two backups');
    await findings(page, 'the page of backups of images');
    await picture(page, 'image-backups');
  });
  await step('filters are in the address', async () => {
    await backups('?q=tools&target=default');
    await page.getByText('1 shown').waitFor();
    await row(page, 'base').waitFor({ state: 'detached' });
    await backups();
  });
  await step('an image that is there is not restored', async () => {
    must(await row(page, 'base').getByRole('button', { name: 'Restore' }).count() === 0, 'an image that is there can be restored');
    await row(page, 'base').getByRole('checkbox').check();
    await button(page, 'Actions').click();
    const entry = page.getByRole('menuitem', { name: /Restore…/ });
    must(await entry.getAttribute('aria-disabled') === 'true' && (await entry.innerText()).includes('backing image base is there'), await entry.innerText());
    await page.keyboard.press('Escape');
    await row(page, 'base').getByRole('checkbox').uncheck();
  });
  await step('who may only read sees the list, and no buttons that change', async () => {
    const other = await open();
    await other.goto(`${address}/#token=${encodeURIComponent(viewer)}`);
    await heading(other, 'Dashboard');
    await go(other, 'backups-images');
    await row(other, 'base').waitFor();
    await ready(other);
    const offered = await other.locator('main').getByRole('button', { name: /restore|delete|actions/i }).count();
    must(offered === 0, `${offered} changes are offered`);
    await other.context().close();
  });
  await step('a lost image is restored with its content', async () => {
    await ask('DELETE', 'backingimages/base');
    await row(page, 'base').getByRole('button', { name: 'Restore' }).click();
    await dialog(page).getByText('base from default').waitFor();
    await findings(page, 'the dialog of a restore of an image');
    await again(page, 'Restore'); // the image may be there for a moment longer
    await row(page, 'base').getByRole('link', { name: 'base', exact: true }).click();
    await heading(page, 'base');
    await page.getByText(/^(Ready|Degraded)$/).first().waitFor();
    const made = await image('base');
    must(made.currentChecksum === sums.base && made.sourceType === 'restore', JSON.stringify(made));
  }, /status of (4|5)\d\d/);
  await step('backups are deleted, and images stay', async () => {
    await backups();
    await page.getByLabel('Select all').check();
    await choose(page, 'Delete…');
    await dialog(page).getByText('images that are there stay').waitFor();
    await findings(page, 'the dialog of a deletion');
    await confirm(page, 'Delete');
    await page.getByText('There is no backup of a backing image.').waitFor();
    for (const name of names) must(await copies(name) > 0, `${name} is gone`);
  });
  await step('the cluster is left empty, for the scripts that follow', async () => {
    for (const name of names) await ask('DELETE', `backingimages/${name}`);
    while ((await ask('GET', 'backingimages')).data.length > 0) await pause(300);
    await target('');
  });
}

await run(main);
