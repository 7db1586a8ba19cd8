// Memory, open files and threads of every process, as time goes on, and the load of the machine.
import os from 'node:os';

/** Points of a process at most: then every other one is dropped, and half as many are added. */
const MAX_POINTS = 4_000;

export class Samples {
  /** A sample every `every` seconds. Those of the first `warmUp` seconds of a process are left
   * out. */
  constructor({ servers, every, warmUp }) {
    Object.assign(this, { servers, every, warmUp });
    /** Server and pid to its samples. */
    this.processes = new Map();
    /** Load averages of a minute: how many, their sum, the highest. */
    this.load = { count: 0, sum: 0, highest: 0 };
  }

  /** Takes samples until `stop`. */
  start() {
    this.take();
    this.timer = setInterval(() => this.take(), this.every * 1000);
  }

  stop() {
    clearInterval(this.timer);
    this.take();
  }

  take(now = performance.now() / 1000) {
    const [load] = os.loadavg();
    this.load.count += 1;
    this.load.sum += load;
    this.load.highest = Math.max(this.load.highest, load);
    for (const server of this.servers) {
      for (const { pid, ...usage } of server.usage()) this.#add(server.name, pid, now, usage);
    }
  }

  #add(name, pid, now, usage) {
    const key = `${name} ${pid}`;
    const fresh = { name, pid, began: now, step: 1, at: 0, points: [] };
    const entry = this.processes.get(key) ?? fresh;
    this.processes.set(key, entry);
    entry.at += 1;
    if (entry.at % entry.step) return;
    entry.points.push({ time: now, ...usage });
    if (entry.points.length <= MAX_POINTS) return;
    entry.points = entry.points.filter((_, at) => at % 2);
    entry.step *= 2;
  }

  /** The segments of a server for `trend`: one quantity of each process, after its warm-up. */
  segments(server, quantity) {
    return this.#of(server).map(({ began, points }) => {
      const warm = points.filter(({ time }) => time >= began + this.warmUp);
      return warm.map((point) => [point.time, point[quantity]]);
    });
  }

  /** The first and the last value after a warm-up, and the highest of all. */
  range(server, quantity) {
    const warm = this.segments(server, quantity).flat().map(([, value]) => value);
    const all = this.#of(server).flatMap(({ points }) => points.map((point) => point[quantity]));
    return { first: warm[0], last: warm.at(-1), highest: Math.max(...all) };
  }

  #of(server) {
    return [...this.processes.values()].filter(({ name }) => name === server);
  }
}
