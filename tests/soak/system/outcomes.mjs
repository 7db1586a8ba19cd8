// Requests by surface and outcome, with their times. Each is judged as soon as it is over.
import { LOST } from './table.mjs';

/** Steps of a histogram of durations: each is 5 % longer than the one before. */
const STEP = Math.log(1.05);

const bucket = (ms) => Math.max(0, Math.ceil(Math.log(Math.max(ms, 0.1) / 0.1) / STEP));
const bound = (at) => 0.1 * Math.exp(at * STEP);

/** Durations, of which quantiles are known to 5 %. */
export class Durations {
  constructor() {
    this.counts = [];
    this.total = 0;
  }

  add(ms) {
    const at = bucket(ms);
    this.counts[at] = (this.counts[at] ?? 0) + 1;
    this.total += 1;
  }

  /** In milliseconds; null without any. */
  quantile(part) {
    let left = Math.ceil(part * this.total);
    if (left === 0) return null;
    return bound(this.counts.findIndex((count) => (left -= count ?? 0) <= 0));
  }
}

export class Outcomes {
  /** `seconds` is the length of the run; `windows` explain failures, `stalls` notes one first. */
  constructor({ windows, stalls, began, seconds }) {
    Object.assign(this, { windows, stalls, began, third: (seconds * 1000) / 3 });
    /** Surface to its counts. */
    this.surfaces = new Map();
    /** Failures that no fault explains, by surface and reason: how many, and the first of them. */
    this.unexplained = new Map();
  }

  /** Records one request: `reason` is undefined when it succeeded; a refusal that its client had to
   * expect is `isExpected`. Returns whether it was explained. */
  record({ surface, instance, began, ended, status, reason, isExpected = false }) {
    const row = this.#row(surface);
    if (!reason) {
      row.answered += 1;
      const third = Math.min(2, Math.floor((began - this.began) / this.third));
      row.durations[third].add(ended - began);
      return true;
    }
    if (isExpected) {
      row.refused += 1;
      return true;
    }
    this.stalls.poll(ended);
    if (this.windows.explain({ reason, instance, began, ended })) {
      row.explained += 1;
      return true;
    }
    row.unexplained += 1;
    const at = ((began - this.began) / 1000).toFixed(1);
    const first = `${status} after ${Math.round(ended - began)} ms at ${instance}, ${at} s`;
    const key = `${surface}: ${reason}`;
    const kind = this.unexplained.get(key) ?? { count: 0, first };
    kind.count += 1;
    this.unexplained.set(key, kind);
    return false;
  }

  /** A pooled connection was closed while its next request was sent: clients send that again. It
   * counts unless a fault explains a lost connection. */
  repeat({ surface, instance, began }) {
    const lost = { reason: LOST, instance, began, ended: Date.now() };
    if (this.windows.explain(lost)) return;
    this.#row(surface).repeated += 1;
  }

  #row(surface) {
    if (!this.surfaces.has(surface)) {
      const counts = { answered: 0, refused: 0, explained: 0, unexplained: 0, repeated: 0 };
      const durations = [new Durations(), new Durations(), new Durations()];
      this.surfaces.set(surface, { ...counts, durations });
    }
    return this.surfaces.get(surface);
  }
}
