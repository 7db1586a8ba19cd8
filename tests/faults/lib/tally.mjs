// The table of a run: cases and hits by kind of request, store and fault, and the time to heal.

const FAULTS = ['error', 'kill', 'stall', 'cut', 'swallowed', 'power loss', 'full disk', 'clock'];

export class Tally {
  rows = new Map();
  failures = [];
  slowest = 0;

  /** The tally of several together. */
  static of(tallies) {
    const all = new Tally();
    for (const { rows, failures, slowest } of tallies) {
      for (const [name, row] of rows) {
        for (const [fault, cell] of Object.entries(row)) all.#count(name, fault, cell);
      }
      all.failures.push(...failures);
      all.healed(slowest);
    }
    return all;
  }

  /** A fault that was played; whether it happened. */
  add(kind, store, fault, isHit) {
    this.#count(`${kind} on ${store}`, fault, { cases: 1, hits: isHit ? 1 : 0 });
  }

  #count(name, fault, { cases, hits }) {
    if (!this.rows.has(name)) this.rows.set(name, {});
    const cell = (this.rows.get(name)[fault] ??= { cases: 0, hits: 0 });
    cell.cases += cases;
    cell.hits += hits;
  }

  healed(ms) {
    this.slowest = Math.max(this.slowest, ms);
  }

  fail(what, error) {
    this.failures.push(what);
    console.log(`FAILED  ${what}: ${error.stack ?? error}`);
  }

  get hits() {
    return [...this.rows.values()].flatMap(Object.values).reduce((sum, { hits }) => sum + hits, 0);
  }

  print() {
    const cell = (row, fault) => (row[fault] ? `${row[fault].hits}/${row[fault].cases}` : '–');
    const lines = [['hits/cases', ...FAULTS]];
    for (const [name, row] of this.rows) lines.push([name, ...FAULTS.map((f) => cell(row, f))]);
    for (const [name, ...cells] of lines) {
      console.log(name.padEnd(32) + cells.map((text) => text.padStart(11)).join(''));
    }
    const seconds = (this.slowest / 1000).toFixed(1);
    console.log(`${this.hits} faults; the next request succeeded after ${seconds} s at the latest`);
    console.log(`${this.failures.length} failures`);
  }
}
