// What is done more seldom: many volumes at once, a faulted one, disks, targets, images, orphans. browser.mjs says what it needs; beside that
//
//   STRAY    address that leaves a directory of no replica beside one: ?volume=NAME&node=NODE
//   STORE    directory for backups
//   GONE     address that ends a node and removes it from Kubernetes: ?node=NODE
import { again, ask, button, choose, confirm, dialog, findings, go, heading, logIn, must, run, state, step, told, world } from './browser.mjs';

const { STRAY: stray, STORE: store, GONE: gone } = process.env;
const names = ['many-1', 'many-2'];
const row = (page, name) => page.getByRole('row', { name: new RegExp(`^(Select )?${name}\\b`) });

async function main() {
  const page = await logIn();
  const pick = async () => {
    await go(page, 'volumes?q=many-');
    await heading(page, 'Volumes');
    for (const name of names) await page.getByLabel(`Select ${name}`, { exact: true }).check();
  };
  await step('several volumes are attached, given more replicas, and a snapshot', async () => {
    for (const name of names) await ask('POST', 'volumes', { name, size: '16Mi', numberOfReplicas: 1 });
    await pick();
    for (const name of names) await row(page, name).getByText('detached').waitFor();
    await choose(page, 'Attach…');
    await confirm(page, 'Attach');
    for (const name of names) await row(page, name).getByText('healthy').waitFor();
    await choose(page, 'Change replica count…');
    await dialog(page).locator('#count').fill('2');
    await confirm(page, 'Change');
    for (const name of names) await row(page, name).getByText('2 of 2').waitFor();
    await choose(page, 'Take snapshot…');
    await confirm(page, 'Take snapshot');
    for (const name of names) {
      const taken = async () => (await ask('POST', `volumes/${name}?action=snapshotList`, {})).data.some((s) => s.usercreated);
      while (!await taken()) await page.waitForTimeout(300);
    }
  });
  await step('a refused trim says why', async () => {
    await choose(page, 'Trim file system…');
    await dialog(page).getByRole('button', { name: 'Trim', exact: true }).click();
    await dialog(page).getByText('Refused').waitFor();
    await dialog(page).getByText(/^many-1: |many-1: /).first().waitFor();
    await button(page, 'Cancel').click();
  }, /status of (4|5)\d\d/);
  await step('a trim that is left goes on, and tells that it has succeeded, once for all volumes', async () => {
    const trimmed = [];
    let over;
    const ended = new Promise((done) => { over = done; });
    await page.route('**/v1/volumes/*?action=trimFilesystem', async (r) => {
      await ended;
      trimmed.push(new URL(r.request().url()).pathname.split('/').pop());
      return r.fulfill({ json: {} });
    });
    await choose(page, 'Trim file system…');
    await dialog(page).getByRole('button', { name: 'Trim', exact: true }).click();
    await button(page, 'Leave it running').click();
    await dialog(page).waitFor({ state: 'detached' });
    over();
    await page.getByText('The file system gave back what it does not use').waitFor();
    must(trimmed.sort().join() === names.join(), `trimmed: ${trimmed}`);
    await page.unroute('**/v1/volumes/*?action=trimFilesystem');
  });
  await step('a removed snapshot stays in sight until its space is back, with progress', async () => {
    const real = await ask('GET', 'volumes/many-1');
    const snapshot = (name, more) => ({ id: name, name, parent: '', children: {}, removed: false, usercreated: true, created: '2026-01-02T03:04:05Z', size: '4096', labels: {}, ...more });
    let data = [snapshot('older', { removed: true }), snapshot('volume-head', { parent: 'older', usercreated: false })];
    await page.route('**/v1/volumes/many-1?action=snapshotList', (r) => r.fulfill({ json: { data } }));
    world.modelled = { type: 'collection', resourceType: 'volume', data: [{ ...real, purgeStatus: [{ error: '', isPurging: true, progress: 40, replica: 'many-1-r', state: 'in_progress' }] }] };
    await go(page, 'volumes/many-1');
    await page.reload();
    await row(page, 'older').getByText('being removed').waitFor();
    await page.getByRole('progressbar', { name: /Space of removed snapshots comes back/ }).waitFor();
    must(await page.getByRole('progressbar', { name: /Space of removed snapshots comes back/ }).getAttribute('aria-valuenow') === '40', 'the progress is another one');
    await findings(page, 'a purge');
    data = [snapshot('volume-head', { usercreated: false })];
    world.modelled = undefined;
    await page.reload();
    await page.getByText('Volume head (now)').waitFor();
    must(await row(page, 'older').count() === 0, 'a snapshot that is gone is in sight');
    await page.unroute('**/v1/volumes/many-1?action=snapshotList');
  });
  await step('an expansion that has failed is cancelled, and a faulted volume salvaged', async () => {
    const real = await ask('GET', 'volumes/many-1');
    const asked = [];
    await page.route('**/v1/volumes/many-1?action=*', (r) => {
      asked.push(`${new URL(r.request().url()).searchParams.get('action')} ${r.request().postData()}`);
      return r.fulfill({ json: r.request().url().includes('snapshot') ? { data: [] } : real });
    });
    const modelled = (more) => {
      world.modelled = { type: 'collection', resourceType: 'volume', data: [{ ...real, ...more }] };
      return page.reload();
    };
    await go(page, 'volumes/many-1');
    await modelled({ actions: { ...real.actions, cancelExpansion: 'x' }, controllers: [{ ...real.controllers[0], lastExpansionError: 'no room on a disk', lastExpansionFailedAt: '' }],
      waitsFor: ['expansion failed: no room on a disk'] });
    await page.getByText('no room on a disk').first().waitFor();
    await choose(page, 'Cancel expansion…');
    await confirm(page, 'Cancel it');
    must(asked.includes('cancelExpansion {}'), asked.join());
    const replicas = ['one', 'two'].map((name) => ({ ...real.replicas[0], name, mode: '', running: false, failedAt: '2026-01-02T03:04:05Z' }));
    await modelled({ state: 'detached', robustness: 'faulted', actions: { salvage: 'x' }, replicas });
    await state(page, 'faulted');
    await choose(page, 'Salvage…');
    await findings(page, 'the dialog of a salvage');
    await dialog(page).getByLabel(/^two on/).uncheck();
    await confirm(page, 'Salvage');
    must(asked.includes('salvage {"names":["one"]}'), asked.join());
    world.modelled = undefined;
    await page.unroute('**/v1/volumes/many-1?action=*');
    await page.reload();
    await state(page, 'healthy');
  });
  await step('a node without what encrypted volumes need says so, and a disk that fails', async () => {
    const nodes = await ask('GET', 'nodes');
    const [first, ...rest] = nodes.data;
    const [[name, disk]] = Object.entries(first.disks);
    const why = 'KernelModulesLoaded: kernel module dm_crypt is not loaded';
    const device = { sda: { healthStatus: 'FAILED', attributes: [{ name: 'Reallocated_Sector_Ct', rawValue: 7 }] } };
    world.streams.nodes = { ...nodes, data: [{ ...first, waitsFor: [why], disks: { ...first.disks, [name]: { ...disk, healthData: device } } }, ...rest] };
    await go(page, 'dashboard');
    await page.reload();
    await page.getByRole('row', { name: new RegExp(`^${first.name} Schedulable`) }).getByText(why).waitFor();
    await findings(page, 'a dashboard with a node that lacks something');
    await go(page, `nodes/${first.name}`);
    await page.getByRole('listitem').filter({ hasText: why }).waitFor();
    await page.getByText(`ankole node describe ${first.name}`).waitFor();
    await go(page, 'nodes');
    await page.locator(`table[aria-label="Disks of ${first.name}"] [title*="Reallocated_Sector_Ct: 7"]`).getByText('FAILED').waitFor();
    world.streams = {};
    await page.reload();
  });
  await step('a setting that is saved and waits to be applied says so', async () => {
    const settings = await ask('GET', 'settings');
    const waits = 'storage-network';
    const { definition } = settings.data.find((s) => s.name === waits);
    world.streams.settings = { ...settings, data: settings.data.map((s) => (s.name === waits ? { ...s, value: 'kube-system/net', applied: false } : s)) };
    await go(page, `settings?q=${waits}`);
    await page.reload();
    await page.getByText('Saved, and not applied yet').waitFor();
    await page.locator('.pf-v6-c-alert').filter({ hasText: 'Saved, and not applied yet' }).getByText(definition.displayName).waitFor();
    await page.getByText('It is saved and waits to be applied.').waitFor();
    await findings(page, 'a setting that waits');
    world.streams = {};
    await page.reload();
    await page.getByText('Saved, and not applied yet').waitFor({ state: 'detached' });
  });
  await step('a disk is added, edited and removed; a node that is there is not', async () => {
    await go(page, 'nodes');
    await choose(page, 'Add disk…', 'Actions of node-1');
    await dialog(page).locator('#disk').fill('more');
    await dialog(page).locator('#path').fill('/mnt/more');
    await findings(page, 'the dialog of a disk');
    await confirm(page, 'Add');
    const disk = page.getByRole('row', { name: /^more / });
    await disk.getByText('/mnt/more').waitFor();
    await button(page, 'Edit disk more').click();
    await dialog(page).getByLabel('New replicas may be placed here').uncheck();
    await dialog(page).locator('#reserved').fill('1');
    await dialog(page).locator('#tags').fill('slow');
    await confirm(page, 'Save');
    await disk.getByText('1 GiB').waitFor();
    await disk.getByText('slow').waitFor();
    await button(page, 'Remove disk more').click();
    await again(page, 'Remove');
    await disk.waitFor({ state: 'detached' });
    await button(page, 'Actions of node-1').click();
    must(await page.getByRole('menuitem', { name: /Remove node…/ }).getAttribute('aria-disabled') === 'true', 'a node that is there can be removed');
    await page.keyboard.press('Escape');
  }, /status of 500/);
  await step('a backup target is made, looked into and deleted', async () => {
    await go(page, 'backuptargets');
    await button(page, 'Create backup target').click();
    await dialog(page).locator('#name').fill('second');
    await dialog(page).locator('#url').fill(`vfs://${store}`);
    await findings(page, 'the dialog of a backup target');
    await confirm(page, 'Create');
    await row(page, 'second').getByText('available', { exact: true }).waitFor();
    await row(page, 'second').getByRole('button', { name: 'Look now' }).click();
    await again(page, 'Look');
    await page.getByText('The list of backups follows what is found').waitFor();
    await row(page, 'second').getByRole('button', { name: 'Delete' }).click();
    await confirm(page, 'Delete');
    await row(page, 'second').waitFor({ state: 'detached' });
  }, /status of 500/);
  await step('an engine image of a strange registry is refused, one of ours added and deleted', async () => {
    await go(page, 'engineimages');
    await button(page, 'Add image').click();
    await dialog(page).locator('#image').fill('example.org/none:1');
    await findings(page, 'the dialog of an engine image');
    await dialog(page).getByRole('button', { name: 'Add', exact: true }).click();
    await dialog(page).getByText(/allowedImageRegistries/).waitFor();
    await dialog(page).locator('#image').fill('ankole/none:1');
    await confirm(page, 'Add');
    const image = page.getByRole('row', { name: /ankole\/none:1/ });
    await image.getByRole('button', { name: 'Delete' }).click();
    await again(page, 'Delete');
    await image.waitFor({ state: 'detached' });
  }, /status of 500/);
  await step('several volumes are detached', async () => {
    await pick();
    await choose(page, 'Detach…');
    await confirm(page, 'Detach');
    for (const name of names) await row(page, name).getByText('detached').waitFor();
  });
  await step('an orphan is deleted with its directory', async () => {
    const [{ hostId: node }] = (await ask('GET', 'volumes/many-2')).replicas;
    const answer = await fetch(`${stray}?volume=many-2&node=${node}`);
    const name = await answer.text();
    must(answer.ok, `no directory is left: ${name}`);
    told(`  ${name} on ${node}`);
    await go(page, `orphans?q=${name}`);
    await heading(page, 'Orphans');
    await page.getByText(name).first().waitFor();
    await page.getByLabel('Select all').check();
    await button(page, 'Delete…').click();
    await findings(page, 'the dialog of orphans');
    await confirm(page, 'Delete');
    await page.getByText('There are no orphans').waitFor();
    const left = async () => !(await fetch(`${stray}?gone&volume=many-2&node=${node}`)).ok;
    while (await left()) await page.waitForTimeout(300);
  });
  await step('several volumes are deleted', async () => {
    await pick();
    await choose(page, 'Delete…');
    await confirm(page, 'Delete');
    await page.getByText(/No volume fits|There is no volume/).waitFor();
  });
  await step('a node that is gone from Kubernetes is removed once it takes no replicas', async () => {
    const node = 'node-3';
    const answer = await fetch(`${gone}?node=${node}`);
    must(answer.ok, `${node} is not ended: ${await answer.text()}`);
    await go(page, 'nodes');
    const line = page.getByRole('row', { name: new RegExp(`\\b${node}\\b`) }).first();
    await line.getByText('Down', { exact: true }).waitFor();
    await go(page, `nodes/${node}`);
    await page.getByText(`not ready: Kubernetes node ${node} is gone`).waitFor();
    await findings(page, 'the page of a node that is gone');
    await go(page, 'dashboard');
    await page.getByRole('row', { name: new RegExp(`^${node} Down`) }).getByText(`not ready: Kubernetes node ${node} is gone`).waitFor();
    await go(page, 'nodes');
    await choose(page, 'Remove node…', `Actions of ${node}`);
    await dialog(page).getByText('No replica is placed on it.').waitFor();
    await dialog(page).getByRole('button', { name: 'Remove', exact: true }).click();
    await dialog(page).getByText('disable scheduling').waitFor();
    await button(page, 'Cancel').click();
    await choose(page, 'Edit node…', `Actions of ${node}`);
    await dialog(page).getByLabel('New replicas may be placed here').uncheck();
    await confirm(page, 'Save');
    await choose(page, 'Remove node…', `Actions of ${node}`);
    await again(page, 'Remove');
    await line.waitFor({ state: 'detached' });
    must((await ask('GET', 'nodes')).data.every((n) => n.name !== node), `${node} is there`);
  }, /status of (4|5)\d\d/);
}

await run(main);
