// Clients that generators make of the served documents: they compile, they know each reason of each
// operation, and a user's whole life goes over them.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { copyFile, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { createClient } from '@hey-api/openapi-ts';
import { parseOpenRPCDocument } from '@open-rpc/schema-utils-js';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import openapiTS, { astToString } from 'openapi-typescript';
import { errorsOf } from './generated/reasons.mjs';
import { User } from './relay_wallet.mjs';
import { Node, Portcullis, endAll } from './relay_world.mjs';

const run = promisify(execFile);
const MODULES = fileURLToPath(new URL('node_modules', import.meta.url));
const SURFACES = ['gateway', 'relay', 'sidecar'];
const PROGRAMS = new URL('../../../conf/clients/', import.meta.url);
const RECOVERY_DELAY = 3600;
const COMPILER = {
  strict: true, target: 'es2022', module: 'nodenext', types: ['node'], skipLibCheck: true,
  lib: ['es2022', 'dom', 'dom.iterable'],
};
/** The reason in the body of an error, and the claim that it is one of some words. */
const CHECKS = `
type Holds<T extends true> = T;
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type Reason<E> = E extends { error: { data: { reason: infer R } } } ? R
  : E extends { error: { reason: infer R } } ? R
  : E extends { error: infer R extends string } ? R : never;
`;

let node;
let portcullis;
let folder;
const documents = {};

before(async () => {
  node = await Node.start();
  portcullis = await Portcullis.start(node);
  folder = await mkdtemp(join(tmpdir(), 'portcullis-generated-'));
  await symlink(MODULES, join(folder, 'node_modules'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  for (const name of [...SURFACES, 'admin']) {
    documents[name] = await served(`/docs/openapi/${name}.json`);
  }
});
after(async () => {
  await endAll(portcullis, node);
  await rm(folder, { recursive: true, force: true });
});

async function served(path) {
  return (await fetch(portcullis.admin + path)).json();
}

/** Writes a file into the folder of the generated clients. */
const write = (name, text) => writeFile(join(folder, name), text);

/** Fails with what the compiler says. */
async function compile(...files) {
  await write('tsconfig.json', JSON.stringify({ compilerOptions: COMPILER, files }));
  const { stdout } = await run('node', [join(MODULES, 'typescript/bin/tsc'), '-p', folder])
    .catch((error) => error);
  assert.equal(stdout, '');
}

/** One line for each error response: its type has these reasons and no other. */
function checks(imports, typeOf) {
  const lines = SURFACES.flatMap((surface) => errorsOf(documents[surface]).map((error) => {
    const type = `Reason<${typeOf(surface, error)}>`;
    const reasons = error.reasons.map((reason) => `'${reason}'`).join(' | ');
    return `Holds<Same<${type}, ${reasons}>>,`;
  }));
  assert.ok(lines.length > 200, `${lines.length} responses name reasons`);
  return [imports, CHECKS, 'export type Checks = [', ...lines, '];'].join('\n');
}

test('the linter finds no error in a document', async () => {
  const config = await createConfig({ extends: ['recommended'] });
  for (const [name, document] of Object.entries(documents)) {
    const found = await lintFromString({ source: JSON.stringify(document), config });
    const errors = found.filter((one) => one.severity === 'error');
    assert.deepEqual(errors.map((one) => one.message), [], name);
  }
});

test('the reference implementation of OpenRPC reads the methods', async () => {
  const parsed = await parseOpenRPCDocument(await served('/docs/openrpc.json'));
  assert.equal(parsed.methods.length, 13);
});

test('types by openapi-typescript know each reason', async () => {
  for (const name of SURFACES) {
    await write(`${name}.ts`, astToString(await openapiTS(structuredClone(documents[name]))));
  }
  const imports = SURFACES.map((name) => `import type { paths as ${name} } from './${name}.js';`);
  await write('types_reasons.ts', checks(imports.join('\n'), (surface, { path, method, status }) =>
    `${surface}['${path}']['${method}']['responses'][${status}]['content']['application/json']`));
  await copyFile(new URL('generated/with_types.ts', import.meta.url), join(folder, 'with_types.ts'));
  await compile('types_reasons.ts', 'with_types.ts');
});

test('a client by openapi-ts knows each reason', async () => {
  for (const name of SURFACES) {
    await createClient({
      input: structuredClone(documents[name]),
      output: { path: join(folder, 'sdk', name), importFileExtension: '.js' },
      plugins: ['@hey-api/typescript', '@hey-api/sdk', '@hey-api/client-fetch'],
      logs: { level: 'silent' },
    });
  }
  const imports = SURFACES.map((name) => `import type * as ${name} from './sdk/${name}/index.js';`);
  const pascal = (name) => name[0].toUpperCase() + name.slice(1);
  await write('sdk_reasons.ts', checks(imports.join('\n'), (surface, { operationId, status }) =>
    `${surface}.${pascal(operationId)}Errors[${status}]`));
  await copyFile(new URL('generated/with_sdk.ts', import.meta.url), join(folder, 'with_sdk.ts'));
  await compile('sdk_reasons.ts', 'with_sdk.ts');
});

/** The body of a call that must succeed. */
async function done(sent, status = 200) {
  const { data, error, response } = await sent;
  assert.equal(response.status, status, JSON.stringify(error));
  return data;
}

for (const name of ['with_types', 'with_sdk']) {
  test(`a user lives over the client ${name}`, async () => {
    const { calls } = await import(pathToFileURL(join(folder, `${name}.js`)));
    const { relay, sidecar, token } = portcullis;
    const gateway = portcullis.gateway.replace(/\/rpc$/, '');
    const client = calls({ gateway, relay, sidecar, token });
    await plays(client);
    await proves(client);
  });
}

/** From the first drip to another account. */
async function plays(client) {
  const [user, next] = [new User(portcullis), new User(portcullis)];
  const { identity } = user;
  const deploys = async (one) => {
    const sent = await done(client.submit(JSON.parse(await one.signedDeployment())));
    await one.view.succeeded(sent.result.transaction_hash);
  };
  await done(client.drip(user.asRecipient()));
  await deploys(user);
  await done(client.register(user.asRegistered()));
  const card = { recipient: user.address, card_id: `${BigInt(identity) >> 8n}` };
  const early = await client.mint(card, `mint-${identity}`);
  assert.deepEqual([early.response.status, early.error.error.reason], [409, 'not_verified']);
  await done(client.attest(user.attestation()));
  const minted = await done(client.mint(card, `mint-${identity}`));
  assert.equal((await done(client.mint(card, `mint-${identity}`))).transaction_hash,
    minted.transaction_hash, 'the key has its answer');

  await done(client.propose(next.asRecovered(identity)));
  await done(client.drip({ ...next.asRecipient(), identity }));
  await deploys(next);
  await node.later(RECOVERY_DELAY);
  const recovered = await done(client.execute({ identity }));
  assert.equal(BigInt(recovered.account), BigInt(next.address));

  const request = { jsonrpc: '2.0', id: 1, method: 'starknet_getNonce' };
  const params = { block_id: 'pre_confirmed', contract_address: next.address };
  assert.equal((await done(client.read({ ...request, params }))).result, '0x1');
  const wrong = await client.read({ ...request, params: {} });
  assert.equal(wrong.error.error.data.reason, 'invalid_params');
}

/** A page of a feed, and a proof of age. */
async function proves(client) {
  const read = async (name) => (await readFile(join(portcullis.dir, name), 'utf8')).trim();
  const { feeds } = await done(client.feeds());
  const { uri } = feeds.find((one) => one.uri.endsWith('/fresh-pulls'));
  assert.ok((await done(client.feed(uri))).feed.length > 0, uri);
  const none = await client.feed(uri.replace('fresh-pulls', 'stale-pulls'));
  assert.deepEqual([none.response.status, none.error.error], [400, 'UnknownFeed']);

  const session = await read('user.session');
  const { subject_ref: subject } = await done(client.openSession(session), 201);
  const now = new Date().toISOString();
  const event = {
    event_id: `evt-${subject}`, subject_ref: subject, status: 'verified', age_band: '18_plus',
    verified_at: now, expires_at: null, occurred_at: now,
  };
  const secret = await read('webhook.secret');
  const signature = createHmac('sha256', secret).update(JSON.stringify(event)).digest('hex');
  assert.equal((await done(client.report(event, signature))).state, 'verified');
  assert.equal((await client.report(event, '0'.repeat(64))).error.error, 'InvalidSignature');
  assert.equal((await done(client.ageStatus(session))).status, 'verified');
}

/** How each program of conf/clients is run; Go is not needed. */
async function programs() {
  const page = (name) => fileURLToPath(new URL(name, PROGRAMS));
  await copyFile(page('drip.ts'), join(folder, 'drip.ts'));
  await compile('drip.ts');
  const all = {
    'drip.ts': ['node', join(folder, 'drip.js')],
    'drip.py': ['python3', '-B', page('drip.py')],
    'drip.rs': [join(dirname(process.env.PORTCULLIS), 'examples/drip')],
  };
  const go = await run('go', ['version']).catch(() => undefined);
  return go ? { ...all, 'drip.go': ['go', 'run', page('drip.go')] } : all;
}

test('the programs of the page pay one drip', async () => {
  const env = {
    ...process.env, RELAY: portcullis.relay, TOKEN_FILE: join(portcullis.dir, 'relay.token'),
  };
  for (const [name, [command, ...args]] of Object.entries(await programs())) {
    const user = new User(portcullis);
    const drip = async (recipient) => {
      const words = [...args, user.identity, recipient, user.publicKey];
      return (await run(command, words, { env })).stdout.trim();
    };
    const first = await drip(user.address);
    assert.match(first, /^200 0x[0-9a-f]+$/, name);
    assert.equal(await drip(user.address), first, `${name}: the key has its answer`);
    assert.equal(await drip('0x1'), '409 idempotency_conflict', name);
    user.identity = `${user.identity}0`.slice(0, 60);
    assert.equal(await drip('0x1'), '403 address_mismatch', name);
  }
});
