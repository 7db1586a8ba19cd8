// Repeated requests take effect once: under an idempotency key, concurrently, or after a restart,
// and also when they fail.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ec } from 'starknet';
import { Backend } from './relay_backend.mjs';
import { User, calls, fresh } from './relay_wallet.mjs';
import { Node, Portcullis, Way, endAll } from './relay_world.mjs';

const { n: ORDER } = ec.starkCurve.CURVE;

let node;
let way;
let portcullis;
let backend;
let view;
let call;
let alice;

before(async () => {
  node = await Node.start();
  way = await Way.to(node);
  portcullis = await Portcullis.start(node, { way });
  backend = new Backend(portcullis, way);
  view = backend.view;
  call = calls(portcullis.pins);
  alice = await new User(portcullis).verified();
});
after(() => endAll(portcullis, way, node));

const key = (name) => ({ 'idempotency-key': name });
const mint = (id) => ({ recipient: alice.address, card_id: `${id}` });
const reversed = (body) => Object.fromEntries(Object.entries(body).reverse());

/** How many transactions of the owner, and writes to the node, `act` causes. */
async function counted(act) {
  const { owner } = portcullis.pins;
  const [nonce, writes] = [await view.nonce(owner), way.writes.length];
  const came = await act();
  return {
    came,
    nonces: Number((await view.nonce(owner)) - nonce),
    writes: way.writes.length - writes,
  };
}

test('a key replays the first response, also after a restart', async () => {
  const first = await portcullis.post('/mint-card', mint(1), key('mint-1'));
  assert.equal(first.status, 200, first.text);
  await view.succeeded(first.json.transaction_hash);
  const again = () => portcullis.post('/mint-card', reversed(mint(1)), key('mint-1'));
  for (let round = 0; round < 2; round += 1) {
    const { status, text } = await backend.nothingSent(again);
    assert.deepEqual([status, text], [200, first.text]);
    await portcullis.restart();
  }
  // Without a key the chain is checked: there is nothing to do.
  await backend.already('/mint-card', mint(1));
});

test('a used key is refused for any other request', async () => {
  const conflict = [409, 'idempotency_conflict', key('mint-1')];
  await backend.refused('/mint-card', mint(2), ...conflict);
  await backend.refused('/recovery-execute', { identity: alice.identity }, ...conflict);
  await backend.written('/mint-card', mint(2), key('mint-2'));
});

test('a key stores a response that reports nothing to do', async () => {
  const post = () => portcullis.post('/mint-card', mint(2), key('nothing'));
  const first = await backend.nothingSent(post);
  assert.equal(first.json.idempotent, true, first.text);
  await alice.does(call.burn(2));
  assert.equal((await backend.nothingSent(post)).text, first.text);
});

const ROUNDS = [
  ['two operations', 2, () => ({})],
  ['twenty operations', 20, () => ({})],
  ['ten operations under one key', 10, () => key('at-once')],
  ['ten operations under keys of their own', 10, (at) => key(`at-once-${at}`)],
];
ROUNDS.forEach(([what, count, headers], round) => {
  test(`${what}, identical and concurrent, are one transaction`, async () => {
    const send = (_, at) => portcullis.post('/mint-card', mint(10 + round), headers(at));
    const { came, nonces, writes } = await counted(() =>
      Promise.all(Array.from({ length: count }, send)),
    );
    assert.deepEqual([nonces, writes], [1, 1]);
    const [first] = came;
    await view.succeeded(first.json.transaction_hash);
    for (const { status, json, text } of came) {
      assert.equal(status, 200, text);
      assert.equal(json.transaction_hash, first.json.transaction_hash);
    }
  });
});

/** Concurrent pairs of which only one can succeed; how the other is refused. */
const RIVALS = [
  ['two identities for one account', '/register', 'account_taken', async () => {
    const user = await new User(portcullis).deployed();
    return [user.asRegistered(), { ...user.asRegistered(), identity: fresh() }];
  }],
  ['two accounts for one identity', '/register', 'identity_taken', async () => {
    const users = [await new User(portcullis).deployed(), await new User(portcullis).deployed()];
    const identity = fresh();
    return users.map((user) => ({ ...user.asRegistered(), identity }));
  }],
  ['two identities for one recipient of the faucet', '/faucet-drip', 'account_taken', () => {
    const drip = new User(portcullis).asRecipient();
    return [drip, { ...drip, identity: fresh() }];
  }],
  ['two recipients of the faucet for one identity', '/faucet-drip', 'identity_taken', () => {
    const identity = fresh();
    return [1, 2].map(() => ({ ...new User(portcullis).asRecipient(), identity }));
  }],
  ['two owners for one card', '/mint-card', 'already_minted', async () => {
    const bob = await new User(portcullis).verified();
    return [alice, bob].map(({ address: recipient }) => ({ recipient, card_id: '30' }));
  }],
  ['two meanings of one attestation id', '/verification-attest', 'attestation_replayed', () => {
    const attestation = alice.attestation();
    return [attestation, { ...attestation, assurance_level: 3 }];
  }],
  ['two results of one epoch', '/submit-usership', 'usership_conflict', () => {
    const result = { account: alice.address, epoch: 1, units: '1', evidence: '0x1' };
    return [result, { ...result, units: '2' }];
  }],
  ['two requests under one key', '/mint-card', 'idempotency_conflict', () => [mint(31), mint(32)],
    key('rivals')],
];
for (const [rivals, path, reason, bodies, headers] of RIVALS) {
  test(`of ${rivals} one succeeds: the other is ${reason}`, async () => {
    const [one, other] = await bodies();
    const writes = way.writes.length;
    const answers = await Promise.all(
      [one, other].map((body) => portcullis.post(path, body, headers)),
    );
    const [won, lost] = answers.toSorted((a, b) => a.status - b.status);
    assert.deepEqual([won.status, lost.status], [200, 409], `${won.text} ${lost.text}`);
    assert.equal(lost.json.error.reason, reason, lost.text);
    await view.succeeded(won.json.transaction_hash);
    assert.equal(way.writes.length, writes + 1, 'only one of them reached the node');
  });
}

test('fifty concurrent copies of a signed transaction are sent once', async () => {
  const request = await alice.signed([call.approve('staking', 50n)]);
  const nonce = await view.nonce(alice.address);
  const { came, writes } = await counted(() =>
    Promise.all(Array.from({ length: 50 }, () => portcullis.post('/rpc', request))),
  );
  assert.equal(writes, 1);
  const [hash, ...others] = new Set(came.map(({ json }) => json.result?.transaction_hash));
  assert.deepEqual(others, [], 'all answers carry the hash');
  await view.succeeded(hash);
  assert.equal(await view.timesOnChain(hash), 1);
  assert.equal(await view.nonce(alice.address), nonce + 1n);
});

test('of two concurrent transactions with one nonce one is sent', async () => {
  const nonce = await view.nonce(alice.address);
  const sign = (amount) => alice.signed([call.approve('staking', amount)], { nonce });
  const requests = [await sign(1n), await sign(2n)];
  const answers = await Promise.all(requests.map((request) => portcullis.post('/rpc', request)));
  const [won, lost] = answers.toSorted((a, b) => a.status - b.status);
  assert.deepEqual([won.status, lost.status], [200, 409], `${won.text} ${lost.text}`);
  assert.equal(lost.json.error.data.reason, 'nonce_conflict', lost.text);
  await view.succeeded(won.json.result.transaction_hash);
  assert.equal(await view.nonce(alice.address), nonce + 1n);
});

test('a repeated signed transaction is answered from the journal', async () => {
  const request = JSON.parse(await alice.signed([call.approve('staking', 51n)]));
  const first = await portcullis.post('/rpc', request);
  const { transaction_hash: hash } = first.json.result;
  await view.succeeded(hash);

  // (r, n - s) is an equally valid signature, and makes the same transaction.
  const variant = structuredClone(request);
  const { invoke_transaction: invoke } = variant.params;
  const [r, s] = invoke.signature;
  invoke.signature = [r, `0x${(ORDER - BigInt(s)).toString(16)}`];
  portcullis.signatures.add(invoke.signature[1]);

  const answers = async () => {
    for (const again of [request, variant, { ...request, id: 'another' }]) {
      const send = () => portcullis.post('/rpc', again);
      const { status, json, text } = await backend.nothingSent(send);
      assert.deepEqual([status, json.id], [200, again.id], text);
      assert.equal(json.result.transaction_hash, hash);
    }
  };
  await answers();
  await portcullis.restart();
  await answers();
  assert.equal(await view.timesOnChain(hash), 1);
});

test('a repeated deployment is answered from the journal, with its address', async () => {
  const user = new User(portcullis);
  await backend.written('/faucet-drip', user.asRecipient());
  const request = await user.signedDeployment();
  const first = await portcullis.post('/rpc', request);
  await view.succeeded(first.json.result.transaction_hash);
  const again = await backend.nothingSent(() => portcullis.post('/rpc', request));
  assert.equal(again.text, first.text);
  assert.equal(BigInt(again.json.result.contract_address), BigInt(user.address));
});

test('a revert in the block is reported, and replayed', async () => {
  const user = await new User(portcullis).verified();
  const revocation = { account: user.address, reason: 'meanwhile' };
  const body = { recipient: user.address, card_id: '99' };
  let revoked;
  way.before = async ({ params }) => {
    const [{ sender_address: sender }] = Object.values(params);
    if (revoked || BigInt(sender) !== BigInt(portcullis.pins.owner)) return;
    // The mint is signed and in flight: now the account is no longer verified.
    revoked = portcullis.post('/verification-revoke', revocation);
    await revoked;
  };
  const post = () => portcullis.post('/mint-card', body, key('reverts'));
  const { came: first, nonces } = await counted(post);
  way.before = undefined;
  assert.equal((await revoked).status, 200);
  assert.deepEqual([first.status, first.json.error.reason], [409, 'reverted'], first.text);
  assert.match(first.json.error.message, /NOT_VERIFIED/);
  assert.equal(nonces, 1);
  const { transaction_hash: hash } = first.json.error;
  assert.equal((await view.receipt(hash)).execution_status, 'REVERTED');
  assert.deepEqual(await view.of('card', 'minted_to', 99n, 0n), [0n]);

  await portcullis.restart();
  const again = await backend.nothingSent(post);
  assert.deepEqual([again.status, again.text], [409, first.text]);
  const entries = await portcullis.entries();
  const { intent } = entries.find((entry) => JSON.stringify(entry).includes(hash));
  const kinds = entries.filter((entry) => entry.intent === intent).map(({ kind }) => kind);
  assert.deepEqual(kinds, ['intended', 'sent', 'accepted', 'reverted']);
});

test('after all of this the journal is complete', async () => {
  assert.match(await portcullis.journal('verify'), /entries, all unchanged/);
});
