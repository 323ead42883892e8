// What a person does first with the web UI, and every page. browser.mjs says what it needs.
import {
  address, button, choose, confirm, dialog, findings, go, heading, login, must, open, picture, proxy, ready, run, sockets, state, step, told, token, viewer, world,
} from './browser.mjs';

const pages = ['dashboard', 'volumes', 'nodes', 'recurringjobs', 'backups', 'backups-all', 'backups-verification', 'backuptargets', 'backingimages', 'engineimages', 'instancemanagers', 'orphans', 'events', 'settings'];
const titles = { 'backups-all': 'All backups', 'backups-verification': 'Verification of backups', recurringjobs: 'Recurring jobs', backuptargets: 'Backup targets', backingimages: 'Backing images', engineimages: 'Engine images', instancemanagers: 'Instance managers' };
const titleOf = (p) => titles[p] ?? p.charAt(0).toUpperCase() + p.slice(1);

async function everyPage(page, volume) {
  const wrong = [];
  const took = [];
  for (const look of ['light', 'dark']) {
    if (look === 'dark') await button(page, 'Dark').click();
    for (const p of [...pages, `volumes/${volume}`]) {
      const began = Date.now();
      await go(page, p);
      await heading(page, p.includes('/') ? volume : titleOf(p));
      await ready(page);
      await findings(page, `${p}, ${look}`, look === 'dark' ? ['color-contrast'] : undefined).catch((e) => wrong.push(e.message));
      await picture(page, `${p.replace('/', '-')}-${look}`);
      took.push(`${p} ${Date.now() - began}`);
    }
  }
  await button(page, 'Light').click();
  told(`  ${took.join(', ')}`);
  must(wrong.length === 0, wrong.join('\n'));
}

async function main() {
  const page = await open();
  await step('the page in the folder of a standalone cluster logs in', async () => {
    const other = await open();
    await other.goto(`file://${login}`);
    await heading(other, 'Dashboard');
    must(other.url().startsWith(address) && !other.url().includes('token'), `the page ends at ${other.url()}`);
    await other.context().close();
  });
  await step('a link with a token logs in', async () => {
    await page.goto(`${address}/#token=${encodeURIComponent(token)}`);
    await heading(page, 'Dashboard');
    must(!page.url().includes('token'), `the address keeps the token: ${page.url()}`);
  });
  await step('so does one in a page that is there, and one that is wrong changes nothing', async () => {
    for (const [link, error] of [[token, undefined], ['%E0%A4%A', /status of 401/]]) {
      world.allowed = error;
      const loaded = page.waitForEvent('load');
      await page.evaluate((t) => { location.hash = `#token=${t}`; }, link);
      await loaded;
      await heading(page, 'Dashboard');
      must(!page.url().includes('token'), `the address keeps the token: ${page.url()}`);
    }
    world.allowed = undefined;
  });
  const name = 'webui';
  await step('create', async () => {
    await go(page, 'volumes');
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill(name);
    await page.getByLabel('Size, such as 20Gi').fill('64Mi');
    await page.getByLabel('Replicas (empty: as the setting says)').fill('2');
    await findings(page, 'the dialog of a new volume');
    await picture(page, 'create');
    await confirm(page, 'Create');
    await page.getByRole('link', { name, exact: true }).click();
    await heading(page, name);
    await state(page, 'detached');
  });
  await step('time to the first row', async () => {
    await page.goto(`${address}/#/volumes`);
    await page.reload();
    await page.getByRole('link', { name, exact: true }).waitFor();
    told(`  ${Math.round(await page.evaluate(() => performance.now()))} ms after the address was entered`);
    await page.getByRole('link', { name, exact: true }).click();
    await heading(page, name);
  });
  await step('attach in maintenance', async () => {
    await page.getByText('no place').first().waitFor({ state: 'detached' });
    await choose(page, 'Attach…');
    await dialog(page).getByLabel('Maintenance').check();
    await confirm(page, 'Attach');
    await state(page, 'healthy');
    await page.getByText('maintenance', { exact: true }).waitFor();
  });
  await step('snapshot', async () => {
    await button(page, 'Take snapshot').click();
    await dialog(page).getByRole('textbox').fill('first');
    await confirm(page, 'Take snapshot');
    await page.getByRole('row', { name: /^Select first/ }).waitFor();
  });
  await step('revert', async () => {
    await page.getByRole('row', { name: /^Select first/ }).getByRole('button', { name: 'Revert' }).click();
    await confirm(page, 'Revert');
    await page.getByText(`${name} has the content of first`).waitFor();
  });
  await step('every page, light and dark, and axe', () => everyPage(page, name));
  await step('a refused setting says why, and what was typed stays', async () => {
    world.allowed = /status of 500/;
    await go(page, 'settings?q=default-replica-count');
    const field = page.locator('#default-replica-count');
    await field.fill('99');
    await page.getByRole('button', { name: /^Save/ }).click();
    await page.getByText('Refused').waitFor();
    must((await field.inputValue()) === '99', 'what was typed is gone');
    await picture(page, 'refused');
    await button(page, 'Undo').click();
    world.allowed = undefined;
  });
  await step('what was typed into a setting and is not saved is there again', async () => {
    const field = page.locator('#default-replica-count');
    const before = await field.inputValue();
    await field.fill('2');
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await go(page, 'settings?q=default-replica-count');
    must((await field.inputValue()) === '2', `the setting shows ${await field.inputValue()}`);
    await button(page, 'Undo').click();
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await go(page, 'settings?q=default-replica-count');
    must((await field.inputValue()) === before, `what was given up is there again: ${await field.inputValue()}`);
  });
  await step('a setting that somebody else changes meanwhile keeps what was typed, and says so', async () => {
    const field = page.locator('#default-replica-count');
    const before = await field.inputValue();
    const put = (value) => fetch(`${address}/v1/settings/default-replica-count`, { method: 'PUT', headers: { Authorization: `Bearer ${token}` }, body: JSON.stringify({ value }) });
    await field.fill('4');
    must((await put('5')).ok, 'the setting is not changed');
    await page.getByText('Somebody has set it to').waitFor();
    must((await field.inputValue()) === '4', `what was typed is overwritten by ${await field.inputValue()}`);
    await button(page, 'Undo').click();
    must((await put(before)).ok, 'the setting is not put back');
    await page.waitForFunction((b) => document.querySelector('#default-replica-count')?.value === b, before);
  });
  await step('deprecated settings are not shown', async () => {
    await go(page, 'settings?q=cpu');
    await page.locator('.ak-setting').first().waitFor();
    const all = await (await fetch(`${address}/v1/settings`, { headers: { Authorization: `Bearer ${token}` } })).json();
    const old = all.data.filter((s) => s.definition.type === 'deprecated');
    must(old.length > 0, 'no setting is deprecated');
    await go(page, `settings?q=${old[0].name}`);
    must(await page.locator(`[id="${old[0].name}"]`).count() === 0, `${old[0].name} is shown`);
  });
  await step('a session that ends keeps the form', async () => {
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill('kept');
    world.allowed = /status of 401|WebSocket/;
    await page.context().clearCookies();
    await dialog(page).getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText('Your session has ended').waitFor();
    await page.getByLabel('Kubernetes token').fill(token);
    await button(page, 'Log in').click();
    await page.getByText('Your session has ended').waitFor({ state: 'detached' });
    world.allowed = undefined;
    must((await dialog(page).locator('#name').inputValue()) === 'kept', 'the form is gone');
    await button(page, 'Cancel').click();
  });
  await step('a cut is told, and what was missed comes', async () => {
    await heading(page, 'Volumes');
    world.cut = true;
    sockets.forEach((s) => s.close());
    await page.getByText('Not live since').waitFor();
    await picture(page, 'cut');
    const made = await fetch(`${address}/v1/volumes`, { method: 'POST', headers: { Authorization: `Bearer ${token}` },
      body: JSON.stringify({ name: 'missed', size: '16Mi', numberOfReplicas: 1 }) });
    must(made.ok, `POST: ${made.status}`);
    world.cut = false;
    await page.getByRole('link', { name: 'missed', exact: true }).waitFor();
    await page.getByText('Not live since').waitFor({ state: 'detached' });
    await fetch(`${address}/v1/volumes/missed`, { method: 'DELETE', headers: { Authorization: `Bearer ${token}` } });
  });
  await step('a filter is in the address', async () => {
    await page.getByLabel('Name, claim, Pod, tag').fill('nothing-has-this');
    await page.getByText('No volume fits the filters.').waitFor();
    must(page.url().endsWith('#/volumes?q=nothing-has-this'), page.url());
    await go(page, `volumes?q=${name}&state=Healthy`);
    await page.getByRole('link', { name, exact: true }).waitFor();
    await go(page, 'volumes');
  });
  await step('a CPU request of a node', async () => {
    await go(page, 'nodes');
    const first = page.getByRole('row', { name: /node-1/ }).first();
    for (const [value, shown] of [['250', '250m'], ['0', 'setting']]) {
      await choose(page, 'Edit node…', 'Actions of node-1');
      for (const of of ['Engine', 'Replica']) await dialog(page).getByLabel(`${of} Manager CPU (Milli)`).waitFor();
      await dialog(page).getByLabel('Instance Manager CPU (Milli)').fill(value);
      await confirm(page, 'Save');
      await first.getByText(shown, { exact: true }).waitFor();
    }
  });
  await step('times are local, and in UTC on hover', async () => {
    const created = page.locator('td[data-label=Created] time').first();
    await go(page, 'volumes');
    await created.waitFor();
    const { at, said, hover } = await created.evaluate((e) => ({ at: e.dateTime, said: e.textContent, hover: e.title }));
    must(new Date(at).toUTCString() === hover && new Date(said).getTime() === new Date(at).getTime(), `${at} is shown as ${said}, and as ${hover}`);
  });
  await step('detach', async () => {
    await go(page, `volumes/${name}`);
    await choose(page, 'Detach…');
    await confirm(page, 'Detach');
    await state(page, 'detached');
    await go(page, 'volumes');
  });
  await step('1,000 volumes are a list of which few are drawn', async () => {
    const real = await (await fetch(`${address}/v1/volumes/${name}`, { headers: { Authorization: `Bearer ${token}` } })).json();
    const id = (i) => `model-${String(i).padStart(4, '0')}`;
    world.modelled = { type: 'collection', resourceType: 'volume', data: Array.from({ length: 1000 }, (_, i) => ({ ...real, id: id(i), name: id(i) })) };
    await page.reload();
    await page.getByText('1000 shown').waitFor();
    await page.getByRole('link', { name: id(0) }).waitFor();
    const rows = await page.getByRole('row').count();
    must(rows > 10 && rows < 100, `${rows} rows are drawn`);
    await findings(page, 'a list that scrolls');
    await page.locator('.ak-scroll').evaluate((e) => { e.scrollTop = e.scrollHeight; });
    await page.getByRole('link', { name: id(999) }).waitFor();
    world.modelled.socket.send(JSON.stringify({ type: 'changes', resourceType: 'volume', removed: [id(999)], data: [{ ...real, id: id(998), name: id(998), state: 'attaching' }] }));
    await page.getByText('999 shown').waitFor();
    await page.getByRole('row', { name: id(998) }).getByText('attaching').waitFor();
    await picture(page, 'many');
    world.modelled = undefined;
    await page.reload();
    await heading(page, 'Volumes');
  });
  await step('below a prefix', async () => {
    const front = await proxy('/some/prefix');
    const other = await open();
    await other.goto(`${front.address}/#token=${encodeURIComponent(token)}`);
    await heading(other, 'Dashboard');
    await go(other, 'volumes');
    await heading(other, 'Volumes');
    await other.getByRole('link', { name, exact: true }).waitFor();
    await other.context().close();
    front.close();
  });
  await step('delete', async () => {
    await go(page, 'volumes');
    await page.getByLabel(`Select ${name}`).check();
    await choose(page, 'Delete…');
    must((await dialog(page).innerText()).includes(name), 'the dialog does not say what is lost');
    await picture(page, 'delete');
    await confirm(page, 'Delete');
    await page.getByRole('link', { name, exact: true }).waitFor({ state: 'detached' });
  });
  await step('log out', async () => {
    world.allowed = /status of 401|WebSocket/;
    await button(page, 'Log out').click();
    await page.getByLabel('Kubernetes token').waitFor();
    await findings(page, 'the page for logging in');
    await picture(page, 'login');
    world.allowed = undefined;
  });
  if (viewer) {
    await step('who may only read sees no buttons that change', async () => {
      await page.getByLabel('Kubernetes token').fill(viewer);
      await button(page, 'Log in').click();
      await page.getByText('read-only').waitFor();
      for (const p of ['volumes', 'nodes', 'recurringjobs', 'backups', 'backups-verification', 'backuptargets', 'backingimages', 'engineimages', 'orphans', 'settings']) {
        await go(page, p);
        await heading(page, titleOf(p));
        await ready(page);
        const offered = await page.locator('main').getByRole('button', { name: /create|delete|add|edit|remove|actions|save|verify/i }).count();
        must(offered === 0, `${p} offers ${offered} changes`);
      }
    });
  }
}

await run(main);
