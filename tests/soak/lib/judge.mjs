// Whether a response of the gateway is right.
//
// Every change to the node happens here, one after the other, and the judge learns when each begins
// and ends. Between changes the node's responses are stable. So the node is queried directly before
// and after each call of the gateway, and a response is
//
// - right, if it equals the node's response after the call; or the node's response before the call,
//   if a change began or ended during the call. For half of the calls changes wait, so that only
//   the former counts. A call that shared another call's response starts when that call started;
// - late, if it was cached (`X-Cache: hit`) and the node itself returned it on a branch of the
//   chain that was abandoned no longer ago than the gateway promises: one poll interval and one
//   request. One request is the longest that any request took in the last seconds;
// - a fault (502, 503), if the node was down or restarting within the breaker's pause plus one
//   request before the call;
// - moving, if changes make it undecidable: more than one during the call, or the node was gone;
// - else wrong. A cached response to an uncacheable request is wrong, too, and any other status.
import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';

/** How long the breaker leaves a failed node alone: `edge/src/node/target.rs`. */
const BREAKER_PAUSE_MS = 1_000;
/** How long the duration of a request is remembered. */
const RECENT_MS = 5_000;
/** How long after its last use a question may be repeated. */
const IN_USE_MS = 20_000;
/** How long a change is remembered: far longer than any call lasts. */
const REMEMBERED_MS = 60_000;

export const now = () => performance.now();
const digest = (text) => createHash('sha1').update(text).digest('base64');

export class Judge {
  constructor(watchIntervalMs) {
    this.interval = watchIntervalMs;
    this.changes = [];
    /** When each branch of the chain was abandoned; the last one was not. */
    this.branches = [Infinity];
    /** Request key to the question, its last use and the node's responses, each with the last
     * branch on which it was returned. */
    this.said = new Map();
    /** Request key to the calls in flight. */
    this.underway = new Map();
    this.requests = [];
    this.latest = 0;
  }

  /** Records a change while `work` makes it. A disruption ends a branch of the chain. */
  async during(kind, work) {
    const change = { ...kind, began: now(), ended: Infinity };
    this.changes = this.changes.filter(({ ended }) => ended > change.began - REMEMBERED_MS);
    this.changes.push(change);
    const branch = this.branches.length - 1;
    if (kind.disrupts) this.branches.push(Infinity);
    try {
      return await work();
    } finally {
      change.ended = now();
      if (kind.disrupts) this.branches[branch] = change.ended;
    }
  }

  /** The node's own response to a question; null when there is none. */
  async hear(question, node) {
    const began = now();
    const from = this.#oldest(began);
    const answer = await node.ask(question.method, question.params);
    if (answer === null) return null;
    this.#took(began);
    const heard = this.said.get(question.key) ?? { question, texts: new Map() };
    this.said.set(question.key, heard);
    heard.used = began;
    // During a disruption it may be either branch: the older one excuses less.
    const text = digest(answer.payload);
    heard.texts.set(text, Math.max(from, heard.texts.get(text) ?? 0));
    if (answer.payload.startsWith('"result"')) heard.found = from;
    return answer.payload;
  }

  /** Ensures that, before a branch is abandoned, the judge has the node's response on it to every
   * cacheable question. */
  async hearAll(node) {
    const branch = this.#oldest(Infinity);
    const end = now() - IN_USE_MS;
    for (const [key, { question, used, found }] of this.said) {
      if (used < end) this.said.delete(key);
      else if (question.isCacheable && found < branch) await this.hear(question, node);
    }
  }

  /** A call to the gateway begins. */
  begin(key, isCacheable) {
    const others = this.underway.get(key) ?? new Set();
    this.underway.set(key, others);
    const began = now();
    const since = Math.min(began, ...[...others].map((other) => other.since));
    const call = { key, isCacheable, began, since };
    others.add(call);
    return call;
  }

  /** The call has ended. */
  end(call) {
    call.ended = now();
    this.#took(call.began);
    const others = this.underway.get(call.key);
    others.delete(call);
    if (!others.size) this.underway.delete(call.key);
  }

  /** `before` and `after` are the node's responses, null if it gave none; `requestedAt` is when the first
   * was requested. */
  verdict(call, answer, { before, after, requestedAt }) {
    const { status, cache, payload } = answer;
    if (status === 502 || status === 503) return this.#wasDown(call) ? 'fault' : 'wrong';
    if (status !== 200) return 'wrong';
    const isHit = cache === 'hit';
    if (isHit && !(call.isCacheable && payload.startsWith('"result"'))) return 'wrong';
    if (payload === after) return 'right';
    const from = cache === 'shared' ? call.since : call.began;
    if (payload === before && this.#changed(from)) return 'right';
    if (isHit && this.#isLate(call, payload)) return 'late';
    const changed = this.#changed(Math.min(from, requestedAt));
    if (after === null || changed > 1) return 'moving';
    return changed === 1 && before === null ? 'moving' : 'wrong';
  }

  /** What happened shortly before and during a call, to diagnose a wrong response. */
  story(call) {
    const isNear = ({ disrupts, ended }) => ended >= call.began - (disrupts ? 10_000 : 300);
    const at = (time) => (time === Infinity ? 'under way' : `${Math.round(time - call.began)} ms`);
    const changes = this.changes
      .filter(isNear)
      .map(({ name, began, ended }) => `${name} ${at(began)} to ${at(ended)}`);
    return `allowance ${Math.round(this.#allowance())} ms; ${changes.join(', ')}`;
  }

  /** How many changes were in progress since then; one with intermediate states counts twice. */
  #changed(since) {
    const during = this.changes.filter(({ ended }) => ended >= since);
    return during.reduce((sum, { steps = 1 }) => sum + steps, 0);
  }

  #wasDown({ began }) {
    const from = began - BREAKER_PAUSE_MS - this.#slowest();
    return this.changes.some(({ isDown, ended }) => isDown && ended >= from);
  }

  #isLate({ key, began }, payload) {
    const branch = this.said.get(key)?.texts.get(digest(payload));
    const isAllowed = branch >= this.#oldest(began - this.#allowance());
    if (isAllowed) this.latest = Math.max(this.latest, began - this.branches[branch]);
    return isAllowed;
  }

  /** The oldest branch that was not abandoned before then. */
  #oldest(time) {
    return this.branches.findIndex((ended) => ended >= time);
  }

  #allowance() {
    return this.interval + this.#slowest();
  }

  #took(began) {
    const ended = now();
    this.requests = this.requests.filter((one) => one.ended > ended - RECENT_MS);
    this.requests.push({ ended, took: ended - began });
  }

  #slowest() {
    return Math.max(0, ...this.requests.map(({ took }) => took));
  }
}
