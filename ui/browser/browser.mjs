// What the scripts share that use the web UI in a real browser against a real cluster. They end with status 1 at the first thing that is not
// as it must be. test/e2e starts them and says in the environment:
//
//   URL      address of the REST API
//   TOKEN    token of an administrator
//   LOGIN    file of the page that logs a browser in
//   VIEWER   token of somebody who may only read
//   CHROME   the browser's program
//   SHOTS    folder for pictures of every page, may be empty
//   LIMIT    seconds that anything may take
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

export const { URL: address, TOKEN: token, LOGIN: login, VIEWER: viewer, CHROME: chrome, SHOTS: shots } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export const limit = Number(process.env.LIMIT || 60) * 1000;

const browser = await chromium.launch({
  executablePath: chrome,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
export const hosts = [address, 'file:']; // of what the page may ask
export const complaints = [];
export const sockets = new Set(); // of streams that are open

// What a script changes: cut, no stream is opened; modelled, what the stream of volumes says instead of the server; allowed, a pattern of
// console errors that a step causes.
export const world = { cut: false };

export async function open(size = { width: 1440, height: 900 }) {
  const context = await browser.newContext({ viewport: size, reducedMotion: 'reduce' });
  context.setDefaultTimeout(limit);
  const page = await context.newPage();
  await page.routeWebSocket(/\/v1\/ws\//, (socket) => {
    if (world.cut) {
      socket.close();
      return;
    }
    if (world.modelled && socket.url().includes('/volumes')) {
      socket.send(JSON.stringify(world.modelled));
      world.modelled.socket = socket;
      return;
    }
    const server = socket.connectToServer();
    sockets.add(socket);
    socket.onClose(() => { sockets.delete(socket); server.close(); });
  });
  page.on('console', (m) => {
    // The page asks an engine for its snapshots until it is told that the volume is being detached.
    if (m.type() === 'error' && m.location().url.includes('action=snapshotList')) return;
    // A machine with more to do than it can makes Kubernetes late, which the server says; the page asks again.
    if (m.type() === 'error' && /status of 503/.test(m.text())) {
      told(`  not answered in time: ${m.location().url}`);
      return;
    }
    if (m.type() === 'error' && !world.allowed?.test(m.text())) complaints.push(`console: ${m.text()} ${m.location().url} (${page.url()})`);
  });
  page.on('pageerror', (e) => complaints.push(`error: ${e.message} (${page.url()})`));
  page.on('request', (r) => {
    if (!hosts.some((h) => r.url().startsWith(h)) && !r.url().startsWith('data:')) complaints.push(`asks another host: ${r.url()}`);
    if (r.url().includes(token)) complaints.push(`the token is in the address ${r.url()}`);
  });
  return page;
}

export const told = (text) => console.log(text);
export const must = (ok, what) => {
  if (!ok) throw new Error(what);
};
// allowed is a pattern of console errors that the step causes.
export async function step(name, f, allowed) {
  const began = Date.now();
  world.allowed = allowed;
  await f();
  world.allowed = undefined;
  must(complaints.length === 0, `${name}: ${complaints.join('\n')}`);
  told(`${name}: ${Date.now() - began} ms`);
}

// Findings of axe. Scripts of others are refused by the page's policy; the debugger's are not.
export async function findings(page, where, only) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((rules) => window.axe.run(document, { resultTypes: ['violations'],
    ...(rules && { runOnly: { type: 'rule', values: rules } }) }), only);
  must(violations.length === 0, `axe on ${where}:\n${violations.map((v) =>
    `  ${v.id}: ${v.help}\n${v.nodes.slice(0, 5).map((n) => `    ${n.target} ${n.html.slice(0, 200)}`).join('\n')}`).join('\n')}`);
}

export const go = (page, place) => page.evaluate((p) => { location.hash = `#/${p}`; }, place);
export const heading = (page, name) => page.getByRole('heading', { level: 1, name }).waitFor();
export const picture = (page, name) => shots && page.screenshot({ path: `${shots}/${name}.png` });
export const button = (page, name, exact = true) => page.getByRole('button', { name, exact });
export const dialog = (page) => page.getByRole('dialog');
export const ready = (page) => page.locator('text=Loading…').first().waitFor({ state: 'detached' });

export async function choose(page, entry, menu = 'Actions') {
  await button(page, menu).click();
  await page.getByRole('menuitem', { name: entry }).click();
}
export async function confirm(page, label) {
  await dialog(page).getByRole('button', { name: label, exact: true }).click();
  await dialog(page).waitFor({ state: 'detached' });
}
// again confirms until the dialog is gone: what was just changed is refused for a moment. An answer may come while the next try waits for the button.
export async function again(page, label) {
  const end = Date.now() + limit;
  while (await dialog(page).count() > 0) {
    must(Date.now() < end, `Timeout ${limit} ms: ${label} is refused: ${await dialog(page).innerText()}`);
    await dialog(page).getByRole('button', { name: label, exact: true }).click({ timeout: 2000 }).catch(() => undefined);
    await dialog(page).waitFor({ state: 'detached', timeout: 2000 }).catch(() => undefined);
  }
}
export const state = (page, text) => page.locator('.ak-bar').getByText(text, { exact: true }).first().waitFor();

// focused says what has the focus, as a reader of the screen would.
export const focused = (page) => page.evaluate(() => {
  const e = document.activeElement;
  return e?.getAttribute('aria-label') || e?.textContent?.trim() || e?.id || e?.tagName || '';
});

// tab goes on until what has the focus is called so.
export async function tab(page, name, most = 80) {
  for (let i = 0; i < most; i++) {
    await page.keyboard.press('Tab');
    if ((await focused(page)) === name) return;
  }
  throw new Error(`no ${name} is reached in ${most} steps; the focus is on ${await focused(page)}`);
}

// logIn opens a page of an administrator.
export async function logIn(size) {
  const page = await open(size);
  await page.goto(`${address}/#token=${encodeURIComponent(token)}`);
  await heading(page, 'Dashboard');
  return page;
}

// ask is a request of the administrator beside the browser.
export async function ask(method, path, body) {
  const answer = await fetch(`${address}/v1/${path}`, { method, headers: { Authorization: `Bearer ${token}` }, body: body && JSON.stringify(body) });
  must(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return method === 'DELETE' ? undefined : answer.json();
}

// run does what a script is for, and ends the process.
export async function run(main) {
  try {
    await main();
  } catch (e) {
    console.log(`FAILED: ${e.message}\n${complaints.join('\n')}`);
    for (const context of browser.contexts()) {
      for (const page of context.pages()) {
        await Promise.resolve(picture(page, 'failed')).catch(() => undefined);
        console.log((await page.locator('body').innerText().catch(() => '')).slice(0, 3000));
      }
    }
    process.exitCode = 1;
  }
  await browser.close();
  process.exit(); // a proxy may still listen
}
