// The relay is killed at random moments of a hundred concurrent operations, again and again, on one
// store and one chain.
import assert from 'node:assert/strict';
import { approval, mixed } from './lib/operations.mjs';
import { once, tally, totals } from './lib/truth.mjs';
import { World } from './lib/world.mjs';

const OPERATIONS = 100;
/** The relay is killed after at most this many transactions: each signer still has some to send. */
const LAST = 110;
/** From a transaction's send to the node until long after its response. */
const LATER_MS = 40;

const below = (end) => Math.floor(Math.random() * end);

/** A user signs one transaction after the other, until one gets no response. */
async function chatter(world, user, operations, answers) {
  for (;;) {
    const operation = approval(user, world);
    operations.push(operation);
    const answer = await world.post(operation);
    answers.push(answer);
    if (answer.status !== 200) return;
  }
}

/** A hundred concurrent operations and the user's own, until the relay is dead. */
async function burst(world, user) {
  const operations = mixed(OPERATIONS, user);
  const own = { operations: [], answers: [] };
  const adds = 1 + below(LAST);
  const later = below(LATER_MS);
  const moment = world.proxy.afterAdds(adds);
  const pending = operations.map((one) => world.post(one));
  const talking = chatter(world, user, own.operations, own.answers);
  await moment;
  await new Promise((resolve) => setTimeout(resolve, later));
  await world.kill();
  totals.kills += 1;
  const answers = await Promise.all(pending);
  await talking;
  return {
    moment: `after ${adds} sends and ${later} ms`,
    operations: [...operations, ...own.operations],
    answers: [...answers, ...own.answers],
  };
}

export async function moments(node, say, { rounds }) {
  const world = await World.on(node);
  await world.startRelay();
  const user = await world.citizen();
  for (let round = 1; round <= rounds; round += 1) {
    const { moment, operations, answers } = await burst(world, user);
    for (const answer of answers) {
      const what = `killed ${moment}: ${JSON.stringify(answer)}`;
      assert.ok(answer.lost || answer.status === 200, what);
    }
    await world.startRelay();
    const journal = await once(world, operations, answers);
    const lost = answers.filter((answer) => answer.lost).length;
    const states = JSON.stringify(journal.counts());
    say(`round ${round}, killed ${moment}, ${lost} without an answer: each once ${states}`);
  }
  tally(await world.settled());
  await world.close();
}
