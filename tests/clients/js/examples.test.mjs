// The examples of the documents: each fits its schema, and each request works at a network of `dev`,
// in the order of a user's life. Answers fit the schemas that the documents have for them.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import { Account, CallData, RpcProvider, cairo, ec, hash } from 'starknet';
import { follow } from './generated/reasons.mjs';
import { Node, Portcullis, endAll } from './relay_world.mjs';

const RECOVERY_DELAY = 3600;
/** The keys of the relay's examples. */
const USER = '0xda1';
const NEXT = '0xda2';

let node;
let portcullis;
const documents = {};
const ajv = new Ajv({ strict: false, validateFormats: false });

before(async () => {
  node = await Node.start();
  portcullis = await Portcullis.start(node);
  for (const name of ['gateway', 'relay', 'sidecar', 'admin']) {
    const document = await fetch(`${portcullis.admin}/docs/openapi/${name}.json`);
    documents[name] = await document.json();
    ajv.addSchema(documents[name], name);
  }
});
after(() => endAll(portcullis, node));

const escaped = (name) => `${name}`.replaceAll('~', '~0').replaceAll('/', '~1');

/** Fails unless a value fits the schema at this pointer of a document. */
function fits(surface, pointer, value) {
  const uri = pointer.split('/').map(encodeURIComponent).join('/');
  const judge = ajv.getSchema(`${surface}#${uri}`);
  assert.ok(judge(value), `${surface}#${pointer}: ${ajv.errorsText(judge.errors)}`);
}

/** Every example below a part of a document, with the pointer of its schema. */
function examplesOf(part, pointer = '') {
  if (part === null || typeof part !== 'object') return [];
  const at = /^\/components\/schemas\/[^/]+$/.test(pointer) ? pointer : `${pointer}/schema`;
  const named = Object.values(part.examples ?? {}).map((one) => one.value);
  const own = part.example === undefined ? named : [part.example, ...named];
  const has = at === pointer || 'schema' in part;
  const below = Object.entries(part).filter(([name]) => !/^examples?$/.test(name))
    .flatMap(([name, member]) => examplesOf(member, `${pointer}/${escaped(name)}`));
  return [...(has ? own.map((value) => ({ pointer: at, value })) : []), ...below];
}

test('each example fits its schema', () => {
  for (const [surface, document] of Object.entries(documents)) {
    const examples = examplesOf(document);
    examples.forEach(({ pointer, value }) => fits(surface, pointer, value));
    assert.ok(examples.length > 0, surface);
  }
});

/** The requests of a document's examples, by path and by the example's name. */
function requestsOf(surface) {
  const requests = new Map();
  for (const [path, operations] of Object.entries(documents[surface].paths)) {
    const content = operations.post?.requestBody.content['application/json'];
    if (content?.example) requests.set(path, content.example);
    for (const [name, one] of Object.entries(content?.examples ?? {})) {
      requests.set(`${path} ${name}`, one.value);
    }
  }
  return requests;
}

/** Sends a request, and judges status and body of the answer by the document. */
async function ask(surface, path, init, status = 200) {
  const origin = portcullis[surface].replace(/\/rpc$/, '');
  const answer = await fetch(origin + path, init);
  const text = await answer.text();
  assert.equal(answer.status, status, `${path}: ${text}`);
  const [plain] = path.split('?');
  const method = init.method.toLowerCase();
  const { responses } = documents[surface].paths[plain][method];
  const [, name] = responses[status].$ref?.match(/([^/]+)$/) ?? [];
  const at = name ? `/components/responses/${name}`
    : `/paths/${escaped(plain)}/${method}/responses/${status}`;
  const [type] = answer.headers.get('content-type').split(';');
  const { content } = follow(documents[surface], responses[status]);
  assert.ok(type in content, `${path}: ${type}`);
  if (type === 'application/json') {
    fits(surface, `${at}/content/${escaped(type)}/schema`, JSON.parse(text));
    return JSON.parse(text);
  }
  return text;
}

const post = (surface, path, body, headers = {}, status = 200) => ask(surface, path, {
  method: 'POST',
  headers: { 'content-type': 'application/json', ...headers },
  body: typeof body === 'string' ? body : JSON.stringify(body),
}, status);

/** The account of a key of the examples. */
function accountOf(key, provider) {
  const publicKey = ec.starkCurve.getStarkKey(key);
  const classHash = portcullis.pins.account_class;
  const address = hash.calculateContractAddressFromHash(publicKey, classHash, [publicKey], 0);
  return new Account({ provider, address, signer: key, cairoVersion: '1' });
}

/** The example of an approval, for the staking pool of this network and signed anew. */
async function approval(example) {
  const given = example.params.invoke_transaction;
  const { resource_bounds: bounds, calldata: [, token, , , , amount] } = given;
  let signed;
  const baseFetch = (url, init) => {
    const request = JSON.parse(init.body);
    if (!request.method.startsWith('starknet_add')) return fetch(url, init);
    signed = request.params.invoke_transaction;
    return Response.json({ jsonrpc: '2.0', id: request.id, result: { transaction_hash: '0x0' } });
  };
  const account = accountOf(USER, new RpcProvider({ nodeUrl: portcullis.gateway, baseFetch }));
  const calldata = CallData.compile([portcullis.pins.staking, cairo.uint256(amount)]);
  const resourceBounds = Object.fromEntries(Object.entries(bounds).map(([gas, bound]) => [gas, {
    max_amount: BigInt(bound.max_amount), max_price_per_unit: BigInt(bound.max_price_per_unit),
  }]));
  await account.execute([{ contractAddress: token, entrypoint: 'approve', calldata }],
    { tip: 0n, nonce: given.nonce, resourceBounds });
  const [mine, theirs] = [signed, given].map((one) => ({
    ...one, signature: [], calldata: one.calldata.with(4, ''),
  }));
  assert.deepEqual(mine, theirs, 'nothing else differs');
  return { ...example, params: { invoke_transaction: signed } };
}

/** Gives an account STRK and deploys it, past the relay. */
async function appears(key) {
  const provider = new RpcProvider({ nodeUrl: node.url });
  const account = accountOf(key, provider);
  await node.ask('devnet_mint', { address: account.address, amount: 1e19, unit: 'FRI' });
  const publicKey = ec.starkCurve.getStarkKey(key);
  const classHash = portcullis.pins.account_class;
  const sent = await account.deployAccount({
    classHash, constructorCalldata: [publicKey], addressSalt: publicKey,
  }, { tip: 0n });
  await provider.waitForTransaction(sent.transaction_hash, { retryInterval: 50 });
}

test('the requests of the relay work in order', async () => {
  const requests = requestsOf('relay');
  const headers = { authorization: `Bearer ${portcullis.token}` };
  const works = async (name, changed = (body) => body) => {
    const body = await changed(requests.get(name));
    requests.delete(name);
    const [path] = name.split(' ');
    return post('relay', path, body, headers);
  };
  await works('/faucet-drip');
  await works('/rpc deployment');
  await works('/rpc invoke', approval);
  await works('/register');
  await works('/verification-attest');
  await works('/mint-card');
  await works('/submit-usership');
  await works('/verification-revoke');
  const proposal = requests.get('/recovery-propose');
  await works('/recovery-propose');
  await works('/recovery-cancel');
  await post('relay', '/recovery-propose', proposal, { ...headers, 'idempotency-key': 'again' });
  await appears(NEXT);
  await node.later(RECOVERY_DELAY);
  const { account } = await works('/recovery-execute');
  assert.equal(account, proposal.new_account);
  await works('/require-v2');
  assert.deepEqual([...requests.keys()], [], 'no other example');
});

test('the requests of the gateway are answered', async () => {
  for (const [name, body] of requestsOf('gateway')) {
    const answer = await post('gateway', '/rpc', body);
    assert.ok('result' in answer, `${name}: ${JSON.stringify(answer)}`);
  }
});

const HOUR = 3_600_000;

test('the events of the sidecar are applied', async () => {
  const read = async (name) => (await readFile(join(portcullis.dir, name), 'utf8')).trim();
  const authorization = `Bearer ${await read('user.session')}`;
  const requests = requestsOf('sidecar');
  const [session, webhook] = requests.keys();
  const opened = await post('sidecar', session, requests.get(session), { authorization }, 201);
  // the example's subject is nobody here, and its hours pass
  const { occurred_at: occurred, ...event } = requests.get(webhook);
  const ago = Date.now() - HOUR - Date.parse(occurred);
  const moved = (time) => new Date(Date.parse(time) + ago).toISOString();
  const body = JSON.stringify({
    ...event, subject_ref: opened.subject_ref, occurred_at: moved(occurred),
    verified_at: moved(event.verified_at),
  });
  const secret = await read('webhook.secret');
  const signature = createHmac('sha256', secret).update(body).digest('hex');
  const headers = { 'x-service-verifier-signature': signature };
  assert.equal((await post('sidecar', webhook, body, headers)).status, 'applied');
  assert.equal(requests.size, 2, 'no other example');
});

test('the parameters of the sidecar are accepted', async () => {
  const example = (name) => documents.sidecar.components.parameters[name].example;
  const query = (members) => new URLSearchParams(members);
  const get = (path) => ask('sidecar', path, { method: 'GET' });
  const feed = ['feed', example('Feed')];
  const labels = example('Labels').map((label) => ['labels', label]);
  const skeleton = '/functions/getFeedSkeleton';
  assert.ok((await get(`${skeleton}?${query([feed])}`)).feed.length > 0);
  await get(`${skeleton}?${query([feed, ['set', example('Set')], ...labels])}`);
  await get(`/functions/podcast-rss-feed?${query({ did: example('Did'), handle: example('Handle') })}`);
});
