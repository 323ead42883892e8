// What people do with volumes, nodes and backups. browser.mjs says what it needs; beside that
//
//   KILL     address that ends the process of a replica: ?volume=NAME&node=NODE
//   STORE    directory for backups
//   IMAGE    another engine image, deployed
import { address, again, ask, button, choose, confirm, dialog, findings, go, heading, logIn, must, picture, run, state, step, told, world } from './browser.mjs';

const { KILL: kill, STORE: store, IMAGE: image } = process.env;
const name = 'acts';
const row = (page, text) => page.getByRole('row', { name: text });
const fact = (page, title) => page.locator('dt', { hasText: new RegExp(`^${title}$`) }).locator('xpath=following-sibling::dd');
const facts = (page, title, text) => fact(page, title).getByText(text).first().waitFor();
const nodes = async () => (await ask('GET', `volumes/${name}`)).replicas.filter((r) => r.mode === 'RW').map((r) => r.hostId);

async function snapshot(page, called) {
  await button(page, 'Take snapshot').click();
  await dialog(page).getByRole('textbox').fill(called);
  await confirm(page, 'Take snapshot');
  await row(page, new RegExp(`^Select ${called} `)).waitFor();
}

async function backUp(page, called) {
  await row(page, new RegExp(`^Select ${called} `)).getByRole('button', { name: 'Back up' }).click();
  await confirm(page, 'Back up');
  await row(page, new RegExp(`^Select ${called} `)).getByText('Completed').waitFor();
}

async function change(page, what, value, write = false) {
  await choose(page, 'Change…');
  await dialog(page).getByLabel('What').selectOption(what);
  const field = dialog(page).getByLabel('Value', { exact: true });
  if (write) await field.fill(value);
  else await field.selectOption(value);
  await confirm(page, 'Change');
}

async function main() {
  const page = await logIn();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(address).origin });
  const volume = () => go(page, `volumes/${name}`);
  await step('the backup target', async () => {
    await go(page, 'backuptargets');
    await row(page, /^default/).getByRole('button', { name: 'Edit' }).click();
    await dialog(page).locator('#url').fill(`vfs://${store}`);
    await confirm(page, 'Save');
    await row(page, /^default/).getByText('available', { exact: true }).waitFor();
  });
  await step('create and attach', async () => {
    await go(page, 'volumes');
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill(name);
    await page.getByLabel('Size, such as 20Gi').fill('64Mi');
    await page.getByLabel('Replicas (empty: as the setting says)').fill('2');
    await dialog(page).getByLabel('Data locality').selectOption('disabled');
    await confirm(page, 'Create');
    await volume();
    await heading(page, name);
    await facts(page, 'Data locality', /^disabled$/);
    await page.getByText('no place').first().waitFor({ state: 'detached' });
    await choose(page, 'Attach…');
    await confirm(page, 'Attach');
    await state(page, 'healthy');
  });
  await step('two snapshots and their backups', async () => {
    for (const called of ['monday', 'tuesday']) {
      await snapshot(page, called);
      await backUp(page, called);
    }
  });
  await step('a snapshot is copied', async () => {
    await row(page, /^Select monday /).getByRole('button', { name: 'Copy' }).click();
    must((await dialog(page).locator('#source').inputValue()) === `snap://${name}/monday`, 'the copy is of something else');
    await dialog(page).locator('#name').fill('of-monday');
    await dialog(page).locator('#replicas').fill('1');
    await findings(page, 'the dialog of the copy of a snapshot');
    await confirm(page, 'Create');
    const made = await ask('GET', 'volumes/of-monday');
    must(made.dataSource === `snap://${name}/monday`, made.dataSource);
    await ask('DELETE', 'volumes/of-monday');
  });
  await step('backups of a volume, and their URL', async () => {
    await go(page, 'backups');
    await heading(page, 'Backups');
    await page.getByRole('link', { name, exact: true }).click();
    await heading(page, `Backups of ${name}`);
    await row(page, /monday/).getByRole('button', { name: 'Copy URL' }).click();
    await page.getByText('is in the clipboard').waitFor();
    const url = await page.evaluate(() => navigator.clipboard.readText());
    must(url.startsWith(`vfs://${store}?backup=`) && url.endsWith(`&volume=${name}`), `the clipboard has ${url}`);
    await findings(page, 'backups of a volume');
    await picture(page, 'backups-of');
  });
  await step('the backups of a volume are verified, and those of a target', async () => {
    await button(page, 'Verify…').click();
    await dialog(page).getByLabel('MiB per second at most').fill('100');
    await findings(page, 'the dialog of a verification');
    await confirm(page, 'Verify');
    await page.getByText('2 backups: all sound').waitFor();
    await row(page, /monday/).getByText('sound', { exact: true }).waitFor();
    await go(page, 'backuptargets');
    await row(page, /^default/).getByRole('button', { name: 'Verify' }).click();
    await confirm(page, 'Verify');
    await heading(page, 'Verification of backups');
    await row(page, new RegExp(`^Select .* ${name} default`)).getByText('2 backups: all sound').waitFor();
    await findings(page, 'the page of verifications');
    await picture(page, 'verification');
  });
  await step('what a verification has found is named with the backups that it hurts', async () => {
    const [of] = (await ask('GET', 'backupvolumes')).data;
    const hurt = { ...(await ask('GET', `backupverifications/${of.id}`)), faultCount: 3, error: '' };
    hurt.backups[0].faults = 3;
    hurt.faults = [{ kind: 'missing', object: 'volumes/ab/cd/acts/blocks/ef/01/ef01.blk', message: '', backups: [hurt.backups[0].name], backupCount: 1 }];
    await page.route('**/v1/backupverifications/*', (r) => r.fulfill({ json: hurt }));
    await go(page, `backups/${of.id}`);
    await page.reload();
    await page.getByText('3 objects damaged or missing; backups hurt: 1 of 2').waitFor();
    await row(page, /^missing ef01.blk/).getByText(hurt.backups[0].name).waitFor();
    await page.getByText('1 of 3 are listed').waitFor();
    await findings(page, 'a verification that has found something');
    await picture(page, 'verification-damaged');
    await page.unroute('**/v1/backupverifications/*');
    await page.reload();
    await page.getByText('2 backups: all sound').waitFor();
  });
  await step('two backups restored at once', async () => {
    await go(page, `backups-all?q=${name}`);
    await heading(page, 'All backups');
    await page.getByLabel('Select all').check();
    await choose(page, 'Restore…');
    const names = dialog(page).getByLabel(/^Name for/);
    must(await names.count() === 2, `${await names.count()} names are asked for`);
    await names.nth(0).fill('back-1');
    await names.nth(1).fill('Back_2');
    await findings(page, 'the dialog of a restore');
    await picture(page, 'restore');
    await dialog(page).getByRole('button', { name: 'Restore', exact: true }).click();
    await dialog(page).getByText(/Back_2:.*1 volume made before it/).waitFor();
    await names.nth(1).fill('back-2');
    await confirm(page, 'Restore');
    await go(page, 'volumes?q=back-');
    for (const made of ['back-1', 'back-2']) await row(page, made).getByText('detached').waitFor();
  }, /status of 500/);
  await step('a standby volume is made, and activated', async () => {
    await go(page, 'backups');
    await heading(page, 'Backups');
    await page.getByLabel('Select all').check();
    await choose(page, 'Create standby volume…');
    await confirm(page, 'Create');
    await go(page, `volumes/${name}-standby`);
    await heading(page, `${name}-standby`);
    const label = page.locator('.ak-bar').getByText('standby', { exact: true });
    await label.waitFor();
    await facts(page, 'Frontend', 'none (standby)');
    await choose(page, 'Activate…');
    await picture(page, 'activate');
    await confirm(page, 'Activate');
    await label.waitFor({ state: 'detached' });
    await state(page, 'detached');
    await facts(page, 'Frontend', 'blockdev');
  });
  await step('the latest restore point of a volume, restored though it may be damaged', async () => {
    await volume();
    await facts(page, 'Latest restore point', /ago/);
    await fact(page, 'Latest restore point').getByRole('button', { name: 'Restore…' }).click();
    await dialog(page).locator(`input[id^="name-"]`).fill('rescued');
    await dialog(page).getByLabel('Also if it is damaged').check();
    await confirm(page, 'Restore');
    await go(page, 'volumes/rescued');
    await heading(page, 'rescued');
    await state(page, 'detached');
  });
  await step('a volume of a damaged backup asks for a decision', async () => {
    const real = await ask('GET', 'volumes/rescued');
    const condition = (status, message) => ({ type: '', status, reason: 'RestoreFailure', message, lastProbeTime: '', lastTransitionTime: '' });
    let damage = { volume: 'rescued', fromBackup: real.fromBackup, restoring: true, problem: '2 blocks are damaged', accepted: false, damage: '', refused: '' };
    const decided = [];
    await page.route('**/v1/backupdamage/*', (r) => {
      if (r.request().method() === 'POST') {
        decided.push(r.request().postDataJSON().decision);
        damage = { ...damage, accepted: true, damage: '', refused: damage.restoring ? '' : 'it was acknowledged' };
      }
      return r.fulfill({ json: damage });
    });
    const modelled = (conditions, restoreRequired) => {
      world.modelled = { type: 'collection', resourceType: 'volume', data: [{ ...real, restoreRequired, conditions: { ...real.conditions, ...conditions } }] };
      return page.reload();
    };
    const decide = async (label) => {
      await button(page, `${label} the damage…`).click();
      must(await dialog(page).getByRole('button', { name: `${label} the damage` }).isDisabled(), 'the name of the volume is not asked for');
      await dialog(page).getByLabel("Type the volume's name").fill('rescued');
      await findings(page, 'the dialog of a damaged backup');
      await confirm(page, `${label} the damage`);
    };
    await modelled({ Restore: condition('False', '2 blocks are damaged') }, true);
    await page.getByText('The backup is damaged').first().waitFor();
    await picture(page, 'damage');
    await decide('Accept');
    await page.getByText('Damage of the backup is accepted').first().waitFor();
    damage = { ...damage, restoring: false, problem: '', accepted: false, damage: 'zero: [0, 2097152)', refused: '' };
    await modelled({ BackupDamage: condition('True', 'zero: [0, 2097152)') }, false);
    await page.getByText('The volume is not whole').first().waitFor();
    await page.getByText('zero: [0, 2097152)').first().waitFor();
    await decide('Acknowledge');
    await page.getByText('The volume is not whole').waitFor({ state: 'detached' });
    must(decided.join() === 'accept,acknowledge', decided.join());
    world.modelled = undefined;
    await page.unroute('**/v1/backupdamage/*');
    await ask('DELETE', 'volumes/rescued');
    await page.reload();
  });
  await step('a backup is deleted', async () => {
    await go(page, `backups-all?q=tuesday`);
    await row(page, /tuesday/).getByRole('button', { name: 'Delete' }).click();
    await confirm(page, 'Delete');
    await page.getByText('No backup fits the filters.').waitFor();
  });
  await step('the latest backup is restored, the target looked into, and all backups of a volume are deleted', async () => {
    const chosen = async (entry) => {
      await go(page, 'backups');
      await heading(page, 'Backups');
      await page.getByLabel('Select all').check();
      await choose(page, entry);
    };
    await chosen('Restore the latest backup…');
    await dialog(page).locator('input[id^="name-"]').fill('latest');
    await confirm(page, 'Restore');
    await go(page, 'volumes?q=latest');
    await row(page, 'latest').getByText('detached').waitFor();
    await chosen('Look now…');
    // Within 10 s of another look, as that after the deletion, the server refuses one.
    await again(page, 'Look');
    await page.getByText('The list follows what is found').waitFor();
    await chosen('Delete all backups…');
    must((await dialog(page).innerText()).includes(`${name} in default`), await dialog(page).innerText());
    await confirm(page, 'Delete all');
    await page.getByText('There is no backup yet.').waitFor();
  }, /status of 500/);
  await step('a replica is killed, and the page follows its rebuild', async () => {
    await volume();
    await state(page, 'healthy');
    const [node] = await nodes();
    must((await fetch(`${kill}?volume=${name}&node=${node}`)).ok, 'the replica is not killed');
    // The rebuild may be over before the page has heard of it; its events stay.
    await page.getByText(`volume ${name} is degraded`).first().waitFor();
    await row(page, /has been rebuilt/).first().waitFor();
    await state(page, 'healthy');
  });
  await step('more replicas, another size, other fields', async () => {
    await choose(page, 'Expand…');
    await dialog(page).locator('#size').fill('96Mi');
    await confirm(page, 'Expand');
    await facts(page, 'Size', '96 MiB');
    await change(page, 'updateReplicaAutoBalance', 'best-effort');
    await facts(page, 'Auto balance', 'best-effort');
    await change(page, 'updateSnapshotMaxCount', '17', true);
    await facts(page, 'Snapshots at most', '17');
    await change(page, 'updateUnmapMarkSnapChainRemoved', 'disabled');
    await facts(page, 'Trim removes snapshots below', 'disabled');
  });
  await step('a volume away from its replicas says so until one is there', async () => {
    const here = (await ask('GET', `volumes/${name}`)).controllers[0].hostId;
    const all = (await ask('GET', 'nodes')).data.map((n) => n.name);
    const away = all.find((n) => n !== here) ?? here;
    const [free] = all.filter((n) => n !== here && n !== away);
    told(`  from ${here} to ${away}, ${free} is the third`);
    const scheduling = async (node, on) => {
      await go(page, 'nodes');
      await choose(page, 'Edit node…', `Actions of ${node}`);
      await dialog(page).getByLabel('New replicas may be placed here').setChecked(on);
      if (!on) await dialog(page).getByLabel(/^Evict/).check();
      else await dialog(page).getByLabel(/^Evict/).uncheck();
      await confirm(page, 'Save');
      await volume();
    };
    await scheduling(away, false);
    while ((await nodes()).includes(away) || (await nodes()).length < 2) await page.waitForTimeout(500);
    await choose(page, 'Detach…');
    await confirm(page, 'Detach');
    await state(page, 'detached');
    await choose(page, 'Attach…');
    await dialog(page).getByLabel('Node').selectOption(away);
    await confirm(page, 'Attach');
    await state(page, 'healthy');
    await choose(page, 'Change data locality…');
    await dialog(page).getByLabel('Data locality').selectOption('best-effort');
    await confirm(page, 'Change');
    await facts(page, 'Data locality', /^best-effort$/);
    await page.getByText(`no replica on ${away}`).waitFor();
    await page.getByText('not all replicas are scheduled').waitFor();
    await picture(page, 'locality');
    await scheduling(away, true);
    await page.getByText(`no replica on ${away}`).waitFor({ state: 'detached' });
  });
  await step('the engine is upgraded while it is in use', async () => {
    await choose(page, 'Upgrade engine…');
    await dialog(page).getByLabel('Engine image').selectOption(image);
    await confirm(page, 'Upgrade');
    await facts(page, 'Engine image', new RegExp(`^${image}$`));
    await state(page, 'healthy');
  });
  await step('a PersistentVolume and its claim', async () => {
    await choose(page, 'Create PersistentVolume…');
    await findings(page, 'the dialog of a PersistentVolume');
    await confirm(page, 'Create');
    await facts(page, 'Claim', `default/${name}`);
    await button(page, 'Actions').click();
    must(await page.getByRole('menuitem', { name: 'Create PersistentVolume…' }).count() === 0, 'another PersistentVolume is offered');
    await page.keyboard.press('Escape');
  });
  await step('a deletion names what is lost with the volume', async () => {
    await choose(page, 'Delete…');
    const said = await dialog(page).innerText();
    for (const part of [`claim default/${name}`, `PersistentVolume ${name}`, 'attached to node-', '96 MiB']) must(said.includes(part), `${part} is not in: ${said}`);
    await button(page, 'Cancel').click();
  });
  await step('the page of an image upgrades several, and has the upgrades of the last hour', async () => {
    const old = (await ask('GET', 'engineimages')).data.find((i) => i.default);
    await go(page, `engineimages/${old.name}`);
    await heading(page, old.image);
    await row(page, new RegExp(`\\b${name}\\b.*uses another`)).getByRole('checkbox').check();
    await button(page, 'Upgrade to this image…').click();
    must((await dialog(page).getByLabel('Engine image').inputValue()) === old.image, 'another image is offered first');
    await confirm(page, 'Upgrade');
    await row(page, new RegExp(`^Select ${name} .*uses it`)).waitFor();
    await page.getByRole('heading', { name: /^Upgrades/ }).waitFor();
    await row(page, new RegExp(`\\b${name}\\b.*upgrad`, 'i')).first().waitFor();
  });
  await step('processes of an instance manager of an older version', async () => {
    const all = await ask('GET', 'instancemanagers');
    const old = { ...all.data[0], id: 'old', name: 'old', managerType: 'engine', instanceEngines: null, instanceReplicas: null,
      instances: { 'v-e-0': { spec: { name: 'v-e-0' }, status: { type: 'engine', state: 'running' } } } };
    await page.route('**/v1/instancemanagers', (r) => r.fulfill({ json: { ...all, data: [...all.data, old] } }));
    await go(page, 'instancemanagers');
    const engines = row(page, /^old/).locator('[data-label=Engines]');
    must(await engines.innerText() === '1' && await engines.locator('span').getAttribute('title') === 'v-e-0', `${await engines.innerText()} engines`);
    await page.unroute('**/v1/instancemanagers');
  });
  await step('a recurring job', async () => {
    await go(page, 'recurringjobs');
    await button(page, 'Create recurring job').click();
    await dialog(page).locator('#name').fill('nightly');
    await confirm(page, 'Create');
    await row(page, /^nightly/).waitFor();
    await volume();
    await button(page, 'Follow a job').click();
    await dialog(page).getByLabel('Job or group').selectOption('job nightly');
    await confirm(page, 'Follow');
    await row(page, /^nightly/).getByText('snapshot, 0 0 * * *').waitFor();
    await row(page, /^nightly/).getByRole('button', { name: 'Leave' }).click();
    await confirm(page, 'Leave');
    await row(page, /^nightly/).waitFor({ state: 'detached' });
  });
  await step('the cluster is left empty, for the scripts that follow', async () => {
    await go(page, 'dashboard');
    await heading(page, 'Dashboard');
    await ask('DELETE', 'recurringjobs/nightly');
    for (const v of (await ask('GET', 'volumes')).data) await ask('DELETE', `volumes/${v.id}`);
    while ((await ask('GET', 'volumes')).data.length > 0) await page.waitForTimeout(300);
  });
}

await run(main);
