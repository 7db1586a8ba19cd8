// What happened between two snapshots: rates and quantiles out of totals.
import { LENGTH } from './plot.js';

/** Seconds over which a rate is taken: short enough to be live, long enough to be calm. */
const WINDOW = 5;
/** And a quantile, which needs more to go by. */
const LONG_WINDOW = 15;

const total = (counts) => counts.reduce((sum, { total }) => sum + total, 0);

/** All requests of a surface that were not answered, by verdict. */
export const refusedOf = (surface) => total(surface.refused);
export const failedOf = (surface) => total(surface.failed);
export const requestsOf = (surface) => surface.answered + refusedOf(surface) + failedOf(surface);
export const surfaceOf = (snapshot, name) => snapshot.surfaces.find((one) => one.name === name);

/** The total of this name. */
export function totalOf(counts, name) {
  return counts?.find((count) => count.name === name)?.total ?? 0;
}

/** The snapshots of the last seconds, and series made of them. */
export class History {
  constructor() {
    this.snapshots = [];
    this.series = new Map();
  }

  /** Takes a snapshot in; those of another process are no measure for it. */
  add(snapshot) {
    if (this.last && this.last.started_ms !== snapshot.started_ms) this.snapshots = [];
    this.snapshots.push(snapshot);
    const oldest = snapshot.at_ms - (LONG_WINDOW + 1) * 1000;
    while (this.snapshots.length > 2 && this.snapshots[0].at_ms < oldest) this.snapshots.shift();
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

  /** How often a second what `of` counts has happened; `null` while that is not known. */
  rate(of) {
    const before = this.before(WINDOW);
    if (!before) return null;
    const time = (this.last.at_ms - before.at_ms) / 1000;
    return Math.max(0, of(this.last) - of(before)) / time;
  }

  /** The share of what `of` counts in what `all` counts; `null` when nothing happened. */
  share(of, all) {
    const before = this.before(LONG_WINDOW);
    const happened = before ? all(this.last) - all(before) : 0;
    return happened > 0 ? (of(this.last) - of(before)) / happened : null;
  }

  /** The latency that a share of what happened lately was not over, from the histogram of `of`. */
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

  /** Adds a value to a named series, and gives all that a plot shows of it. */
  keep(name, value) {
    const series = this.series.get(name) ?? [];
    series.push(value);
    if (series.length > LENGTH) series.shift();
    this.series.set(name, series);
    return series;
  }
}
