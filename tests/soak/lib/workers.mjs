// Clients that call the gateway without a pause, and have every response judged.
import { Client } from './client.mjs';
import { now } from './judge.mjs';

/** The fraction of calls for which changes wait; while something changes, none. */
const STILL = 0.5;
/** The fraction of calls that their client abandons. */
const LEAVES = 0.02;
/** The number of wrong responses that are printed in full. */
const MAX_EXAMPLES = 10;

/** An excerpt of a text around the first difference from the other. */
function excerpt(text, other) {
  if (!text) return 'nothing';
  const at = [...text].findIndex((letter, place) => letter !== other?.[place]);
  const from = Math.max(0, at - 80);
  return `${text.length} characters, … ${text.slice(from, from + 240)}`;
}

/** The results of all calls. */
export class Tally {
  constructor() {
    this.calls = 0;
    this.left = 0;
    this.verdicts = { right: 0, late: 0, fault: 0, moving: 0, wrong: 0 };
    /** By `X-Cache`. */
    this.caches = {};
    /** By kind of question. */
    this.hits = {};
    this.examples = [];
  }

  count(kind, { cache = 'none' }, verdict) {
    this.calls += 1;
    this.verdicts[verdict] += 1;
    this.caches[cache] = (this.caches[cache] ?? 0) + 1;
    if (cache === 'hit') this.hits[kind] = (this.hits[kind] ?? 0) + 1;
  }
}

export class Worker {
  constructor({ gateway, node, world, judge, lock, chance, tally }) {
    Object.assign(this, { world, judge, lock, chance, tally });
    this.gateway = new Client(gateway);
    this.node = new Client(node.url);
  }

  /** Runs until `isOver` returns true. */
  async run(isOver) {
    while (!isOver()) {
      const question = this.world.question();
      const { chance, lock } = this;
      if (chance.happens(LEAVES)) await this.#leave(question);
      else if (lock.isStill && chance.happens(STILL)) {
        await lock.whileStill(() => this.#check(question));
      } else await this.#checkBetween(question);
    }
    this.gateway.close();
    this.node.close();
  }

  /** The gateway may cache the response nevertheless: the judge must know it. */
  async #leave(question) {
    this.tally.left += 1;
    await this.#hear(question);
    await this.gateway.leave(question.method, question.params);
    await this.#hear(question);
  }

  /** Nothing changes meanwhile: the node's later response is also its earlier one. */
  async #check(question) {
    const { call, answer } = await this.#call(question);
    const after = await this.#hear(question);
    this.#judge(question, call, answer, { before: null, after, requestedAt: call.began });
  }

  /** The node may change meanwhile: it is queried before the call, too. */
  async #checkBetween(question) {
    const requestedAt = now();
    const before = await this.#hear(question);
    const { call, answer } = await this.#call(question);
    const after = await this.#hear(question);
    this.#judge(question, call, answer, { before, after, requestedAt });
  }

  #hear(question) {
    return this.judge.hear(question, this.node);
  }

  async #call({ key, method, params, isCacheable }) {
    const call = this.judge.begin(key, isCacheable);
    const answer = await this.gateway.ask(method, params);
    this.judge.end(call);
    if (!answer) throw new Error(`the gateway gave no answer to ${key}`);
    return { call, answer };
  }

  #judge({ kind, key }, call, answer, truth) {
    const verdict = this.judge.verdict(call, answer, truth);
    this.tally.count(kind, answer, verdict);
    if (verdict !== 'wrong' || this.tally.examples.length === MAX_EXAMPLES) return;
    const { status, cache, payload } = answer;
    this.tally.examples.push(
      [
        `WRONG ${key}`,
        `  ${status} ${cache}: ${excerpt(payload, truth.after)}`,
        `  the node before: ${truth.before ? excerpt(truth.before, payload) : 'not queried'}`,
        `  the node after: ${excerpt(truth.after, payload)}`,
        `  took ${Math.round(call.ended - call.began)} ms; ${this.judge.story(call)}`,
      ].join('\n'),
    );
  }
}
