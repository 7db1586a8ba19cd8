// Rates and quantiles of the last seconds, from the differences between snapshots.
import { Past } from './past.js';

/** Seconds of a rate: short enough to be live, long enough to be steady. */
const WINDOW = 5;
/** Seconds of a quantile, which needs more observations. */
const LONG_WINDOW = 15;

const total = (counts) => counts.reduce((sum, { total }) => sum + total, 0);

export const refusedOf = (surface) => total(surface.refused);
export const failedOf = (surface) => total(surface.failed);
export const requestsOf = (surface) => surface.answered + refusedOf(surface) + failedOf(surface);
export const surfaceOf = (snapshot, name) => snapshot.surfaces.find((one) => one.name === name);

export function totalOf(counts, name) {
  return counts?.find((count) => count.name === name)?.total ?? 0;
}

/** The snapshots of the last seconds, and the past of the plots. */
export class History {
  constructor() {
    this.snapshots = [];
    this.past = new Past();
  }

  /** Adds a snapshot; those of a previous process are dropped. */
  add(snapshot) {
    if (this.last && this.last.started_ms !== snapshot.started_ms) this.snapshots = [];
    this.snapshots.push(snapshot);
    const oldest = snapshot.at_ms - (LONG_WINDOW + 1) * 1000;
    while (this.snapshots.length > 2 && this.snapshots[0].at_ms < oldest) this.snapshots.shift();
    this.past.move(snapshot.at_ms, snapshot.point);
  }

  get last() {
    return this.snapshots.at(-1);
  }

  /** The oldest snapshot of the last `window` seconds, if there are two. */
  before(window) {
    const from = this.last.at_ms - window * 1000 - 500;
    const found = this.snapshots.find((snapshot) => snapshot.at_ms >= from);
    return found === this.last ? null : found;
  }

  /** The rate per second of the counter `of`; `null` while it is unknown. */
  rate(of) {
    const before = this.before(WINDOW);
    if (!before) return null;
    const time = (this.last.at_ms - before.at_ms) / 1000;
    return Math.max(0, of(this.last) - of(before)) / time;
  }

  /** The share of the counter `of` in the counter `all`; `null` if nothing was counted. */
  share(of, all) {
    const before = this.before(LONG_WINDOW);
    const happened = before ? all(this.last) - all(before) : 0;
    return happened > 0 ? (of(this.last) - of(before)) / happened : null;
  }

  /** The quantile `share` of the recent latency, from the histogram `of`. */
  quantile(share, of) {
    const before = this.before(LONG_WINDOW);
    if (!before) return null;
    const [now, then, bounds] = [of(this.last), of(before), this.last.bounds];
    const wanted = share * (now.count - then.count);
    if (wanted <= 0) return null;
    const below = now.below.map((number, at) => number - then.below[at]);
    const at = below.findIndex((number) => number >= wanted);
    if (at < 0) return bounds.at(-1);
    const [low, under] = at > 0 ? [bounds[at - 1], below[at - 1]] : [0, 0];
    return low + (bounds[at] - low) * ((wanted - under) / (below[at] - under));
  }
}
