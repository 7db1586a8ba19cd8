// The sidecar under faults: events of the age verifier, and age sessions.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { TABLES, acknowledged, agrees, events } from '../crash/lib/age.mjs';
import { SESSION, Sidecar, ask, freePort } from '../crash/lib/sidecar.mjs';
import { rows } from '../crash/lib/tables.mjs';

/** Subjects that are made ready together, so that few requests are in the way. */
const BATCH = 32;

/** A sidecar with an admin listener, which restarts at the same addresses. */
export class SidecarService {
  /** `direct` is the URL of the same store, past what disturbs its messages. */
  static async on(store, folder, { direct = store, env = {} } = {}) {
    const service = new SidecarService();
    const admin = `127.0.0.1:${await freePort()}`;
    const more = { PORTCULLIS__ADMIN__LISTEN: admin, PORTCULLIS__LOG__FORMAT: 'json', ...env };
    const sidecar = await Sidecar.on(store, folder, more);
    Object.assign(service, { sidecar, store: direct, admin: `http://${admin}` });
    await service.start();
    return service;
  }

  get pid() {
    return this.sidecar.pid;
  }

  get gone() {
    return this.sidecar.gone;
  }

  get log() {
    return this.sidecar.log;
  }

  start() {
    return this.sidecar.start();
  }

  kill() {
    return this.sidecar.kill();
  }

  async restart() {
    await this.kill();
    await this.start();
  }

  /** What the probe says is wrong. */
  async verdict() {
    return (await ask(`${this.admin}/readyz?verbose`)).text;
  }
}

const isUnavailable = ({ status, json }) => status === 503 && json?.error === 'StoreUnavailable';

/** Lost, or unavailable and said how long; everything else must be a success. */
function isTrue(answer, success) {
  if (answer.lost || answer.status === success) return;
  const what = JSON.stringify([answer.status, answer.headers, answer.text]);
  assert.ok(isUnavailable(answer), what);
  assert.match(answer.headers['retry-after'] ?? '', /^[1-9]\d*$/, what);
}

const failed = (answer, success) =>
  answer.status === success ? undefined : (answer.text ?? answer.why ?? answer.status);

/** Everything that was sent to one sidecar, and what its tables must be then. */
export class Verifier {
  constructor(service) {
    Object.assign(this, { service, clock: 0, ready: [] });
    this.sent = new Map();
    this.subjects = new Map();
    /** Users of whose sessions nothing was acknowledged. */
    this.unknown = new Set();
  }

  /** A subject without an event. */
  async subject() {
    const open = async () => {
      const user = randomUUID();
      const ref = await this.service.sidecar.open(user, false);
      this.subjects.set(ref, user);
      return ref;
    };
    if (!this.ready.length) this.ready = await Promise.all(Array.from({ length: BATCH }, open));
    return this.ready.pop();
  }

  event(subject) {
    const [event] = events(1, [[subject]]);
    this.sent.set(event.event_id, event);
    return event;
  }

  async report(event) {
    event.sent ??= this.clock++;
    const answer = await this.service.sidecar.report(event.body, false);
    if (answer.status === 200) {
      event.answers.push(acknowledged(answer));
      event.acknowledged ??= this.clock++;
    }
    return answer;
  }

  /** Reports what was not acknowledged once more, kills the process, and compares its tables with
   * everything that was answered. */
  async examine() {
    for (const event of this.sent.values()) {
      if (event.answers.length) continue;
      const { status, text } = await this.report(event);
      assert.equal(status, 200, text);
    }
    await this.service.kill();
    const tables = {};
    for (const [name, sql] of Object.entries(TABLES)) {
      tables[name] = await rows(this.service.store, sql);
    }
    tables.sessions = tables.sessions.filter(({ subject_ref, user_id }) => {
      const isKnown = this.subjects.has(subject_ref);
      assert.ok(isKnown || this.unknown.has(user_id), `${subject_ref} was opened once`);
      return isKnown;
    });
    const count = agrees(tables, this.sent, this.subjects);
    assert.equal(count, this.sent.size, 'every event is in the ledger');
    return count;
  }
}

/** Events, each of a subject of its own. */
export class Webhook {
  name = 'webhook';

  constructor(verifier) {
    this.verifier = verifier;
  }

  async fresh() {
    return this.verifier.event(await this.verifier.subject());
  }

  send(event) {
    return this.verifier.report(event);
  }

  isTrue(answer) {
    isTrue(answer, 200);
  }

  failed(answer) {
    return failed(answer, 200);
  }

  /** The event is reported again, as by the verifier. */
  async settle(event) {
    const answer = await this.send(event);
    assert.equal(answer.status, 200, `an event again: ${answer.text ?? answer.why}`);
  }

  /** The same event until it is acknowledged, then another one. */
  async next() {
    this.pending ??= this.verifier.ready.length ? await this.fresh() : undefined;
    if (!this.pending) return this.#opened();
    const answer = await this.send(this.pending);
    if (answer.status === 200) this.pending = undefined;
    return this.failed(answer);
  }

  /** While subjects are missing, the next request is one that opens a session. */
  async #opened() {
    try {
      this.verifier.ready.push(await this.verifier.subject());
      return this.next();
    } catch (error) {
      return error.message;
    }
  }
}

/** Sessions, each of a user of its own. */
export class Session {
  name = 'age session';

  constructor(verifier) {
    this.verifier = verifier;
  }

  async fresh() {
    return { user: randomUUID() };
  }

  async send({ user }) {
    const { sidecar } = this.verifier.service;
    const headers = { authorization: `Bearer ${sidecar.token(user)}` };
    const answer = await ask(sidecar.url + SESSION, { method: 'POST', headers, agent: false });
    if (answer.status === 201) this.verifier.subjects.set(answer.json.subject_ref, user);
    else this.verifier.unknown.add(user);
    return answer;
  }

  isTrue(answer) {
    isTrue(answer, 201);
  }

  failed(answer) {
    return failed(answer, 201);
  }

  /** An acknowledged session takes an event. */
  async settle(_, { status, json }) {
    if (status !== 201) return;
    const event = this.verifier.event(json.subject_ref);
    const { status: taken, text } = await this.verifier.report(event);
    assert.equal(taken, 200, `an event of an acknowledged session: ${text}`);
  }

  async next() {
    return this.failed(await this.send(await this.fresh()));
  }
}
