// The relay is killed at exact points of five concurrent writes: one per signer, and users' own.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import {
  approval,
  deployment,
  drip,
  dripTo,
  mint,
  underKey,
  usership,
} from './lib/operations.mjs';
import { User } from './lib/stark.mjs';
import { once, tally, totals } from './lib/truth.mjs';
import { World, eventually } from './lib/world.mjs';

const ADD = /^starknet_add/;
const ESTIMATE = /^starknet_estimateFee$/;
const RECEIPT = /^starknet_getTransactionReceipt$/;
const SENT = Array(5).fill('sent');
const ACCEPTED = Array(5).fill('accepted');

/** Where the writes are when the relay dies, and what the journal holds of them then. Users' own
 * have no estimate. */
const POINTS = [
  { name: 'before anything is intended', at: 'before', method: ESTIMATE, held: 3, open: [] },
  { name: 'before the node has what was sent', at: 'before', method: ADD, held: 5, open: SENT },
  {
    name: 'after the send, and the node has it when the relay is back',
    at: 'before',
    method: ADD,
    held: 5,
    open: SENT,
    late: true,
  },
  // the background task may find the receipts of the two of users before the relay dies
  { name: 'between send and answer', at: 'after', method: ADD, held: 5, open: SENT, found: 2 },
  { name: 'before the receipt is read', at: 'before', method: RECEIPT, held: 5, open: ACCEPTED },
  { name: 'after the receipt was read', at: 'after', method: RECEIPT, held: 5, open: ACCEPTED },
];

/** The first `count` of five writes, every other one under a key. */
async function writes(count, world, user, at) {
  const newcomer = new User();
  await world.must(dripTo(newcomer));
  const makes = [
    () => mint(user),
    drip,
    () => usership(user),
    () => approval(user, world),
    () => deployment(newcomer),
  ];
  const made = makes.slice(0, count).map((make) => make());
  return made.map((one, index) => ((index + at) % 2 ? underKey(one) : one));
}

/** The states of the writes that the journal has no end of. */
async function openStates(world) {
  return (await world.journal()).open().map(({ state }) => state);
}

/** Whether the journal has these writes open at a point. */
function areOpen(point, states) {
  const found = point.open.length - states.length;
  return found >= 0 && found <= (point.found ?? 0)
    && isDeepStrictEqual(states, point.open.slice(found));
}

async function killedAt(world, user, point, number) {
  const { proxy } = world;
  const operations = await writes(point.held, world, user, number);
  const gate =
    point.at === 'before'
      ? proxy.holdBefore(point.method, point.held)
      : proxy.holdAnswers(point.method, point.held);
  const pending = operations.map((one) => world.post(one));
  await gate.reached();
  // the background task may ask for a receipt before the answer to the send is journaled
  await eventually(`the journal has what is open ${point.name}`, async () =>
    areOpen(point, await openStates(world)),
  );
  await world.kill();
  totals.kills += 1;
  if (point.late) gate.end();
  else gate.drop();
  const answers = await Promise.all(pending);
  const open = await openStates(world);
  assert.ok(areOpen(point, open), `the journal of a relay that was killed ${point.name}: ${open}`);
  await world.startRelay();
  if (point.late) {
    await world.settled();
    gate.open();
  }
  await once(world, operations, answers);
}

/** Killed as soon as the responses have arrived. */
async function killedAfterAnswers(world, user) {
  const operations = await writes(5, world, user, 0);
  const answers = await Promise.all(operations.map((one) => world.post(one)));
  await world.kill();
  totals.kills += 1;
  answers.forEach(({ status }) => assert.equal(status, 200));
  await world.startRelay();
  await once(world, operations, answers);
}

export async function points(node, say) {
  const world = await World.on(node);
  await world.startRelay();
  const user = await world.citizen();
  for (const [number, point] of POINTS.entries()) {
    await killedAt(world, user, point, number);
    say(`killed ${point.name}: each happened once`);
  }
  await killedAfterAnswers(world, user);
  say('killed right after the answers: each happened once');
  tally(await world.settled());
  await world.close();
}
