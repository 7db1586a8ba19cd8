// The receiver of conf/interfaces.md gets what becomes of a write, from a real relay.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child, Node, Portcullis, endAll } from './relay_world.mjs';

let node;
let portcullis;
let receiver;
let folder;

/** A port that nothing listens on. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'portcullis-receiver-'));
  const modules = fileURLToPath(new URL('node_modules', import.meta.url));
  await symlink(modules, join(folder, 'node_modules'));
  const page = await readFile(new URL('../../../conf/interfaces.md', import.meta.url), 'utf8');
  const [, script] = page.split('```js\n');
  await writeFile(join(folder, 'receive.mjs'), script.split('```')[0]);
  const secret = join(folder, 'events.secret');
  const text = `whsec_${Buffer.alloc(32, 7).toString('base64')}\n`;
  await writeFile(secret, text, { mode: 0o600 });
  const port = String(await freePort());
  receiver = new Child('node', [join(folder, 'receive.mjs')], { PORT: port, SECRET_FILE: secret });
  node = await Node.start('--state-archive-capacity', 'full');
  portcullis = await Portcullis.start(node, {
    env: {
      PORTCULLIS__RELAY__EVENTS__URL: `http://127.0.0.1:${port}/`,
      PORTCULLIS__RELAY__EVENTS__SECRET_FILE: secret,
    },
  });
});
after(async () => {
  await endAll(portcullis, node, receiver);
  await rm(folder, { recursive: true, force: true });
});

test('the receiver of the page gets the fate of a write', async () => {
  const account = portcullis.pins.faucet;
  const view = '0x1a35984e05126dbecb7c3bb9929e7dd9106d460c59b1633739a5c733a5fb13b';
  const [publicKey] = await node.ask('starknet_call', {
    request: { contract_address: account, entry_point_selector: view, calldata: [] },
    block_id: 'latest',
  });
  const body = { identity: '0x1d', account, public_key: publicKey };
  const { status, json } = await portcullis.post('/register', body);
  assert.equal(status, 200, JSON.stringify(json));
  const hash = json.transaction_hash;
  await receiver.says(new RegExp(`write.succeeded register ${hash}`));
  await node.ask('devnet_abortBlocks', { starting_block_id: 'latest' });
  await receiver.says(new RegExp(`write.displaced register ${hash}`));
  assert.equal((await portcullis.post('/register', body)).status, 200);
  await receiver.says(/write.succeeded.*\n(.*\n)*.*write.displaced.*\n(.*\n)*.*write.succeeded/);
});
