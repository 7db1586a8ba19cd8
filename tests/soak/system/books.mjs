// The age verifier's events, written to one store, and what that must hold at the end.
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { TABLES, acknowledgement, agrees, events } from '../../crash/lib/age.mjs';
import { Caller, connection } from '../../crash/lib/sidecar.mjs';
import { rows } from '../../crash/lib/tables.mjs';
import { late, reasonOf } from './reads.mjs';

/** Users of a group, and the sessions of each: events of one group are about them. */
const USERS = 3;
const SESSIONS = 2;
const EVENTS = 24;
const WORKERS = 3;
/** One in `TWICE` events is reported twice, at the same time. */
const TWICE = 20;
const AGAIN_MS = 200;
/** How long after the end an event is still repeated; only a failing run waits this long. */
const LAST_MS = 30_000;

export class Book {
  /** `servers` share the store; `gap` is the pause after each event, in milliseconds. */
  constructor({ name, store, servers, secrets, outcomes, chance, gap }) {
    Object.assign(this, { name, store, outcomes, chance, gap });
    this.callers = servers.map((server) => {
      return { instance: server.name, caller: new Caller({ url: server.sidecar, ...secrets }) };
    });
    this.sent = new Map();
    this.subjects = new Map();
    /** Requests for a session without an answer: it may exist. */
    this.unanswered = 0;
    this.clock = 0;
  }

  start() {
    this.end = Infinity;
    this.work = this.#run();
    this.work.catch(() => {}); // `stop` reports it
  }

  /** Resolves when the events of the last group are acknowledged. */
  async stop() {
    this.end = Date.now();
    await this.work;
  }

  async #run() {
    while (this.end === Infinity) {
      const refs = [];
      while (refs.length < USERS && this.end === Infinity) {
        const user = await this.#user();
        if (user) refs.push(user);
      }
      if (refs.length < USERS) return;
      const reports = events(EVENTS, refs);
      reports.forEach((event) => this.sent.set(event.event_id, event));
      const twice = () => (this.chance.happens(1 / TWICE) ? 2 : 1);
      const queue = reports.flatMap((event) => Array(twice()).fill(event)).values();
      await Promise.all(Array.from({ length: WORKERS }, () => this.#report(queue)));
    }
  }

  /** The sessions of a new user, or undefined if one was refused. */
  async #user() {
    const user = randomUUID();
    const refs = [];
    while (refs.length < SESSIONS) {
      const answer = await this.#ask('age session', (caller, agent) => caller.request(user, agent));
      if (answer.status !== 201) {
        this.unanswered += 1;
        await pause(AGAIN_MS);
        return undefined;
      }
      refs.push(answer.json.subject_ref);
      this.subjects.set(answer.json.subject_ref, user);
    }
    await this.#ask('age status', (caller, agent) => caller.status(user, agent));
    return refs;
  }

  async #report(queue) {
    const agent = connection();
    for (const event of queue) {
      while (Date.now() < this.end + LAST_MS) {
        event.sent ??= this.clock++;
        const report = (caller) => caller.report(event.body, agent);
        const answer = await this.#ask('webhook', report, [409]);
        if (answer.status === 200 || answer.status === 409) {
          event.answers.push(acknowledgement(answer));
          event.acknowledged ??= this.clock++;
          break;
        }
        await pause(AGAIN_MS);
      }
      await pause(this.gap);
    }
    agent.destroy();
  }

  /** One request to any of the servers; statuses in `expected` are answers, too. */
  async #ask(surface, request, expected = []) {
    const { instance, caller } = this.chance.one(this.callers);
    const began = Date.now();
    let answer = await request(caller).catch(late);
    if (answer.lost && answer.isReused) {
      this.outcomes.repeat({ surface, instance, began });
      answer = await request(caller).catch(late);
    }
    const { status } = answer;
    const reason = expected.includes(status) ? undefined : reasonOf(answer);
    this.outcomes.record({ surface, instance, began, ended: Date.now(), status, reason });
    return answer;
  }

  /** Compares the store with what was acknowledged, and returns what disagrees. The server of a
   * SQLite store has ended. */
  async judge() {
    const tables = {};
    for (const [name, sql] of Object.entries(TABLES)) tables[name] = await rows(this.store, sql);
    const unknown = tables.sessions.filter(({ subject_ref }) => !this.subjects.has(subject_ref));
    tables.sessions = tables.sessions.filter((one) => !unknown.includes(one));
    const found = [];
    if (unknown.length > this.unanswered) {
      found.push(`${this.name}: ${unknown.length} sessions that nobody opened`);
    }
    const open = [...this.sent.values()].filter(({ acknowledged }) => acknowledged === undefined);
    if (open.length) found.push(`${this.name}: ${open.length} events were never acknowledged`);
    try {
      this.stored = agrees(tables, this.sent, this.subjects);
    } catch (error) {
      found.push(`${this.name}: ${error.message}`);
    }
    return found;
  }
}
