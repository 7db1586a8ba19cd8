// Which failures and alerts the injected faults explain.
import { FAULTS, LOST } from './table.mjs';

/** A window of time in which a fault was injected. It is open while the fault lasts. */
export class Windows {
  constructor(table = FAULTS) {
    this.table = table;
    this.all = [];
    /** `reason fault` to the number of failures. */
    this.explained = new Map();
  }

  /** A fault begins; the returned function ends it. `target` is the instance that it is about. */
  begin(name, at, target = null) {
    const window = { name, target, began: at, ended: Infinity };
    this.all.push(window);
    return (end) => {
      window.ended = end;
    };
  }

  /** The fault that explains a failed request, or null. Times are in milliseconds. */
  explain({ reason, instance, began, ended }) {
    const found = this.#latest((window) => {
      const tail = this.table[window.name].reasons[reason];
      // other instances stay connected to their clients
      const isElsewhere = reason === LOST && window.target && window.target !== instance;
      return tail !== undefined && !isElsewhere && overlaps(window, began, ended, tail);
    });
    if (!found) return null;
    const key = `${reason} ${found.name}`;
    this.explained.set(key, (this.explained.get(key) ?? 0) + 1);
    return found.name;
  }

  /** The fault that allows an alert at a time, or null. */
  allow(alert, at) {
    const found = this.#latest((window) => {
      const tail = this.table[window.name].alerts[alert];
      return tail !== undefined && overlaps(window, at, at, tail);
    });
    return found?.name ?? null;
  }

  /** Faults that had to fail requests for a reason, and failed none. */
  unhit() {
    const names = [...new Set(this.all.map(({ name }) => name))];
    return names.filter((name) => {
      const { hits } = this.table[name];
      return hits && !this.explained.has(`${hits} ${name}`);
    });
  }

  /** The part of a span of time in which a fault lasted: one of them, or any. */
  part(from, to, name = null) {
    const inside = this.all.filter((one) => {
      return one.ended > from && one.began < to && (!name || one.name === name);
    });
    const busy = inside.reduce((sum, { began, ended }) => {
      return sum + Math.min(ended, to) - Math.max(began, from);
    }, 0);
    return busy / (to - from);
  }

  /** Number and seconds of each fault. */
  summary(now) {
    const rows = {};
    for (const { name, began, ended } of this.all.filter((one) => one.began < now)) {
      const row = (rows[name] ??= { count: 0, seconds: 0 });
      row.count += 1;
      row.seconds += (Math.min(ended, now) - began) / 1000;
    }
    return rows;
  }

  #latest(matches) {
    return this.all.findLast(matches);
  }
}

/** Whether a span touches a window, or the seconds after it. */
function overlaps(window, began, ended, tail) {
  return window.began <= ended && began <= window.ended + tail * 1000;
}
