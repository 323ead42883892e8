// The web UI without a mouse, and on a narrow screen. browser.mjs says what it needs.
import { ask, button, choose, confirm, dialog, findings, focused, go, heading, logIn, must, picture, ready, run, state, step, tab } from './browser.mjs';

const pages = ['dashboard', 'volumes', 'volumes/kind', 'nodes', 'nodes/node-1', 'recurringjobs', 'backups', 'backups-all', 'backups-verification', 'backuptargets', 'backingimages', 'engineimages', 'instancemanagers', 'orphans',
  'events', 'settings'];
const narrow = { width: 390, height: 844 };

async function main() {
  const page = await logIn();
  await step('a volume is made without a mouse', async () => {
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await ready(page);
    await page.evaluate(() => document.body.focus());
    await tab(page, 'Skip to content');
    await page.keyboard.press('Enter');
    must((await page.evaluate(() => document.activeElement?.id)) === 'main', 'the link does not lead to the content');
    await tab(page, 'Create volume');
    await page.keyboard.press('Enter');
    await dialog(page).locator('#name').waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    must((await focused(page)) === 'Create volume', `after Escape the focus is on ${await focused(page)}`);
    await page.keyboard.press('Enter');
    await dialog(page).locator('#name').waitFor();
    await page.keyboard.type('kind');
    await page.keyboard.press('Tab');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('32Mi');
    await page.keyboard.press('Tab');
    await page.keyboard.type('2');
    await page.keyboard.press('Enter');
    await dialog(page).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'kind', exact: true }).waitFor();
  });
  await step('a menu opens, moves and closes without one', async () => {
    await tab(page, 'Select kind');
    await page.keyboard.press('Space');
    await page.getByText('1 selected').waitFor();
    await page.getByRole('button', { name: 'Actions', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('menuitem').first().waitFor();
    await page.keyboard.press('ArrowDown');
    must((await page.evaluate(() => document.activeElement?.getAttribute('role'))) === 'menuitem', `the focus is on ${await focused(page)}`);
    await page.keyboard.press('Escape');
    await page.getByRole('menuitem').first().waitFor({ state: 'detached' });
    must((await focused(page)) === 'Actions', `after Escape the focus is on ${await focused(page)}`);
    await page.getByLabel('Select kind').uncheck();
  });
  await step('columns are chosen, and stay chosen', async () => {
    await button(page, 'Columns').click();
    await page.getByRole('menuitem', { name: 'Redundancy' }).getByRole('checkbox').check();
    await page.getByRole('menuitem', { name: 'Locality' }).getByRole('checkbox').uncheck();
    await page.keyboard.press('Escape');
    await page.reload();
    await page.getByRole('columnheader', { name: 'Redundancy' }).waitFor();
    must(await page.getByRole('columnheader', { name: 'Locality' }).count() === 0, 'the column is still there');
  });
  await step('filters by redundancy and what else', async () => {
    await go(page, 'volumes?redundancy=None&also=Standby');
    await page.getByText('No volume fits the filters.').waitFor();
    await go(page, 'volumes?also=Never%20backed%20up');
    await page.getByRole('link', { name: 'kind', exact: true }).waitFor();
  });
  await step('a volume with further fields, and a copy of one', async () => {
    await button(page, 'Create volume').click();
    await dialog(page).locator('#name').fill('further');
    await dialog(page).locator('#size').fill('16Mi');
    await dialog(page).locator('#replicas').fill('1');
    await button(page, 'Further fields').click();
    await dialog(page).locator('#snapshotMaxCount').fill('7');
    await dialog(page).locator('#replicaSoftAntiAffinity').selectOption('enabled');
    await dialog(page).locator('#replicaRebuildingBandwidthLimit').fill('5');
    await dialog(page).locator('#blocks').selectOption('16777216');
    await findings(page, 'the dialog of a new volume with further fields');
    await confirm(page, 'Create');
    const made = await ask('GET', 'volumes/further');
    must(made.snapshotMaxCount === 7 && made.replicaSoftAntiAffinity === 'enabled' && made.replicaRebuildingBandwidthLimit === 5 && made.backupBlockSize === '16777216', JSON.stringify(made).slice(0, 500));
    await go(page, 'volumes/further');
    await heading(page, 'further');
    await page.locator('dt', { hasText: /^Block size of backups$/ }).locator('xpath=following-sibling::dd').getByText('16 MiB').waitFor();
    await state(page, 'detached');
    await choose(page, 'Copy…');
    must((await dialog(page).locator('#size').inputValue()) === '16Mi', 'the copy has another size');
    await dialog(page).locator('#replicas').fill('1');
    await confirm(page, 'Create');
    const copy = await ask('GET', 'volumes/further-copy');
    must(copy.dataSource === 'vol://further', copy.dataSource);
    for (const name of ['further-copy', 'further']) await ask('DELETE', `volumes/${name}`);
  });
  await step('several snapshots are deleted at once', async () => {
    await go(page, 'volumes/kind');
    await heading(page, 'kind');
    await state(page, 'detached');
    await choose(page, 'Attach…');
    await confirm(page, 'Attach');
    await state(page, 'healthy');
    for (const name of ['one', 'two', 'three']) {
      await button(page, 'Take snapshot').click();
      await dialog(page).getByRole('textbox').fill(name);
      await confirm(page, 'Take snapshot');
      await page.getByLabel(`Select ${name}`).waitFor();
    }
    // The newest one is the head's parent, which keeps its layer.
    for (const name of ['one', 'two']) await page.getByLabel(`Select ${name}`, { exact: true }).check();
    await button(page, 'Delete 2 snapshots…').click();
    await confirm(page, 'Delete');
    for (const name of ['one', 'two']) await page.getByLabel(`Select ${name}`, { exact: true }).waitFor({ state: 'detached' });
    await page.getByLabel('Select three', { exact: true }).waitFor();
  });
  await step('charts of the cluster and of what the users of a volume do', async () => {
    await go(page, 'volumes/kind');
    await page.getByRole('heading', { name: 'Activity' }).waitFor();
    for (const title of ['Throughput', 'Operations', 'Latency']) await page.getByRole('img', { name: title }).waitFor();
    await page.getByText('0 B/s read, 0 B/s written').waitFor();
    await findings(page, 'the charts of a volume');
    await picture(page, 'activity');
    await go(page, 'dashboard');
    for (const title of ['Used and free storage', 'Promised storage', 'Storage of the nodes']) await page.getByRole('img', { name: title }).waitFor();
    await findings(page, 'the charts of the dashboard');
  });
  await step('a schedule in words', async () => {
    await go(page, 'recurringjobs');
    await heading(page, 'Recurring jobs');
    await button(page, 'Create recurring job').click();
    await dialog(page).locator('#name').fill('weekly');
    await dialog(page).locator('#every').selectOption('week');
    await dialog(page).locator('#weekday').selectOption('1');
    await dialog(page).locator('#hour').fill('3');
    await dialog(page).locator('#labels').fill('kept=long');
    await dialog(page).getByText('every Monday at 03:00').waitFor();
    await findings(page, 'the dialog of a recurring job');
    await confirm(page, 'Create');
    const job = await ask('GET', 'recurringjobs/weekly');
    must(job.cron === '0 3 * * 1' && job.labels.kept === 'long', JSON.stringify(job));
    await button(page, 'Edit weekly').click();
    await dialog(page).locator('#every').selectOption('custom');
    await dialog(page).locator('#cron').fill('*/30 * * * *');
    await confirm(page, 'Save');
    await page.getByText('*/30 * * * *').waitFor();
    await button(page, 'Delete weekly').click();
    await confirm(page, 'Delete');
    await page.getByText('*/30 * * * *').waitFor({ state: 'detached' });
  });
  await step('the page of an engine image and of a node', async () => {
    const [image] = (await ask('GET', 'engineimages')).data.filter((i) => i.default);
    await go(page, `engineimages/${image.name}`);
    await heading(page, image.image);
    await page.getByRole('link', { name: 'kind', exact: true }).waitFor();
    await page.getByRole('row', { name: /^node-1/ }).getByText('deployed').waitFor();
    await findings(page, 'the page of an engine image');
    await picture(page, 'engineimage');
    const [replica] = (await ask('GET', 'volumes/kind')).replicas;
    await go(page, `nodes/${replica.hostId}`);
    await heading(page, replica.hostId);
    await page.getByLabel(`Select ${replica.name}`).check();
    await page.getByRole('row', { name: /engine image/ }).getByText('deployed').first().waitFor();
    await findings(page, 'the page of a node');
    await picture(page, 'node');
    await button(page, 'Remove…').click();
    must((await dialog(page).innerText()).includes('kind: 1 other copy'), await dialog(page).innerText());
    await confirm(page, 'Remove');
    await page.getByText('The replicas are being removed').waitFor();
  });
  await step('a narrow screen: nothing is beside it, and axe', async () => {
    const small = await logIn(narrow);
    const wrong = [];
    for (const p of pages) {
      await go(small, p);
      await small.getByRole('heading', { level: 1 }).waitFor();
      await ready(small);
      const wide = await small.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) wrong.push(`${p} is ${wide} pixels too wide`);
      await findings(small, `${p}, narrow`).catch((e) => wrong.push(e.message));
      await picture(small, `${p.replace('/', '-')}-narrow`);
    }
    const menu = small.getByRole('navigation', { name: 'Pages' });
    must(!(await menu.isVisible()), 'the menu lies over the page');
    await button(small, 'Pages').click();
    await menu.getByRole('link', { name: 'Volumes' }).click();
    await heading(small, 'Volumes');
    await menu.waitFor({ state: 'hidden' });
    await button(small, 'Create volume').click();
    await picture(small, 'create-narrow');
    must(await small.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the dialog is too wide');
    await button(small, 'Cancel').click();
    await small.context().close();
    must(wrong.length === 0, wrong.join('\n'));
  });
  await ask('DELETE', 'volumes/kind');
}

await run(main);
