// The script of conf/wallet does what its page promises, against a real system.
import assert from 'node:assert/strict';
import { copyFile, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child, Node, Portcullis, endAll } from './relay_world.mjs';

const FOLDER = new URL('../../../conf/wallet/', import.meta.url);

let node;
let portcullis;
let wallet;

before(async () => {
  node = await Node.start();
  portcullis = await Portcullis.start(node);
  wallet = await mkdtemp(join(tmpdir(), 'portcullis-wallet-'));
  await copyFile(new URL('write.mjs', FOLDER), join(wallet, 'write.mjs'));
  const modules = fileURLToPath(new URL('node_modules', import.meta.url));
  await symlink(modules, join(wallet, 'node_modules'));
});
after(async () => {
  await endAll(portcullis, node);
  await rm(wallet, { recursive: true, force: true });
});

test('the script of the page signs, submits and reads the receipt', async () => {
  const { gateway, relay, dir } = portcullis;
  const script = new Child('node', [join(wallet, 'write.mjs')],
    { GATEWAY: gateway, RELAY: relay, STATE: dir });
  assert.equal(await script.ended, 0, script.output);
  const lines = script.output.trim().split('\n');
  assert.deepEqual(lines.map((line) => line.replace(/0x[0-9a-f]+$/, 'HASH')), [
    'faucet: SUCCEEDED HASH',
    'deploy: SUCCEEDED HASH',
    'approve: SUCCEEDED HASH',
    'transfer: refused, entrypoint_not_allowed',
  ], script.output);
  // what the relay said and logged is searched for secrets at the end
  assert.equal((await portcullis.post('/require-v2', {})).status, 200);
  assert.ok(!script.output.includes(portcullis.token), 'the token stays in the backend');
});

test('the page says how many lines the script has', async () => {
  const page = await readFile(new URL('README.md', FOLDER), 'utf8');
  const [, promised] = page.match(/in (\d+) lines/);
  const script = await readFile(new URL('write.mjs', FOLDER), 'utf8');
  assert.ok(script.split('\n').length <= Number(promised), `${promised} lines`);
});
