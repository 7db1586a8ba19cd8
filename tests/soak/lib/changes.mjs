// What happens to the node: payments and declarations all the time, and occasional disruptions. One
// change at a time, each reported to the judge.
import { startNode } from '../../crash/lib/processes.mjs';
import { Client, Refused } from './client.mjs';
import { DECLARER } from './world.mjs';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const WRITE = { name: 'write' };
/** As a fraction of the writes. */
const DECLARATIONS = 0.1;
const SNAPSHOTS = 0.1;
/** As a fraction of the writes, where blocks are mined on demand. */
const BLOCKS = 0.6;
/** Between two writes. */
const WRITE_MS = [50, 350];
/** Between two disruptions. Mostly long enough for some blocks to settle. */
const DISRUPT_MS = [2_500, 9_000];
/** The maximum number of aborted blocks. */
const DEEPEST = 5;
/** The maximum life of a class that is aborted at once: shorter than the gateway's poll interval.
 * */
const SHORT_LIFE_MS = 900;

/** The node behind the gateway. */
export class Node {
  static async start(chance) {
    const node = new Node();
    node.chance = chance;
    await node.#start(0);
    node.url = node.process.made;
    return node;
  }

  /** In half of the starts, pending transactions wait until a block is requested. */
  async #start(port) {
    this.isManual = this.chance.happens(0.5);
    const mode = this.isManual ? 'demand' : 'transaction';
    const more = ['--state-archive-capacity', 'full', '--block-generation-on', mode];
    this.process = await startNode({ port, more });
  }

  /** Kills it, and starts it on the same port: nothing is left of the chain. */
  async reborn() {
    await this.process.kill('SIGKILL');
    await this.#start(new URL(this.url).port);
  }
}

export class Changes {
  constructor({ node, world, judge, lock, chance, round }) {
    Object.assign(this, { node, world, judge, lock, chance, round });
    this.toCome = [];
    this.client = new Client(node.url);
    this.counts = {};
    this.ended = false;
  }

  /** Runs until `end` is called. */
  async run() {
    let next = this.#due();
    while (!this.ended) {
      if (Date.now() >= next) {
        if (!this.toCome.length) this.toCome = this.chance.shuffled(this.round);
        await this.#disrupt(this.toCome.pop());
        next = this.#due();
      }
      await this.#write();
      await pause(this.chance.between(...WRITE_MS));
    }
    this.client.close();
  }

  end() {
    this.ended = true;
  }

  #due() {
    return Date.now() + this.chance.between(...DISRUPT_MS);
  }

  /** Some blocks to begin with, accepted on L1. */
  async begin() {
    do await this.#write();
    while (this.world.head < DEEPEST);
    await this.#disrupt('accept on L1');
  }

  async #disrupt(name) {
    const { work, ...kind } = DISRUPTION[name];
    const happened = await this.#change({ name, disrupts: true, ...kind }, () => work(this));
    if (!happened) return;
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    await this.look();
  }

  /** Reads the current head. */
  async look() {
    this.world.saw(await this.must('starknet_getBlockWithTxHashes', { block_id: 'latest' }));
  }

  async #write() {
    const { chance } = this;
    // Snapshots take much of the node's memory: one at a time.
    if (!this.snapshot && chance.happens(SNAPSHOTS)) {
      this.snapshot = await this.must('devnet_snapshot', {});
    }
    const write = chance.happens(DECLARATIONS) ? () => this.declare() : () => this.pay();
    await this.#change(WRITE, write);
    if (this.node.isManual && chance.happens(BLOCKS)) await this.#change(WRITE, () => this.mine());
    await this.look();
  }

  /** Whether it happened: the node may refuse it. */
  #change(kind, work) {
    const change = async () => {
      try {
        await work();
        return true;
      } catch (error) {
        if (error instanceof Refused && error.answered) return false;
        throw error;
      }
    };
    return this.lock.toChange(async () => {
      if (kind.disrupts) await this.judge.hearAll(this.client);
      return this.judge.during(kind, change);
    });
  }

  must(method, params) {
    return this.client.must(method, params);
  }

  async pay() {
    const { tx_hash: paid } = await this.must('devnet_mint', this.world.payment());
    this.world.sent(paid);
  }

  mine() {
    return this.must('devnet_createBlock', {});
  }

  /** Declares the next class that this branch of the chain does not have, or pays. */
  async declare() {
    const params = { block_id: 'pre_confirmed', contract_address: DECLARER };
    const nonce = Number(await this.must('starknet_getNonce', params));
    const declare = this.world.declares[nonce];
    if (declare) await this.must('starknet_addDeclareTransaction', declare.params);
    else await this.pay();
  }

  /** Aborts the last blocks; returns how many. */
  async abort() {
    const depth = this.chance.between(1, DEEPEST);
    const first = Math.max(1, this.world.head + 1 - depth);
    await this.must('devnet_abortBlocks', { starting_block_id: { block_number: first } });
    return this.world.head + 1 - first;
  }
}

/** Each disrupts the chain. One with steps exposes intermediate states. */
const DISRUPTION = {
  abort: { work: (changes) => changes.abort() },
  'abort, mine again': {
    steps: 2,
    async work(changes) {
      for (let lost = await changes.abort(); lost > 0; lost -= 1) {
        await changes.pay();
        if (changes.node.isManual) await changes.mine();
      }
    },
  },
  'declare, abort': {
    steps: 2,
    async work(changes) {
      await changes.declare();
      if (changes.node.isManual) await changes.mine();
      await changes.look();
      await pause(changes.chance.between(0, SHORT_LIFE_MS));
      await changes.abort();
    },
  },
  'accept on L1': {
    work(changes) {
      const number = Math.max(0, changes.world.head - changes.chance.between(0, DEEPEST));
      const newest = changes.chance.happens(0.5) ? 'latest' : { block_number: number };
      return changes.must('devnet_acceptOnL1', { starting_block_id: newest });
    },
  },
  revert: {
    work(changes) {
      const { snapshot } = changes;
      changes.snapshot = undefined;
      return changes.must('devnet_revert', { snapshot_id: snapshot ?? '0x0' });
    },
  },
  // The node may be silent for longer than the gateway's timeout.
  restart: { isDown: true, work: (changes) => changes.must('devnet_restart', {}) },
  'kill, start': { isDown: true, work: ({ node }) => node.reborn() },
};

/** All disruptions of one round, shuffled before use. */
export const ROUND = [
  ...Array(3).fill('abort'),
  ...Array(3).fill('abort, mine again'),
  'declare, abort',
  ...Array(3).fill('accept on L1'),
  ...Array(2).fill('revert'),
  'restart',
  'kill, start',
];
