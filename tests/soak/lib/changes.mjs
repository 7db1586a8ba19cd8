// What happens to the node: payments and declarations all the time, and now and then a disruption.
// One after the other, each known to the judge.
import { startNode } from '../../crash/lib/processes.mjs';
import { Client, Refused } from './client.mjs';
import { DECLARER } from './world.mjs';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const WRITE = { name: 'write' };
/** In the share of the writes. */
const DECLARATIONS = 0.1;
const SNAPSHOTS = 0.1;
/** In the share of the writes, where a block has to be asked for. */
const BLOCKS = 0.6;
/** Between two writes. */
const WRITE_MS = [50, 350];
/** Between two disruptions. Something must have settled meanwhile, most times. */
const DISRUPT_MS = [2_500, 9_000];
/** Blocks that are lost at most. */
const DEEPEST = 5;
/** What a class that is lost at once lives at most: less than the watch takes to look again. */
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

  /** In half of its lives a block holds what was sent until somebody asks for the block. */
  async #start(port) {
    this.isManual = this.chance.happens(0.5);
    const mode = this.isManual ? 'demand' : 'transaction';
    const more = ['--state-archive-capacity', 'full', '--block-generation-on', mode];
    this.process = await startNode({ port, more });
  }

  /** Killed, and started on the same port: nothing is left of the chain. */
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

  /** Until `end` is called. */
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

  /** What is at the head now. */
  async look() {
    this.world.saw(await this.must('starknet_getBlockWithTxHashes', { block_id: 'latest' }));
  }

  async #write() {
    const { chance } = this;
    // each takes the node much memory: one at a time
    if (!this.snapshot && chance.happens(SNAPSHOTS)) {
      this.snapshot = await this.must('devnet_snapshot', {});
    }
    const write = chance.happens(DECLARATIONS) ? () => this.declare() : () => this.pay();
    await this.#change(WRITE, write);
    if (this.node.isManual && chance.happens(BLOCKS)) await this.#change(WRITE, () => this.mine());
    await this.look();
  }

  /** Whether it happened: the node may find that it can not be. */
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

  /** The next class that this branch of the chain does not have, if there is one. */
  async declare() {
    const params = { block_id: 'pre_confirmed', contract_address: DECLARER };
    const nonce = Number(await this.must('starknet_getNonce', params));
    const declare = this.world.declares[nonce];
    if (declare) await this.must('starknet_addDeclareTransaction', declare.params);
    else await this.pay();
  }

  /** The last blocks are lost: how many. */
  async abort() {
    const depth = this.chance.between(1, DEEPEST);
    const first = Math.max(1, this.world.head + 1 - depth);
    await this.must('devnet_abortBlocks', { starting_block_id: { block_number: first } });
    return this.world.head + 1 - first;
  }
}

/** Each disrupts the chain. One with steps shows states in between to whoever looks. */
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
  // it may answer nothing for longer than the gateway waits
  restart: { isDown: true, work: (changes) => changes.must('devnet_restart', {}) },
  'kill, start': { isDown: true, work: ({ node }) => node.reborn() },
};

/** What happens before the same happens again, in any order. */
export const ROUND = [
  ...Array(3).fill('abort'),
  ...Array(3).fill('abort, mine again'),
  'declare, abort',
  ...Array(3).fill('accept on L1'),
  ...Array(2).fill('revert'),
  'restart',
  'kill, start',
];
