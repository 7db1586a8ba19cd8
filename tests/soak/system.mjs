// Runs the whole system under honest load and drawn faults, and judges it: see tests/soak/run.
import { mkdirSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { endAll, place, program } from '../crash/lib/processes.mjs';
import { ask } from '../crash/lib/sidecar.mjs';
import { Chance } from './lib/chance.mjs';
import { World as Questions } from './lib/world.mjs';
import { Alerts } from './system/alerts.mjs';
import { Book } from './system/books.mjs';
import { Faults } from './system/faults.mjs';
import { Network } from './system/network.mjs';
import { Outcomes } from './system/outcomes.mjs';
import { Readers } from './system/reads.mjs';
import { render } from './system/report.mjs';
import { Samples } from './system/samples.mjs';
import { until } from './system/server.mjs';
import { Stalls } from './system/stalls.mjs';
import { FAULTS, STALL } from './system/table.mjs';
import { BOUNDS, grows, trend } from './system/trend.mjs';
import { judge } from './system/verdict.mjs';
import { Windows } from './system/windows.mjs';
import { Writer } from './system/writes.mjs';

const WRITERS = 3;
/** Events of one store in a run: this program remembers all of them. */
const MAX_EVENTS = 100_000;
/** An alert that a fault fires is seen this long after the fault's end. */
const LATE_ALERT_MS = 30_000;
const UNITS = { s: 1, m: 60, h: 3_600, d: 86_400 };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    rate: { type: 'string', default: '40' },
    report: { type: 'string', default: '.' },
    keep: { type: 'boolean', default: false },
  },
});
const [, count, unit] = /^(\d+)([smhd])$/.exec(positionals[0] ?? '20m') ?? [];
const seconds = Number(count) * UNITS[unit];
const seed = Number(values.seed);
/** Long runs write less often: this program and the node remember every write. */
const pace = Math.min(5, Math.max(1, seconds / 7_200));

const network = new Network();

/** Everything that runs during a soak. */
class Soak {
  constructor(began) {
    const { servers, fleet, lone, world } = network;
    const chance = (own) => new Chance(seed + own);
    const windows = new Windows();
    const stalls = new Stalls(windows);
    const outcomes = new Outcomes({ windows, stalls, began, seconds });
    Object.assign(this, { began, windows, stalls, outcomes });
    this.questions = new Questions(chance(1));
    const reads = { questions: this.questions, podcasts: network.podcasts(), rate: values.rate };
    this.readers = new Readers({ servers, outcomes, chance: chance(2), ...reads });
    const gap = Math.max(500, (seconds * 1000 * 3) / MAX_EVENTS);
    const book = { secrets: network.secrets(), outcomes, gap };
    const shared = { name: 'PostgreSQL', store: network.cluster.made, servers: fleet };
    const own = { name: 'SQLite', store: network.disk.store, servers: [lone] };
    this.books = [shared, own].map((one, at) => {
      return new Book({ ...one, ...book, chance: chance(3 + at) });
    });
    network.writers = Array.from({ length: WRITERS }, (_, at) => {
      const own = { chance: chance(5 + at), gap: [1_000 * pace, 4_000 * pace] };
      return new Writer({ world, servers: fleet, outcomes, ...own });
    });
    const every = Math.min(60, Math.max(2, seconds / 600));
    const warmUp = Math.min(3_600, Math.max(60, seconds * 0.15));
    this.samples = new Samples({ servers, every, warmUp });
    const log = (text) => {
      console.log(`${((Date.now() - began) / 1000).toFixed(0).padStart(7)} s  ${text}`);
    };
    this.faults = new Faults({ system: network, windows, chance: chance(0), seconds, log });
  }

  async run() {
    this.alerts = await Alerts.start({ ...network, folder: place('prometheus'), ...this });
    await this.#readBlock();
    this.stalls.start(() => this.#readBlock());
    this.samples.start();
    this.alerts.watch();
    this.books.forEach((book) => book.start());
    await network.beginEra();
    this.readers.start();
    const end = this.began + seconds * 1000;
    await this.faults.run(end).catch((error) => network.findings.push(`a fault: ${error.stack}`));
    await pause(Math.max(0, end - Date.now()));
    return this.#stop();
  }

  async #readBlock() {
    const block = { block_id: 'latest' };
    this.questions.saw(await network.world.chain.read('starknet_getBlockWithTxHashes', block));
  }

  /** Ends the load, while the system is still there, and then the system. */
  async #stop() {
    const now = Date.now();
    this.samples.stop();
    const unwell = await this.#unwell();
    await network.closeEra();
    await Promise.all([this.readers.stop(), ...this.books.map((book) => book.stop())]);
    await this.alerts.poll();
    const facts = { missing: await this.#missing(), unscraped: await this.alerts.unscraped() };
    if (this.alerts.unreachable > 1) network.findings.push('Prometheus was away');
    await this.alerts.end();
    this.stalls.stop();
    for (const server of network.servers) await server.end('SIGTERM');
    for (const book of this.books) network.findings.push(...(await book.judge()));
    return { ...facts, now, unwell };
  }

  /** The verdicts of servers that are not well once all faults are over. */
  async #unwell() {
    const found = [];
    for (const { name, admin } of network.servers) {
      let text;
      const isWell = async () => {
        ({ text } = await ask(`${admin}/readyz?verbose`));
        return text === 'verdict: ok\nready: ok\n';
      };
      await until(`${name} to be well`, isWell).catch(() => {
        found.push({ name, text: text.replaceAll('\n', ' ') });
      });
    }
    return found;
  }

  /** Faults after which an alert had to fire, and did not. */
  async #missing() {
    const missing = [];
    for (const { name, began, ended } of this.windows.all) {
      const { fires } = FAULTS[name];
      if (fires && !(await this.alerts.firedIn(fires, began, ended + LATE_ALERT_MS))) {
        missing.push({ name, alert: fires });
      }
    }
    return missing;
  }

  trends() {
    return network.servers.flatMap(({ name: server }) =>
      Object.keys(BOUNDS).map((quantity) => {
        const found = trend(this.samples.segments(server, quantity));
        const range = this.samples.range(server, quantity);
        return { server, quantity, found, range, isBad: grows(found, BOUNDS[quantity]) };
      }),
    );
  }
}

async function main() {
  if (!seconds) throw new Error(`${positionals[0]} is no length of time, as 20m or 72h`);
  console.log(`seed ${seed}, ${seconds} s`);
  try {
    await network.start();
  } catch (error) {
    console.error('the system did not start:', error);
    return 2;
  }
  const soak = new Soak(Date.now());
  const ended = await soak.run();
  const facts = {
    ...ended,
    seed,
    seconds,
    began: soak.began,
    windows: soak.windows,
    outcomes: soak.outcomes,
    books: soak.books,
    totals: network.totals,
    unhit: soak.windows.unhit(),
    alerts: [...soak.alerts.fired.values()],
    load: soak.samples.load,
    trends: soak.trends(),
    calm: 1 - soak.windows.part(soak.began, ended.now),
    stalled: soak.windows.part(soak.began, ended.now, STALL),
  };
  const findings = judge({ ...facts, findings: network.findings });
  const text = render({ ...facts, findings });
  mkdirSync(values.report, { recursive: true });
  const path = `${values.report}/${new Date(soak.began).toISOString().slice(0, 19)}-${seed}.txt`;
  writeFileSync(path, `${text}\n`);
  console.log(`\n${text}\nreport: ${path}`);
  return findings.length ? 1 : 0;
}

async function end(keep) {
  await network.end();
  await endAll(keep);
}

await program(main, { keep: values.keep, end });
