// Kills the sidecar, and its database, while the age verifier reports: every acknowledged event is
// stored exactly once, and every other event is stored completely or not at all.
//
//   PORTCULLIS=target/debug/portcullis \
//     node tests/crash/webhook.mjs [--rounds N] [--only NAME,NAME] [--keep]
//
// Needs PostgreSQL and python3; nothing is installed.
import assert from 'node:assert/strict';
import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { TABLES, acknowledged, agrees, events } from './lib/age.mjs';
import { postgres } from './lib/cluster.mjs';
import { endAll, place, program } from './lib/processes.mjs';
import { Sidecar, ask, connection, eventually } from './lib/sidecar.mjs';
import { rows } from './lib/tables.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    keep: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);

const USERS = 300;
const SUBJECTS_PER_USER = 2;
const EVENTS = 10_000;
/** Fewer: this test is about the time without a database. */
const EVENTS_IN_OUTAGE = 3_000;
const CONNECTIONS = 16;
/** One in `TWICE` events is reported twice, at the same time. */
const TWICE = 20;
/** From the head of a request until long after its response. */
const LATER_MS = 20;
/** The delay before a retry while the database is down. */
const AGAIN_MS = 50;
/** Responses of a sidecar without a database. */
const DENIALS = 100;

const totals = { kills: 0, outages: 0, events: 0, unanswered: 0, remembered: 0, denied: 0 };
const sidecars = [];
let starting;

/** The verifier: reports events on many connections, each until it is acknowledged. */
class Verifier {
  constructor(sidecar, reports, denials) {
    Object.assign(this, { sidecar, denials, clock: 0, done: 0, lost: 0 });
    this.sent = new Map(reports.map((event) => [event.event_id, event]));
    this.queue = reports.flatMap((event) => Array(randomInt(TWICE) ? 1 : 2).fill(event));
    this.moments = [];
    Object.assign(this, { working: CONNECTIONS, waiting: 0, back: Promise.resolve() });
  }

  run() {
    const next = this.queue.values();
    return Promise.all(Array.from({ length: CONNECTIONS }, () => this.#work(next)));
  }

  async #work(next) {
    const agent = connection();
    for (const event of next) {
      while (!(await this.#report(event, agent)));
      this.done += 1;
      this.moments.filter(({ at }) => at === this.done).forEach(({ now }) => now());
    }
    this.working -= 1;
    agent.destroy();
  }

  /** Whether an event was acknowledged. The clock orders what was observed. */
  async #report(event, agent) {
    event.sent ??= this.clock++;
    const answer = await this.sidecar.report(event.body, agent);
    if (answer.lost) {
      this.lost += 1;
      this.waiting += 1;
      await this.back;
      this.waiting -= 1;
      return false;
    }
    const stated = acknowledged(answer, this.denials);
    if (!stated) return pause(AGAIN_MS, false);
    event.answers.push(stated);
    event.acknowledged ??= this.clock++;
    return true;
  }

  /** Resolves when this many reports were acknowledged. */
  after(at) {
    return this.done >= at ? undefined : new Promise((now) => this.moments.push({ at, now }));
  }

  /** Requests that are lost from now on wait until the returned function is called. */
  pause() {
    let resume;
    this.back = new Promise((resolve) => (resume = resolve));
    return resume;
  }

  /** Resolves when no request is in flight any more. */
  still() {
    return eventually('all that was on its way is lost', () => this.waiting === this.working);
  }

  /** A random moment in one of `rounds` equal parts of the work. */
  async moment(round) {
    const at = Math.floor((this.queue.length * (round + Math.random())) / rounds);
    await this.after(at);
    await pause(randomInt(LATER_MS));
    return `after ${this.done} reports`;
  }
}

/** A sidecar of its own, with users who started age verification. */
async function opened(name, store) {
  const sidecar = await Sidecar.on(store, place(name));
  sidecars.push(sidecar);
  await sidecar.start();
  const subjects = new Map();
  const users = Array.from({ length: USERS }, () => ({ user: randomUUID(), refs: [] }));
  const next = users.values();
  const work = async () => {
    const agent = connection();
    for (const { user, refs } of next) {
      while (refs.length < SUBJECTS_PER_USER) refs.push(await sidecar.open(user, agent));
      refs.forEach((ref) => subjects.set(ref, user));
    }
    agent.destroy();
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, work));
  return { sidecar, subjects, refs: users.map((user) => user.refs) };
}

/** Compares the tables with the reports and acknowledgements; returns how many events they hold. */
async function examined({ sidecar, subjects }, verifier) {
  const tables = {};
  for (const [name, sql] of Object.entries(TABLES)) tables[name] = await rows(sidecar.store, sql);
  return agrees(tables, verifier.sent, subjects);
}

async function finished(world, verifier) {
  const count = await examined(world, verifier);
  assert.equal(count, verifier.sent.size, 'every event is in the ledger');
  totals.events += count;
  totals.unanswered += verifier.lost;
  // Applied before a crash that prevented the response.
  const isRepeat = ({ again }) => again;
  const remembered = [...verifier.sent.values()].filter(({ answers }) => answers.every(isRepeat));
  totals.remembered += remembered.length;
}

/** The sidecar dies repeatedly. */
async function crashes(name, store, say) {
  const world = await opened(name, store);
  const { sidecar } = world;
  const verifier = new Verifier(sidecar, events(EVENTS, world.refs));
  const kills = async () => {
    let lost = 0;
    for (let round = 0; round < rounds; round += 1) {
      const when = await verifier.moment(round);
      assert.equal(verifier.lost, lost, 'a live sidecar answers');
      const resume = verifier.pause();
      await sidecar.kill();
      totals.kills += 1;
      await verifier.still();
      const count = await examined(world, verifier);
      say(`killed ${when}, ${verifier.lost - lost} without an answer: ${count} events, each whole`);
      lost = verifier.lost;
      await sidecar.start();
      resume();
    }
  };
  await Promise.all([verifier.run(), kills()]);
  await sidecar.kill();
  totals.kills += 1;
  assert.ok(verifier.lost <= rounds * CONNECTIONS, 'a live sidecar answers');
  await finished(world, verifier);
  say(`killed after the last answer: all ${EVENTS} events once, as acknowledged`);
}

/** The database dies repeatedly, and the sidecar survives. */
async function outages(name, cluster, say) {
  const world = await opened(name, await cluster.database(name));
  const { sidecar } = world;
  const denials = { count: 0 };
  const verifier = new Verifier(sidecar, events(EVENTS_IN_OUTAGE, world.refs), denials);
  const stops = async () => {
    for (let round = 0; round < rounds; round += 1) {
      const when = await verifier.moment(round);
      const before = denials.count;
      await cluster.crash();
      totals.outages += 1;
      const enough = () => denials.count - before >= DENIALS || !verifier.working;
      await eventually('the sidecar says that it has no database', enough);
      assert.equal((await ask(`${sidecar.url}/healthz`)).status, 200, 'the sidecar lives');
      const { done } = verifier;
      await cluster.start();
      await eventually('it goes on', () => verifier.done > done || !verifier.working);
      say(`no database ${when}: ${denials.count - before} times 503, then it went on`);
    }
  };
  await Promise.all([verifier.run(), stops()]);
  assert.equal(verifier.lost, 0, 'the sidecar answered everything');
  assert.equal(sidecar.starts, 1, 'and was never started again');
  await finished(world, verifier);
  totals.denied += denials.count;
  say(`all ${EVENTS_IN_OUTAGE} events once, as acknowledged`);
}

async function main() {
  const started = Date.now();
  starting = postgres();
  const cluster = await starting;
  const scenarios = {
    sqlite: (say) => crashes('sqlite', `sqlite:${place('portcullis.db')}`, say),
    postgres: async (say) => crashes('postgres', await cluster.database('crashes'), say),
    outage: (say) => outages('outage', cluster, say),
  };
  const only = values.only?.split(',');
  let [passed, failed] = [0, 0];
  for (const [name, scenario] of Object.entries(scenarios)) {
    if (only && !only.includes(name)) continue;
    const say = (text) => {
      passed += 1;
      const at = `${Math.round((Date.now() - started) / 1000)} s`.padStart(6);
      console.log(`ok ${at}  ${name}: ${text}`);
    };
    try {
      await scenario(say);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.stack}`);
    }
  }
  const counted = Object.entries(totals).map(([what, count]) => `${count} ${what}`);
  console.log(`counted ${counted.join(', ')}`);
  const seconds = Math.round((Date.now() - started) / 1000);
  console.log(`${passed} passed, ${failed} failed, ${seconds} s`);
  return failed ? 1 : 0;
}

async function end(keep) {
  // A PostgreSQL killed while it starts would leave its server behind.
  await starting?.catch(() => {});
  await Promise.all(sidecars.map((sidecar) => sidecar.kill()));
  await endAll(keep);
}

await program(main, { keep: values.keep, end });
