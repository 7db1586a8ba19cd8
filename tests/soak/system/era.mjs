// The life of one chain: what was written to it, and whether chain and journal agree at its end.
import { History } from '../../crash/lib/chain.mjs';

/** The deepest rollback, in blocks. */
const DEEPEST = 4;
/** From this length on, the node's memory for old states is worth another chain. */
const LONG = 1_200;
const ADD = /^starknet_add/;

export class Era {
  /** Begins on a chain with the contracts; intents in `journal` are older. */
  static async begin(world, journal) {
    const era = new Era();
    const from = (await world.chain.height()) + 1;
    Object.assign(era, { world, from, isClosing: false, generation: 0 });
    era.before = new Set(journal?.intents.keys());
    era.sent = [];
    era.users = new Set();
    /** Hashes of transactions in blocks that were aborted. */
    era.rolledBack = new Set();
    era.faults = [];
    return era;
  }

  /** Whether the chain has become long. */
  async isLong() {
    return (await this.world.chain.height()) - this.from > LONG;
  }

  /** Aborts the newest blocks. No transaction is on its way meanwhile, so that all that were in
   * them are known. */
  async rollBack(chance, until) {
    const { proxy, chain } = this.world;
    const gate = proxy.holdBefore(ADD, Infinity);
    try {
      await until('no transaction is on its way', () => proxy.unanswered === 0);
      const height = await chain.height();
      const first = Math.max(this.from, height + 1 - chance.between(1, DEEPEST));
      for (let number = first; number <= height; number += 1) {
        const block = { block_id: { block_number: number } };
        const { transactions } = await chain.read('starknet_getBlockWithTxHashes', block);
        transactions.forEach((hash) => this.rolledBack.add(hash));
      }
      this.generation += 1;
      const starting_block_id = { block_number: first };
      if (first <= height) await chain.read('devnet_abortBlocks', { starting_block_id });
    } finally {
      gate.open();
      proxy.gates = proxy.gates.filter((one) => one !== gate);
    }
  }

  /** Compares operations, journal and chain once nothing is written any more. */
  async judge() {
    const { world } = this;
    const journal = await world.settled();
    world.history = new History(world.chain, this.from);
    await world.history.read();
    const ours = (intent) => !this.before.has(intent.intent);
    const { owner, verifier, faucet } = world.pins;
    const signers = [owner, verifier, faucet, ...this.users];
    const counted = this.sent.filter(({ operation }) => operation.happened);
    const counts = [];
    for (const { operation } of counted) counts.push(await operation.happened(world));
    const found = disagreements({
      intents: journal.all().filter(ours),
      onChain: signers.flatMap((signer) => world.history.sentBy(signer)),
      sent: counted.map((one, at) => ({ ...one, path: one.operation.path, count: counts[at] })),
      rolledBack: this.rolledBack,
    });
    return { found: [...this.faults, ...found], journal, written: world.history };
  }
}

const DONE = ['succeeded', 'reverted'];

/** Contradictions between `intents` of the journal, transactions `onChain`, and operations `sent`
 * with how often each happened. Transactions that were `rolledBack` may be on the chain or not. */
export function disagreements({ intents, onChain, sent, rolledBack }) {
  const found = [];
  const chain = new Map(onChain.map((one) => [one.hash, one]));
  const byHash = new Map();
  for (const intent of intents) {
    byHash.set(intent.hash, [...(byHash.get(intent.hash) ?? []), intent]);
  }
  for (const { hash, succeeded } of onChain) {
    const states = (byHash.get(hash) ?? []).map(({ state }) => state);
    const wanted = succeeded ? 'succeeded' : 'reverted';
    if (!states.includes(wanted)) {
      found.push(`${hash} is ${wanted} on the chain, in the journal ${states.join() || 'nothing'}`);
    }
    // a rollback ends an intent, and its request is written again
    const ends = states.filter((state) => DONE.includes(state)).length;
    if (ends > 1 && !rolledBack.has(hash)) found.push(`${hash} stands for ${ends} intents`);
  }
  for (const { hash, state, isRollback } of intents) {
    if (isRollback && !rolledBack.has(hash)) found.push(`${hash} was displaced, and was not rolled back`);
    if (!DONE.includes(state) || chain.has(hash) || rolledBack.has(hash)) continue;
    found.push(`${hash} is ${state} in the journal, and not on the chain`);
  }
  for (const { path, count, acknowledged, isUnknown } of sent) {
    if (count > 1) found.push(`${path} happened ${count} times`);
    const isGone = rolledBack.has(acknowledged);
    if (acknowledged && count === 0 && !isGone) {
      found.push(`${path} was acknowledged as ${acknowledged}, and is lost`);
    }
    if (!acknowledged && !isUnknown && count > 0) {
      found.push(`${path} was refused, and happened`);
    }
  }
  return found;
}
