// What must hold after any crash, once everything has settled: the journal, the signers' nonces and
// the chain agree, and every operation happened once.
import assert from 'node:assert/strict';
import { verify } from './journal.mjs';
import { eventually } from './world.mjs';

/** Totals over all runs. */
export const totals = {
  kills: 0,
  operations: 0,
  acknowledged: 0,
  unanswered: 0,
  intents: 0,
  transactions: 0,
};

/** Waits until the world has settled, and compares the journal with the chain. */
async function agrees(world, ours = () => true) {
  const journal = await world.settled();
  await verify(world.folder, world.env);
  await world.history.read();
  const done = journal.done().filter(ours);
  const reverted = done.filter(({ state }) => state === 'reverted');
  assert.deepEqual(reverted, [], 'nothing that could only revert was sent');
  assert.deepEqual(journal.rolledBack(), [], 'nothing ended twice');
  const hashes = new Map(done.map((intent) => [intent.hash, intent]));
  assert.equal(hashes.size, done.length, 'no transaction stands for two intents');
  const signers = new Set([...world.nonces.keys(), ...done.map(({ signer }) => signer)]);
  for (const signer of signers) {
    const sent = world.history.sentBy(signer);
    const intended = done.filter((intent) => intent.signer === signer);
    const start = world.nonces.get(signer) ?? 0;
    const nonces = sent.map(({ nonce }) => nonce);
    const expected = sent.map((_, at) => start + at);
    assert.deepEqual(nonces, expected, `${signer}: no nonce is used twice or left out`);
    assert.equal(await world.chain.nonce(signer), start + sent.length, `${signer}: its nonce`);
    assert.equal(sent.length, intended.length, `${signer}: transactions as in the journal`);
    for (const { hash, nonce, succeeded } of sent) {
      const intent = hashes.get(hash);
      assert.ok(intent, `${hash} is in the journal`);
      const state = succeeded ? 'succeeded' : 'reverted';
      assert.deepEqual([intent.state, intent.nonce], [state, nonce], `${hash} in the journal`);
    }
  }
  for (const { hash } of journal.nothing().filter(ours)) {
    if (hashes.has(hash)) continue;
    assert.ok(!(await world.chain.has(hash)), `${hash} came to nothing, and is not on the chain`);
  }
  return journal;
}

/** Every acknowledged transaction is in the journal as succeeded. */
function everyAcknowledgedIsStored(journal, answers) {
  const succeeded = new Set();
  for (const { hash, state } of journal.all()) if (state === 'succeeded') succeeded.add(hash);
  for (const { status, reason, hash } of answers) {
    if (status !== 200 || reason || !hash) continue;
    totals.acknowledged += 1;
    assert.ok(succeeded.has(hash), `${hash} was acknowledged and succeeded`);
  }
}

/** No operation happened twice; those that got a 200 happened. */
async function atMostOnce(world, operations, answers) {
  const counts = await Promise.all(operations.map((one) => one.happened(world)));
  counts.forEach((count, at) => {
    const { path, body } = operations[at];
    const what = `${path} ${JSON.stringify(body).slice(0, 200)}`;
    assert.ok(count <= 1, `${what} happened ${count} times`);
    const { status, reason, hash } = answers[at];
    if (status === 200 && !reason) assert.equal(count, 1, `${what} was acknowledged`);
    if (status > 200 && !hash) assert.equal(count, 0, `${what} was refused: ${status} ${reason}`);
  });
  return counts;
}

/** Temporary refusals of a busy machine: the client retries. */
const FOR_A_WHILE = ['upstream_timeout', 'pins_unproven', 'in_progress'];

async function answered(world, operation) {
  let answer;
  await eventually('the repeat has an answer', async () => {
    answer = await world.post(operation);
    return !FOR_A_WHILE.includes(answer.reason);
  });
  return answer;
}

/** Repeats each operation; none may happen again, and all have happened then. */
async function repeated(world, operations, counts, firsts) {
  const answers = await Promise.all(operations.map((one) => answered(world, one)));
  answers.forEach((answer, at) => {
    const { kind, key, hash } = operations[at];
    const what = `${kind}, done ${counts[at]} times before: ${JSON.stringify(answer)}`;
    assert.equal(answer.status, 200, what);
    assert.ok(!answer.reason, what);
    if (hash) assert.equal(answer.hash, hash, `the transaction's own hash: ${what}`);
    if (key && firsts[at].status === 200) assert.equal(answer.hash, firsts[at].hash, what);
  });
  return answers;
}

/** Checks operations and their responses completely, after any crash. `ours` are the intents of
 * this epoch of the chain. */
export async function once(world, operations, answers, ours) {
  await world.settled();
  await world.history.read();
  const counts = await atMostOnce(world, operations, answers);
  everyAcknowledgedIsStored(await agrees(world, ours), answers);
  const again = await repeated(world, operations, counts, answers);
  const journal = await agrees(world, ours);
  everyAcknowledgedIsStored(journal, again);
  const ends = await Promise.all(operations.map((one) => one.happened(world)));
  ends.forEach((count, at) => assert.equal(count, 1, `${operations[at].kind} happened once`));
  totals.operations += operations.length;
  totals.unanswered += answers.filter(({ lost }) => lost).length;
  return journal;
}

/** Adds a world's final journal to the totals. */
export function tally(journal) {
  totals.intents += journal.all().length;
  totals.transactions += journal.done().length;
}
