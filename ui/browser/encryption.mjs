// Encrypted volumes and backing images in the web UI. browser.mjs says what it needs; beside that
//
//   STORE    directory for backups
//   SECRET   a Secret of namespace longhorn-system with a key, which managers may read
//   KEYOF    address that tells in which Secret Kubernetes finds the key of a PersistentVolume: ?volume=NAME
import { randomBytes } from 'node:crypto';
import { address, again, ask, button, choose, confirm, dialog, findings, go, heading, logIn, must, picture, run, state, step, token } from './browser.mjs';

const { STORE: store, SECRET: secret, KEYOF: keyOf } = process.env;
const names = ['plain', 'sealed'];
const row = (page, name) => page.getByRole('row', { name: new RegExp(`^(Select )?${name}\\b`) });
const fact = (page, title) => page.locator('dt', { hasText: new RegExp(`^${title}$`) }).locator('xpath=following-sibling::dd');
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
}

async function main() {
  const page = await logIn();
  const create = async (name, encrypted) => {
    await go(page, 'volumes');
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill(name);
    await dialog(page).locator('#size').fill('32Mi');
    await dialog(page).locator('#replicas').fill('1');
    await button(page, 'Further fields').click();
    await dialog(page).locator('#encrypted').setChecked(encrypted);
  };
  await step('a volume is encrypted where that is wanted', async () => {
    await create('plain', false);
    await confirm(page, 'Create');
    await create('sealed', true);
    await findings(page, 'the dialog of an encrypted volume');
    await confirm(page, 'Create');
    for (const [name, said] of [['plain', 'no'], ['sealed', 'yes']]) {
      await go(page, `volumes/${name}`);
      await heading(page, name);
      await fact(page, 'Encrypted').getByText(said, { exact: true }).waitFor();
      must((await ask('GET', `volumes/${name}`)).encrypted === (said === 'yes'), `volume ${name} is not what its page says`);
      await state(page, 'detached');
    }
  });
  await step('encrypted volumes are found', async () => {
    await go(page, 'volumes?also=Encrypted');
    await page.getByText('1 of 2 shown').waitFor();
    await row(page, 'sealed').waitFor();
  });
  await step('its PersistentVolume names the Secret with the key', async () => {
    await go(page, 'volumes/plain');
    await heading(page, 'plain');
    await choose(page, 'Create PersistentVolume…');
    await dialog(page).locator('#class').waitFor();
    must(await dialog(page).locator('#secret').count() === 0, 'a Secret is asked for without encryption');
    await button(page, 'Cancel').click();
    await go(page, 'volumes/sealed');
    await heading(page, 'sealed');
    await choose(page, 'Create PersistentVolume…');
    await dialog(page).locator('#secret').fill('sealed-key');
    await dialog(page).locator('#secretnamespace').fill('vault');
    await findings(page, 'the dialog of the PersistentVolume of an encrypted volume');
    await picture(page, 'encrypted-claim');
    await confirm(page, 'Create');
    await fact(page, 'Claim').getByText('default/sealed').waitFor();
    const found = await (await fetch(`${keyOf}?volume=sealed`)).text();
    must(found === 'vault/sealed-key', `the key is looked for in ${found}`);
  });
  await step('several volumes are backed up, with labels', async () => {
    await target(`vfs://${store}`);
    await go(page, 'volumes');
    for (const name of names) {
      await ask('POST', `volumes/${name}?action=attach`, { hostId: 'node-1', disableFrontend: false, attachmentID: '' });
      await row(page, name).getByText('healthy').waitFor();
      await page.getByLabel(`Select ${name}`, { exact: true }).check();
    }
    await choose(page, 'Back up…');
    await dialog(page).getByText('sent to backup target default').waitFor();
    await dialog(page).locator('#labels').fill('tier=gold');
    await findings(page, 'the dialog of a backup');
    await again(page, 'Back up'); // the target may not be known to be there yet
    await go(page, 'backups-all?q=sealed');
    await page.getByRole('row').filter({ hasText: 'sealed' }).filter({ hasText: 'tier=gold' }).getByText('Completed').waitFor();
    await go(page, 'backups-all?q=plain');
    await page.getByRole('row').filter({ hasText: 'tier=gold' }).getByText('Completed').waitFor();
  }, /status of (4|5)\d\d/);
  await step('the backup of an encrypted volume is restored as one', async () => {
    await go(page, 'volumes/sealed');
    await heading(page, 'sealed');
    await fact(page, 'Last backup').getByRole('link').click();
    await heading(page, 'All backups');
    await page.getByRole('row').filter({ hasText: 'tier=gold' }).getByRole('button', { name: 'Restore' }).click();
    await dialog(page).locator('input[id^="name-"]').fill('back');
    await dialog(page).locator('#encrypted').check();
    await confirm(page, 'Restore');
    await go(page, 'volumes/back');
    await heading(page, 'back');
    await fact(page, 'Encrypted').getByText('yes', { exact: true }).waitFor();
    await state(page, 'detached');
  });
  const clone = async (name, how, of, offered) => {
    await go(page, 'backingimages');
    await button(page, 'Create backing image').click();
    await dialog(page).locator('#name').fill(name);
    await dialog(page).locator('#from').selectOption('clone');
    await dialog(page).locator('#encryption').selectOption(how);
    const options = await dialog(page).locator('#image option:not([value=""])').allInnerTexts();
    must(options.join() === offered, `to ${how} are offered: ${options}`);
    await dialog(page).locator('#image').selectOption(of);
    must(await button(page, 'Create').isDisabled(), `an image is made to ${how} without a Secret`);
    await dialog(page).locator('#secret').fill(secret);
    await findings(page, `the dialog to ${how} an image`);
    await picture(page, `image-${how}`);
    await again(page, 'Create'); // the right to the Secret may be new
    await row(page, name).getByText(/Ready|Degraded/).waitFor();
    return ask('GET', `backingimages/${name}`);
  };
  let base;
  await step('an image is encrypted, and its page says with what', async () => {
    await upload('base');
    await go(page, 'backingimages');
    await row(page, 'base').getByText(/Ready|Degraded/).waitFor();
    base = await ask('GET', 'backingimages/base');
    const made = await clone('locked', 'encrypt', 'base', 'base');
    must(made.secret === secret && made.secretNamespace === 'longhorn-system' && made.currentChecksum !== base.currentChecksum, JSON.stringify(made));
    await go(page, 'backingimages/locked');
    await heading(page, 'locked');
    await fact(page, 'Encrypted with the key in Secret').getByText(`longhorn-system/${secret}`).waitFor();
  }, /status of (4|5)\d\d/);
  await step('an encrypted volume stands on an encrypted image, and on no other', async () => {
    await create('upon', true);
    must((await dialog(page).locator('#backingimage').innerText()).includes('locked, encrypted'), 'the list does not say which image is encrypted');
    await dialog(page).locator('#backingimage').selectOption('base');
    await dialog(page).getByRole('button', { name: 'Create', exact: true }).click();
    await dialog(page).getByText('Refused').waitFor();
    must(/encrypted.*base|base.*encrypted/.test(await dialog(page).innerText()), await dialog(page).innerText());
    await dialog(page).locator('#backingimage').selectOption('locked');
    await confirm(page, 'Create');
    const made = await ask('GET', 'volumes/upon');
    must(made.encrypted && made.backingImage === 'locked', JSON.stringify(made).slice(0, 500));
    await ask('DELETE', 'volumes/upon');
  }, /status of (4|5)\d\d/);
  await step('it is decrypted, and has the content of before', async () => {
    const made = await clone('opened', 'decrypt', 'locked', 'locked');
    must(!made.secret && made.currentChecksum === base.currentChecksum, JSON.stringify(made));
  }, /status of (4|5)\d\d/);
  await step('the cluster is left empty, for the scripts that follow', async () => {
    await go(page, 'dashboard');
    await heading(page, 'Dashboard');
    for (const v of (await ask('GET', 'volumes')).data) await ask('DELETE', `volumes/${v.id}`);
    while ((await ask('GET', 'volumes')).data.length > 0) await pause(300);
    for (const b of (await ask('GET', 'backupvolumes')).data) await ask('DELETE', `backupvolumes/${b.id}`);
    while ((await ask('GET', 'backupvolumes')).data.length > 0) await pause(300);
    for (const name of ['base', 'locked', 'opened']) {
      while (!await ask('DELETE', `backingimages/${name}`).then(() => true, () => false)) await pause(300);
    }
    while ((await ask('GET', 'backingimages')).data.length > 0) await pause(300);
    await target('');
  });
}

await run(main);
