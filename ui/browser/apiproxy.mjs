// The web UI through the proxy of an API server. browser.mjs says what it needs; beside that
//
//   FRONT    address of the page there, without the last slash
import { ask, button, choose, confirm, go, heading, hosts, logIn, must, run, sockets, step } from './browser.mjs';

const { FRONT: front } = process.env;
const name = 'proxied';

async function main() {
  hosts.push(front);
  let page;
  await step('log in', async () => {
    page = await logIn(undefined, front);
  });
  await step('what is made elsewhere is seen', async () => {
    await go(page, 'volumes');
    await heading(page, 'Volumes');
    await ask('POST', 'volumes', { name, size: '10485760', numberOfReplicas: 1 });
    await page.getByRole('link', { name, exact: true }).waitFor();
    must(sockets.size > 0, 'no stream is open');
  });
  await step('deleted', async () => {
    await page.getByLabel(`Select ${name}`).check();
    await choose(page, 'Delete…');
    await confirm(page, 'Delete');
    await page.getByRole('link', { name, exact: true }).waitFor({ state: 'detached' });
  });
  await step('log out', async () => {
    await button(page, 'Log out').click();
    await page.getByLabel('Kubernetes token').waitFor();
  }, /status of 401|WebSocket/);
}

await run(main);
