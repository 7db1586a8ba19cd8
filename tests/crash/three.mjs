// Three relays, two with wrong wall clocks, write with the same keys on one PostgreSQL: one is killed
// and PostgreSQL crashes during a burst, and one is cut off between a transaction and the
// node's answer. Then a PostgreSQL crashes for good, and its synchronous standby is promoted.
import assert from 'node:assert/strict';
import { approval, mint, mixed } from './lib/operations.mjs';
import { clockAhead, startCluster, startPostgres } from './lib/processes.mjs';
import { once, tally, totals } from './lib/truth.mjs';
import { World, eventually } from './lib/world.mjs';

const OPERATIONS = 60;
const ADD = /^starknet_add/;
/** What a relay may answer while PostgreSQL is away: nothing was sent, or it is not known. */
const WITHOUT_STORE = ['store_unavailable', 'outcome_unknown', 'in_progress', 'pins_unproven'];

const below = (end) => Math.floor(Math.random() * end);

/** One third of them to each relay, all at once. */
function spread(world, operations) {
  const { relays } = world;
  return operations.map((one, at) => world.post(one, relays[at % relays.length]));
}

/** One is killed, then PostgreSQL crashes, while all three write. */
async function burst(world, postgres, user) {
  const operations = mixed(OPERATIONS, user);
  const [doomed] = world.relays;
  const third = OPERATIONS / 3;
  const moments = [1 + below(third), third + below(third / 2)];
  const [first, second] = moments.map((count) => world.proxy.afterAdds(count));
  const pending = spread(world, operations);
  await first;
  await world.kill(doomed);
  totals.kills += 1;
  await second;
  await postgres.crash();
  totals.kills += 1;
  const answers = await Promise.all(pending);
  await world.startRelay();
  const other = answers.filter(
    ({ lost, status, reason }) =>
      !lost && ![200, 202].includes(status) && !WITHOUT_STORE.includes(reason),
  );
  assert.deepEqual(other, [], 'every live relay answers');
  await once(world, operations, answers);
  return answers.filter(({ status }) => status === 200).length;
}

/** A relay is cut off after it has sent: another settles the write, as the same transaction. */
async function cutOff(world, operation, where) {
  const [first, second] = world.relays;
  const gate =
    where === 'before' ? world.proxy.holdBefore(ADD) : world.proxy.holdAnswers(ADD);
  const pending = world.post(operation, first);
  await gate.reached();
  first.pause();
  gate.drop();
  let answer;
  await eventually('another relay has settled it', async () => {
    answer = await world.post(operation, second);
    return answer.status === 200 && !answer.reason;
  });
  first.resume();
  const late = await pending;
  assert.ok([200, 504].includes(late.status), JSON.stringify(late));
  assert.equal(late.hash, answer.hash, 'it is the same transaction');
  await once(world, [operation], [answer]);
}

async function relays(node, postgres) {
  const world = await World.on(node, { PORTCULLIS__STORE__URL: postgres.made });
  for (const seconds of [0, 60, -60]) await world.startRelay(await clockAhead(seconds));
  return { world, user: await world.citizen() };
}

export async function promoted(node, say) {
  const cluster = await startCluster();
  const { world, user } = await relays(node, cluster);
  const done = await burst(world, cluster, user);
  say(`one was killed and the standby promoted, ${done} answered: each happened once`);
  tally(await world.settled());
  await world.close();
  await cluster.kill();
}

export async function three(node, say, { rounds }) {
  const postgres = await startPostgres();
  const { world, user } = await relays(node, postgres);
  for (let round = 1; round <= Math.ceil(rounds / 5); round += 1) {
    const done = await burst(world, postgres, user);
    say(`round ${round}, one was killed and PostgreSQL crashed, ${done} answered: each happened once`);
  }
  await cutOff(world, approval(user, world), 'before');
  await cutOff(world, approval(user, world), 'after');
  // its account stays with the relay, whose connection to PostgreSQL is open
  await cutOff(world, mint(user), 'after');
  say('one was cut off between a transaction and its answer: another settled it, once');
  tally(await world.settled());
  await world.close();
  await postgres.kill();
}
