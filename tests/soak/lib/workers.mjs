// Clients that ask the gateway without a pause, and have every answer judged.
import { Client } from './client.mjs';
import { now } from './judge.mjs';

/** Of the calls, that changes wait for; while something changes, none. */
const STILL = 0.5;
/** Of the calls, that their client does not wait for. */
const LEAVES = 0.02;
/** Wrong answers that are told in full. */
const TOLD = 10;

/** Of a text, the place where it is not the other one. */
function excerpt(text, other) {
  if (!text) return 'nothing';
  const at = [...text].findIndex((letter, place) => letter !== other?.[place]);
  const from = Math.max(0, at - 80);
  return `${text.length} characters, … ${text.slice(from, from + 240)}`;
}

/** What came of all calls. */
export class Tally {
  constructor() {
    this.calls = 0;
    this.left = 0;
    this.verdicts = { right: 0, late: 0, fault: 0, moving: 0, wrong: 0 };
    /** By `X-Cache`. */
    this.caches = {};
    /** By kind of question. */
    this.hits = {};
    this.told = [];
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

  /** Until `isOver` says so. */
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

  /** The answer may be kept all the same: the judge has to have heard it. */
  async #leave(question) {
    this.tally.left += 1;
    await this.#hear(question);
    await this.gateway.leave(question.method, question.params);
    await this.#hear(question);
  }

  /** What the node says afterwards is what it said all the time. */
  async #check(question) {
    const { call, answer } = await this.#call(question);
    const after = await this.#hear(question);
    this.#judge(question, call, answer, { before: null, after, asked: call.began });
  }

  /** The node may change meanwhile: it is asked before, too. */
  async #checkBetween(question) {
    const asked = now();
    const before = await this.#hear(question);
    const { call, answer } = await this.#call(question);
    const after = await this.#hear(question);
    this.#judge(question, call, answer, { before, after, asked });
  }

  #hear(question) {
    return this.judge.hear(question, this.node);
  }

  async #call({ key, method, params, mayBeKept }) {
    const call = this.judge.begin(key, mayBeKept);
    const answer = await this.gateway.ask(method, params);
    this.judge.end(call);
    if (!answer) throw new Error(`the gateway gave no answer to ${key}`);
    return { call, answer };
  }

  #judge({ kind, key }, call, answer, truth) {
    const verdict = this.judge.verdict(call, answer, truth);
    this.tally.count(kind, answer, verdict);
    if (verdict !== 'wrong' || this.tally.told.length === TOLD) return;
    const { status, cache, payload } = answer;
    this.tally.told.push(
      [
        `WRONG ${key}`,
        `  ${status} ${cache}: ${excerpt(payload, truth.after)}`,
        `  the node before: ${truth.before ? excerpt(truth.before, payload) : 'not asked'}`,
        `  the node after: ${excerpt(truth.after, payload)}`,
        `  took ${Math.round(call.ended - call.began)} ms; ${this.judge.story(call)}`,
      ].join('\n'),
    );
  }
}
