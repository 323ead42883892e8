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
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
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

// What a script changes: cut, no stream is opened; modelled, what the stream of volumes says instead of the server; streams, what others say
// instead, by name; allowed, a pattern of console errors that a step causes.
export const world = { cut: false, streams: {} };

// open is a page of a browser of its own. Without cuts the streams are the browser's, and world has no say in them.
export async function open(size = { width: 1440, height: 900 }, cuts = true) {
  const context = await browser.newContext({ viewport: size, reducedMotion: 'reduce' });
  context.setDefaultTimeout(limit);
  const page = await context.newPage();
  if (cuts) await page.routeWebSocket(/\/v1\/ws\//, (socket) => {
    if (world.cut) {
      socket.close();
      return;
    }
    if (world.modelled && socket.url().includes('/volumes')) {
      socket.send(JSON.stringify(world.modelled));
      world.modelled.socket = socket;
      return;
    }
    const own = world.streams[/\/([a-z]+)\?/.exec(socket.url())?.[1]];
    if (own) {
      socket.send(JSON.stringify(own));
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
export async function logIn(size, at = address, cuts = true) {
  const page = await open(size, cuts);
  await page.goto(`${at}/#token=${encodeURIComponent(token)}`);
  await heading(page, 'Dashboard');
  return page;
}

// textFrame is a text as a server of websockets sends it (RFC 6455, section 5.2).
function textFrame(text) {
  const body = Buffer.from(text);
  const head = Buffer.alloc(body.length < 126 ? 2 : body.length < 1 << 16 ? 4 : 10);
  head[0] = 0x81;
  head[1] = { 2: body.length, 4: 126, 10: 127 }[head.length];
  if (head.length === 4) head.writeUInt16BE(body.length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(body.length), 2);
  return Buffer.concat([head, body]);
}

// proxy takes a prefix away, as an ingress does. streams has what streams of those names say instead of the server: a function that is given
// what sends a text.
export async function proxy(prefix, streams = {}) {
  const to = new URL(address);
  const cut = (path) => (path.startsWith(prefix) ? path.slice(prefix.length) : undefined);
  const server = createServer((q, a) => {
    const path = cut(q.url);
    if (path === undefined) {
      complaints.push(`asks beside the prefix: ${q.url}`);
      a.writeHead(404).end();
      return;
    }
    q.pipe(request({ host: to.hostname, port: to.port, path, method: q.method, headers: q.headers }, (r) => {
      a.writeHead(r.statusCode, r.rawHeaders);
      r.pipe(a);
    }));
  });
  const opened = new Set();
  server.on('upgrade', (q, socket) => {
    opened.add(socket);
    const own = streams[/\/([a-z]+)\?/.exec(q.url)?.[1]];
    if (own) {
      const key = createHash('sha1').update(`${q.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
      const protocol = q.headers['sec-websocket-protocol'] ? 'Sec-WebSocket-Protocol: ankole\r\n' : '';
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n${protocol}\r\n`);
      socket.on('error', () => socket.destroy());
      socket.on('data', () => undefined); // a page says nothing; its end is seen only by who reads
      own((text) => socket.write(textFrame(text)));
      return;
    }
    const up = connect(to.port, to.hostname, () => {
      up.write(`GET ${cut(q.url)} HTTP/1.1\r\n`);
      for (let i = 0; i < q.rawHeaders.length; i += 2) up.write(`${q.rawHeaders[i]}: ${q.rawHeaders[i + 1]}\r\n`);
      up.write('\r\n');
      up.pipe(socket).pipe(up);
    });
    for (const s of [up, socket]) s.on('error', () => { up.destroy(); socket.destroy(); });
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  const at = `http://127.0.0.1:${server.address().port}${prefix}`;
  hosts.push(at);
  return {
    address: at,
    close() {
      opened.forEach((s) => s.destroy());
      server.closeAllConnections();
      server.close();
    },
  };
}

// ask is a request of the administrator beside the browser.
export async function ask(method, path, body) {
  const answer = await fetch(`${address}/v1/${path}`, { method, headers: { Authorization: `Bearer ${token}` }, body: body && JSON.stringify(body) });
  must(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  const text = await answer.text(); // some actions and deletions answer with nothing
  return text ? JSON.parse(text) : undefined;
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
