// The node dies, loses its chain, or hangs, in the middle of writes.
import assert from 'node:assert/strict';
import { Chain } from './lib/chain.mjs';
import { approval, drip, mint, usership } from './lib/operations.mjs';
import { startNode } from './lib/processes.mjs';
import { once, tally, totals } from './lib/truth.mjs';
import { World, eventually } from './lib/world.mjs';

const ADD = /^starknet_add/;
const four = (world, user) => [mint, drip, usership, approval].map((make) => make(user, world));

/** Four writes that have left the relay and not reached the node. */
async function held(world, user) {
  const gate = world.proxy.holdBefore(ADD, 4);
  const operations = four(world, user);
  const pending = operations.map((one) => world.post(one));
  await gate.reached();
  return { gate, operations, pending };
}

/** What was open in an earlier epoch of the chain stays as it was, and is not sent to the new one. */
async function forgotten(world, node, journal, old) {
  for (const { intent, hash, state } of old) {
    assert.equal(journal.intents.get(intent).state, state, `${hash} is out of force`);
    assert.ok(!(await world.chain.has(hash)), `${hash} is not on the new chain`);
  }
  const texts = (target) => world.proxy.adds.filter((add) => add.target === target);
  assert.deepEqual(texts(node.made), [], 'nothing was handed to the new chain');
}

/** An empty node replaces one that was killed with writes in flight. */
async function reborn(say, relayToo) {
  const first = await startNode();
  const world = await World.on(first);
  await world.startRelay();
  const { gate, operations, pending } = await held(world, await world.citizen());
  if (relayToo) await world.kill();
  await first.kill();
  totals.kills += relayToo ? 2 : 1;
  gate.drop();
  for (const { lost, status, reason, hash } of await Promise.all(pending)) {
    const unknown = status === 504 && reason === 'outcome_unknown' && hash;
    assert.ok(relayToo ? lost : unknown, `${status} ${reason} ${hash}`);
  }
  const old = (await world.journal()).open();
  assert.equal(old.length, 4, 'four writes have no end');

  const second = await startNode();
  world.turnTo(second);
  if (relayToo) await world.startRelayUnready();
  await eventually('the pins are gone', async () => (await world.get('/readyz')) === 503);
  for (const operation of operations) {
    const { status, reason } = await world.post(operation);
    assert.deepEqual([status, reason], [503, 'pins_unproven'], operation.path);
  }
  await world.prepareOn(second);
  await eventually('the pins are back', async () => (await world.get('/readyz')) === 200);
  await forgotten(world, second, await world.journal(), old);
  await newLife(world, operations);
  say(`the node forgot everything${relayToo ? ', the relay was killed, too' : ''}: not sent`);
  await world.close();
  await second.kill();
}

/** On the new chain everything works, starting from an empty state. */
async function newLife(world, [, oldDrip]) {
  const before = new Set((await world.journal()).intents.keys());
  const user = await world.citizen();
  const operations = [...four(world, user), oldDrip];
  const answers = await Promise.all(operations.map((one) => world.post(one)));
  answers.forEach(({ status }, at) => assert.equal(status, 200, operations[at].path));
  const ours = ({ intent }) => !before.has(intent);
  tally(await once(world, operations, answers, ours));
}

/** When a chain began. */
async function genesis(node) {
  const block_id = { block_number: 0 };
  const block = await new Chain(node.made).read('starknet_getBlockWithTxHashes', { block_id });
  return block.timestamp;
}

/** The same, so fast that the last proof of the pins would still be valid. */
async function rebornAtOnce(say) {
  const first = await startNode();
  const world = await World.on(first);
  const second = await startNode();
  const [one, other] = await Promise.all([first, second].map(genesis));
  assert.notEqual(one, other, 'two lives of the chain, begun at different times');
  await world.prepareOn(second);
  await world.startRelay();
  const operations = [drip(), drip()];
  const denial = world.proxy.cutAll(ADD);
  const answers = [await world.post(operations[0])];
  const old = (await world.journal()).open();
  assert.equal(old.length, 1, 'it was sent, and has no end');
  world.turnTo(second);
  await first.kill();
  totals.kills += 1;
  denial.end();
  answers.push(await world.post(operations[1]));
  await eventually('the pins are proven anew', async () => {
    const { status } = await world.post(drip());
    return status === 200 && (await world.journal()).all().at(-1).epoch !== old[0].epoch;
  });
  assert.ok(!(await world.chain.has(old[0].hash)), 'what the old chain was sent is not on the new');
  await once(world, operations, answers, ({ intent }) => intent !== old[0].intent);
  say(`the chain began anew between two writes: each happened once`);
  await world.close();
  await second.kill();
}

/** The node hangs for longer than the relay's timeout, and then resumes. */
async function frozen(say) {
  const node = await startNode();
  const world = await World.on(node, { PORTCULLIS__NODE__TIMEOUT: '3s' });
  await world.startRelay();
  const { gate, operations, pending } = await held(world, await world.citizen());
  node.pause();
  gate.open();
  const answers = await Promise.all(pending);
  for (const { status, reason, hash } of answers) {
    assert.deepEqual([status, reason], [504, 'outcome_unknown']);
    assert.match(hash, /^0x/, 'the answer contains the hash');
  }
  node.resume();
  const journal = await once(world, operations, answers);
  const succeeded = new Set(journal.done().map(({ hash }) => hash));
  answers.forEach(({ hash }) => assert.ok(succeeded.has(hash), `${hash} is what happened`));
  tally(journal);
  say('the node stood still: the outcome is unknown, and then what was sent, once');
  await world.close();
  await node.kill();
}

/** Four writes held at a point, then `breaks`, then their responses. */
async function broken(world, user, gate, breaks) {
  const operations = four(world, user);
  const pending = operations.map((one) => world.post(one));
  await gate.reached();
  await breaks();
  gate.drop();
  return { operations, answers: await Promise.all(pending) };
}

/** Every hash in a response belongs to a transaction that succeeded. */
async function holds(world, { operations, answers }) {
  const journal = await once(world, operations, answers);
  const succeeded = new Set(journal.done().map(({ hash }) => hash));
  for (const { hash } of answers) if (hash) assert.ok(succeeded.has(hash), `${hash} happened`);
}

/** A connection is cut: the relay tries another one, or reports an unknown outcome. */
async function cut(world, user, gate) {
  const outcome = await broken(world, user, gate, () => {});
  for (const { status, hash } of outcome.answers) {
    assert.ok(status === 200 || status === 504, `${status} after a cut`);
    assert.match(hash, /^0x/, 'the answer contains the hash');
  }
  await holds(world, outcome);
}

/** All connections are cut, and new ones refused for a while: only a write that the node never
 * received may be reported as failed. */
async function unreachable(world, user, gate) {
  const outcome = await broken(world, user, gate, () => world.proxy.refuse());
  const fresh = [mint(user), drip(), usership(user)];
  const answers = await Promise.all(fresh.map((one) => world.post(one)));
  for (const { status, hash } of answers) {
    assert.ok([502, 503].includes(status) && !hash, `${status} ${hash} without a node`);
  }
  await world.proxy.accept();
  const probe = mint(user);
  await eventually('the node is found again', async () => (await world.post(probe)).status === 200);
  outcome.operations.push(...fresh);
  outcome.answers.push(...answers);
  await holds(world, outcome);
}

/** The connection to the node breaks while both processes stay alive. */
const BREAKS = [
  { name: 'cut before the node had it', breaks: cut, hold: 'holdBefore' },
  { name: 'cut before the answer', breaks: cut, hold: 'holdAnswers' },
  { name: 'lost before the node had it', breaks: unreachable, hold: 'holdBefore' },
  { name: 'lost before the answer', breaks: unreachable, hold: 'holdAnswers' },
];

export async function connections(node, say) {
  const world = await World.on(node);
  await world.startRelay();
  const user = await world.citizen();
  for (const { name, breaks, hold } of BREAKS) {
    await breaks(world, user, world.proxy[hold](ADD, 4));
    say(`the connection was ${name}: each happened once`);
  }
  tally(await world.settled());
  await world.close();
}

export async function nodes(node, say) {
  await reborn(say, false);
  await reborn(say, true);
  await rebornAtOnce(say);
}

export async function standstill(node, say) {
  await frozen(say);
}
