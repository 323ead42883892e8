// What a page of 1,000 volumes with 3,000 replicas costs: times between frames while somebody scrolls and while volumes change, and what
// streams carry while nothing does. browser.mjs says what it needs.
import { ask, go, logIn, must, proxy, run, step, told } from './browser.mjs';

const rounds = 3;
const name = 'frames';
// Streams may carry so many bytes in a minute while nothing changes; they are counted for a time, once what a new page gets has come.
const most = 50_000, quiet = 3_000, counted = 15_000;

// frames tells the times between two pictures while something is done, and what the page's thread had to do meanwhile. A browser that gets no
// processor draws late whatever the page does, so no time is a verdict.
async function frames(page, what, f) {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const spent = async () => Object.fromEntries((await session.send('Performance.getMetrics')).metrics.map((m) => [m.name, m.value * 1000]));
  await page.evaluate(() => {
    window.frames_ = [];
    let before = performance.now();
    const next = (now) => {
      window.frames_.push(now - before);
      before = now;
      window.frame_ = requestAnimationFrame(next);
    };
    window.frame_ = requestAnimationFrame(next);
  });
  const before = await spent();
  await f();
  const after = await spent();
  const all = await page.evaluate(() => {
    cancelAnimationFrame(window.frame_);
    return window.frames_.slice(1).sort((a, b) => a - b);
  });
  await session.detach();
  const of = (n) => Math.round(after[`${n}Duration`] - before[`${n}Duration`]);
  told(`  ${what}: ${all.length} frames, half under ${all[all.length >> 1].toFixed(0)} ms, 99 of 100 under ` +
    `${all[Math.floor(all.length * 0.99)].toFixed(0)} ms, longest ${all.at(-1).toFixed(0)} ms; the page's thread worked for ${of('Task')} ms: ` +
    `${of('Script')} scripts, ${of('RecalcStyle')} styles, ${of('Layout')} layout`);
}

async function attached() {
  await ask('POST', 'volumes', { name, size: String(32 << 20), numberOfReplicas: 2 });
  const until = async (is) => {
    for (let v; !v || !is(v); v = await ask('GET', `volumes/${name}`)) await new Promise((done) => { setTimeout(done, 300); });
  };
  await until((v) => v.state === 'detached');
  await ask('POST', `volumes/${name}?action=attach`, { hostId: 'node-1', disableFrontend: false, attachmentID: '' });
  await until((v) => v.robustness === 'healthy');
}

async function main() {
  await step('a volume', attached);
  await step('1,000 volumes with 3,000 replicas: the first row, frames while scrolling and while 50 change', async () => {
    const real = await ask('GET', `volumes/${name}`);
    const id = (i) => `model-${String(i).padStart(4, '0')}`;
    const volume = (i, more) => ({ ...real, id: id(i), name: id(i), replicas: Array.from({ length: 3 }, (_, r) => ({ ...real.replicas[0], name: `${id(i)}-r-${r}` })), ...more });
    const say = (type, data) => JSON.stringify({ type, resourceType: 'volume', removed: [], data });
    let send;
    // The stream comes from a server: what a debugger says into a page is work of the page's thread.
    const front = await proxy('', { volumes: (to) => {
      send = to;
      to(say('collection', Array.from({ length: 1000 }, (_, i) => volume(i))));
    } });
    const page = await logIn(undefined, front.address, false);
    await go(page, 'volumes');
    // A row is looked for by its id, once in a picture: a search by role works through all rows.
    const shows = (row, text) => page.waitForFunction(([r, t]) => document.getElementById(r)?.closest('tr')?.textContent.includes(t), [`Volumes-${id(row)}`, text]);
    for (let round = 0; round < rounds; round++) {
      await page.reload();
      await shows(0, id(0));
      told(`  the first row ${Math.round(await page.evaluate(() => performance.now()))} ms after the address was entered`);
    }
    for (let round = 0; round < rounds; round++) {
      await frames(page, 'scrolling', () => page.evaluate(async () => {
        const box = document.querySelector('.ak-scroll');
        for (let i = 0; i <= 60; i++) {
          box.scrollTop = (box.scrollHeight * i) / 60;
          await new Promise((done) => { requestAnimationFrame(done); });
        }
        box.scrollTop = 0;
      }));
      await shows(3, id(3));
      await frames(page, '50 change, 20 times', async () => {
        for (let n = 0; n < 20; n++) {
          const now = n % 2 ? 'attaching' : 'detaching';
          send(say('changes', Array.from({ length: 50 }, (_, i) => volume(i, { state: now }))));
          await shows(3, now);
        }
      });
    }
    await page.context().close();
    front.close();
  });
  await step('what streams carry while nothing changes', async () => {
    const page = await logIn(undefined, undefined, false);
    let bytes = 0;
    page.on('websocket', (socket) => socket.on('framereceived', ({ payload }) => { bytes += payload.length; }));
    for (const place of ['dashboard', 'volumes', `volumes/${name}`, 'nodes']) {
      bytes = 0;
      await go(page, place);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.reload();
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.waitForTimeout(quiet);
      must(bytes > 0, `${place}: no stream has said anything`);
      const first = bytes;
      await page.waitForTimeout(counted);
      told(`  ${place}: ${((bytes - first) / 1000).toFixed(1)} kB in ${counted / 1000} s`);
      must(bytes - first < (most * counted) / 60_000, `${place}: ${bytes - first} bytes in ${counted} ms, ${most} in a minute are too many`);
    }
    await page.context().close();
  });
  await ask('DELETE', `volumes/${name}`);
}

await run(main);
