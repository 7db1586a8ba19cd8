// High concurrency, and a slow chain: no write is lost, no nonce is skipped, and the journal agrees
// with the chain. Measurements are printed, and are no pass criterion.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Backend } from './relay_backend.mjs';
import { User, calls } from './relay_wallet.mjs';
import { Node, Portcullis, Way, endAll, eventually } from './relay_world.mjs';

const COUNT = 100;

/** Operations per second, and latency percentiles in milliseconds. */
function figures(each, all) {
  const sorted = each.map(({ took }) => took).toSorted((a, b) => a - b);
  const percentile = (share) => sorted[Math.ceil(sorted.length * share) - 1].toFixed(0);
  const rate = (each.length / (all.took / 1000)).toFixed(1);
  return `${rate}/s, p50 ${percentile(0.5)} ms, p99 ${percentile(0.99)} ms`;
}

/** The result of `act`, and how long it took. */
async function timed(act) {
  const start = performance.now();
  const came = await act();
  return { came, took: performance.now() - start };
}

const times = (count, act) => Array.from({ length: count }, (_, at) => act(at));

/** The kinds of the journal's entries of each intent of an operation, in order. */
async function journaled(portcullis, operation) {
  const kinds = new Map();
  for (const entry of await portcullis.entries()) {
    if (entry.operation !== operation || entry.intent === null) continue;
    kinds.set(entry.intent, [...(kinds.get(entry.intent) ?? []), entry.kind]);
  }
  return [...kinds.values()];
}

/** The node's own rate for signed transactions, one after the other. */
async function direct(node, user) {
  const { approve } = calls(user.portcullis.pins);
  const next = Number(await user.view.nonce(user.address));
  const signed = [];
  for (const at of Array(COUNT).keys()) {
    signed.push(JSON.parse(await user.signed([approve('staking', at)], { nonce: next + at })));
  }
  const each = [];
  const all = await timed(async () => {
    for (const { method, params } of signed) each.push(await timed(() => node.ask(method, params)));
  });
  return figures(each, all);
}

/** Ends what a test started after that test, the latest first. */
function keeping(t) {
  const started = [];
  t.after(() => endAll(...started));
  return (one) => {
    started.unshift(one);
    return one;
  };
}

test('a hundred concurrent operations of one signer all succeed', async (t) => {
  const keep = keeping(t);
  const node = keep(await Node.start());
  const portcullis = keep(await Portcullis.start(node));
  const { view } = new Backend(portcullis);
  const alice = await new User(portcullis).verified();
  const { owner } = portcullis.pins;
  const nonce = await view.nonce(owner);

  const mint = (at) => ({ recipient: alice.address, card_id: `${1000 + at}` });
  const burst = await timed(() =>
    Promise.all(times(COUNT, (at) => timed(() => portcullis.post('/mint-card', mint(at))))),
  );
  const answers = burst.came.map(({ came }) => came);
  for (const { status, json, text } of answers) {
    assert.deepEqual([status, json.ok, json.idempotent], [200, true, false], text);
  }
  t.diagnostic(`relay, ${COUNT} mints at once: ${figures(burst.came, burst)}`);

  const hashes = answers.map(({ json }) => json.transaction_hash);
  assert.equal(new Set(hashes).size, COUNT, 'each has a transaction of its own');
  assert.equal(await view.nonce(owner), nonce + BigInt(COUNT), 'no nonce is left out');
  assert.equal(await view.number('card', 'balance_of', alice.address), BigInt(COUNT));
  const nonces = [];
  for (const hash of hashes) {
    await view.succeeded(hash);
    nonces.push(BigInt((await view.provider.getTransactionByHash(hash)).nonce));
  }
  const expected = times(COUNT, (at) => nonce + BigInt(at));
  assert.deepEqual(nonces.toSorted((a, b) => Number(a - b)), expected);

  const entries = JSON.stringify(await portcullis.entries());
  for (const hash of hashes) assert.ok(entries.includes(hash), `${hash} is not in the journal`);
  const kinds = await journaled(portcullis, 'mint-card');
  assert.deepEqual(kinds, Array(COUNT).fill(['intended', 'sent', 'accepted', 'succeeded']));
  assert.match(await portcullis.journal('verify'), /entries, all unchanged/);
  t.diagnostic(`the node, ${COUNT} approvals one by one: ${await direct(node, alice)}`);
});

test('a burst over all signers and users loses nothing', async (t) => {
  const keep = keeping(t);
  const node = keep(await Node.start());
  const portcullis = keep(await Portcullis.start(node));
  const { view } = new Backend(portcullis);
  const { approve } = calls(portcullis.pins);
  const users = times(5, () => new User(portcullis));
  await Promise.all(users.map((user) => user.verified()));
  const nonces = await view.signers();

  const card = (at, user) => ({ recipient: user.address, card_id: `${at}` });
  const result = { epoch: 1, units: '1', evidence: '0x1' };
  const answers = await Promise.all(
    users.flatMap((user, at) => [
      portcullis.post('/mint-card', card(at, user)),
      portcullis.post('/mint-card', card(100 + at, user)),
      portcullis.post('/submit-usership', { account: user.address, ...result }),
      portcullis.post('/faucet-drip', new User(portcullis).asRecipient()),
      user.execute([approve('staking', 1n)]),
    ]),
  );
  for (const answer of answers) {
    const hash = answer.transaction_hash ?? answer.json.transaction_hash;
    assert.ok(hash, answer.text);
    await view.succeeded(hash);
  }
  const spent = (await view.signers()).map((after, at) => Number(after - nonces[at]));
  assert.deepEqual(spent, [10, 5, 5]);
});

test('a write with a slow receipt is pending, then settled', async (t) => {
  const keep = keeping(t);
  const node = keep(await Node.start('--block-generation-on', 'demand'));
  const way = keep(await Way.to(node));
  // Until the chain is set up with its accounts, each write gets a block.
  way.after = () => node.createBlock();
  const env = { PORTCULLIS__RELAY__RECEIPT_TIMEOUT: '1s' };
  const portcullis = keep(await Portcullis.start(node, { way, prepareBy: way, env }));
  const { view } = new Backend(portcullis);
  const alice = await new User(portcullis).verified();
  way.after = undefined;

  const card = (id) => ({ recipient: alice.address, card_id: id });
  const keyed = { 'idempotency-key': 'waits' };
  const pending = async (id, headers) => {
    const { status, json, text } = await portcullis.post('/mint-card', card(id), headers);
    assert.deepEqual([status, json.ok, json.pending], [202, true, true], text);
    return json.transaction_hash;
  };
  const [first, second] = [await pending('5'), await pending('6', keyed)];
  assert.notEqual(first, second);
  const writes = way.writes.length;
  assert.deepEqual([await pending('5'), await pending('6', keyed)], [first, second]);
  assert.equal(way.writes.length, writes, 'one was sent again');
  const accepted = ['intended', 'sent', 'accepted'];
  assert.deepEqual(await journaled(portcullis, 'mint-card'), [accepted, accepted]);

  await node.createBlock();
  await eventually('the journal to say that both succeeded', async () => {
    const kinds = await journaled(portcullis, 'mint-card');
    return kinds.every((each) => each.at(-1) === 'succeeded');
  });
  for (const hash of [first, second]) await view.succeeded(hash);
  assert.equal(await view.number('card', 'balance_of', alice.address), 2n);
  const settled = await portcullis.post('/mint-card', card('6'), keyed);
  assert.deepEqual([settled.status, settled.json.transaction_hash], [200, second], settled.text);
  const plain = await portcullis.post('/mint-card', card('5'));
  assert.deepEqual([plain.status, plain.json.idempotent], [200, true], plain.text);
});
