// Two relays write with the same keys on one PostgreSQL; then one of them is killed.
import assert from 'node:assert/strict';
import { approval, drip, mint, mixed, usership } from './lib/operations.mjs';
import { startPostgres } from './lib/processes.mjs';
import { once, tally, totals } from './lib/truth.mjs';
import { World } from './lib/world.mjs';

const OPERATIONS = 100;
const FEWER = 40;
const USERS = 3;
/** Transactions that a user signs in one batch. */
const TALK = 20;
/** How often a relay starts while another is busy; each start settles unfinished writes once. */
const STARTS = 3;
/** Shorter than the timeout for the other relay's lease. */
const STANDSTILL_MS = 2_000;
/** How one of two concurrent identical requests may be answered. */
const MEANWHILE = ['in_progress', 'faucet_cooldown'];

const below = (end) => Math.floor(Math.random() * end);

/** A user's transactions, one after the other, while `go()` returns true. */
async function chatter(world, user, relay, go) {
  const said = { operations: [], answers: [] };
  while (go() && said.answers.length < TALK) {
    const operation = approval(user, world);
    said.operations.push(operation);
    said.answers.push(await world.post(operation, relay));
    if (said.answers.at(-1).status !== 200) break;
  }
  return said;
}

/** Half of them to each relay, all at once. */
function spread(world, operations, relays) {
  return operations.map((one, at) => world.post(one, relays[at % relays.length]));
}

async function together(world, users) {
  const operations = mixed(OPERATIONS, users[0]);
  let busy = true;
  const talks = users.map((user, at) => chatter(world, user, world.relays[at % 2], () => busy));
  const answers = await Promise.all(spread(world, operations, world.relays));
  busy = false;
  const said = await Promise.all(talks);
  answers.forEach(({ status }, at) => assert.equal(status, 200, JSON.stringify(answers[at])));
  said.flatMap((one) => one.answers).forEach(({ status }) => assert.equal(status, 200));
  await once(
    world,
    [...operations, ...said.flatMap((one) => one.operations)],
    [...answers, ...said.flatMap((one) => one.answers)],
  );
}

/** The same operations to both at once: each is written once; the other response repeats it or
 * reports that it is in progress. */
async function both(world, user) {
  const operations = [1, 2, 3].flatMap(() => [mint(user), drip(), usership(user)]);
  const pending = operations.flatMap((one) => world.relays.map((relay) => world.post(one, relay)));
  const answers = await Promise.all(pending);
  for (const answer of answers) {
    const { status, reason } = answer;
    assert.ok([200, 202].includes(status) || MEANWHILE.includes(reason), JSON.stringify(answer));
  }
  const pairs = operations.map((_, at) => answers.slice(2 * at, 2 * at + 2));
  const better = pairs.map((pair) => pair.find(({ status }) => status === 200) ?? pair[0]);
  await once(world, operations, better);
}

/** One is killed at a random moment, and restarts while the other still writes. */
async function oneDies(world, users) {
  const [doomed] = world.relays;
  const operations = mixed(FEWER, users[0]);
  let busy = true;
  const talks = users.map((user, at) => chatter(world, user, world.relays[at % 2], () => busy));
  const moment = world.proxy.afterAdds(1 + below(FEWER / 2));
  const pending = spread(world, operations, world.relays);
  await moment;
  await world.kill(doomed);
  totals.kills += 1;
  await world.startRelay();
  const answers = await Promise.all(pending);
  busy = false;
  const said = await Promise.all(talks);
  operations.push(...said.flatMap((one) => one.operations));
  answers.push(...said.flatMap((one) => one.answers));
  const lost = answers.filter((answer) => answer.lost).length;
  const other = answers.filter((answer) => !answer.lost && answer.status !== 200);
  assert.deepEqual(other, [], 'every live relay answers');
  await once(world, operations, answers);
  return lost;
}

/** One hangs for a while, with its leases: the other waits for it. */
async function oneStops(world, users) {
  const operations = mixed(FEWER, users[0]);
  const moment = world.proxy.afterAdds(1 + below(FEWER / 2));
  const pending = spread(world, operations, world.relays);
  await moment;
  world.relays[0].pause();
  await new Promise((resolve) => setTimeout(resolve, STANDSTILL_MS));
  world.relays[0].resume();
  const answers = await Promise.all(pending);
  const other = answers.filter(({ status }) => status !== 200);
  await once(world, operations, answers);
  assert.deepEqual(other, [], 'both answer');
}

/** One starts and stops while users write through the other, which it must not disturb. */
async function comesAndGoes(world, users) {
  const [stays] = world.relays;
  await world.kill();
  const operations = [];
  const answers = [];
  let busy = true;
  const talks = users.map((user) => chatter(world, user, stays, () => busy));
  for (let start = 0; start < STARTS; start += 1) {
    const operation = mint(users[0]);
    const relay = await world.startRelay();
    operations.push(operation);
    answers.push(await world.post(operation, relay));
    await world.kill(relay);
    totals.kills += 1;
  }
  busy = false;
  for (const said of await Promise.all(talks)) {
    operations.push(...said.operations);
    answers.push(...said.answers);
  }
  const other = answers.filter(({ status }) => status !== 200);
  await once(world, operations, answers);
  assert.deepEqual(other, [], 'both answer');
  await world.startRelay();
}

/** A starting relay finishes a write that another one is still sending; then the original arrives.
 * */
async function overtaken(world, user) {
  const [first, second] = world.relays;
  const gate = world.proxy.holdBefore(/^starknet_add/);
  const operation = approval(user, world);
  const pending = world.post(operation, first);
  await gate.reached();
  gate.end();
  await world.kill(second);
  totals.kills += 1;
  await world.startRelay();
  await world.settled();
  gate.open();
  const answer = await pending;
  assert.ok([200, 504].includes(answer.status), JSON.stringify(answer));
  assert.equal(answer.hash, operation.hash);
  await once(world, [operation], [answer]);
}

export async function two(node, say, { rounds }) {
  const postgres = await startPostgres();
  const world = await World.on(node, { PORTCULLIS__STORE__URL: postgres.made });
  await world.startRelay();
  const users = [];
  while (users.length < USERS) users.push(await world.citizen());
  await world.startRelay();
  await together(world, users);
  say('two relays, one hundred operations and users at the same time: each happened once');
  await both(world, users[0]);
  say('the same operations to both at once: each happened once');
  await overtaken(world, users[0]);
  say('one began while a transaction of the other was on its way: it happened once');
  await oneStops(world, users);
  say('one stood still for a while: each happened once');
  await comesAndGoes(world, users);
  say('one came and went while users wrote through the other: each happened once');
  for (let round = 1; round <= Math.ceil(rounds / 5); round += 1) {
    const lost = await oneDies(world, users);
    say(`round ${round}, one was killed, ${lost} without an answer: each happened once`);
  }
  tally(await world.settled());
  await world.close();
  await postgres.kill();
}
