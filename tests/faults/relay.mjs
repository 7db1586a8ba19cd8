// The relay under faults: drips, cards, and users' own transactions, on a real chain.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { approval, drip, mint, underKey } from '../crash/lib/operations.mjs';
import { ask, freePort } from '../crash/lib/sidecar.mjs';
import { once } from '../crash/lib/truth.mjs';
import { World, reply } from '../crash/lib/world.mjs';
import { NodeWay } from './lib/node_way.mjs';

/** Users of one world: each signs one transaction at a time. */
export const USERS = 4;
/** How long the outcome of a request may take; only a failing test waits this long. */
const PATIENCE_MS = 40_000;
const AGAIN_MS = 200;
/** Operations that are repeated together at the end. */
const AT_ONCE = 24;

/** A relay on contracts of its own, with a way to the node, which restarts on its store. */
export class RelayService {
  static async on(node, { url: store, direct, env = {}, users = USERS } = {}) {
    const service = new RelayService();
    const [admin, sidecar] = [await freePort(), await freePort()].map((at) => `127.0.0.1:${at}`);
    const way = await NodeWay.before(node.made);
    const world = await World.on(node, {
      PORTCULLIS__NODE__URL: way.url,
      PORTCULLIS__ADMIN__LISTEN: admin,
      PORTCULLIS__SIDECAR__LISTEN: sidecar,
      PORTCULLIS__RELAY__MAX_IN_FLIGHT_PER_CLIENT: '100000',
      ...(store && { PORTCULLIS__STORE__URL: store }),
      ...env,
    });
    const file = `sqlite:${world.folder}/portcullis.db`;
    const urls = { admin: `http://${admin}`, sidecar: `http://${sidecar}` };
    Object.assign(service, { world, way, ...urls, store: direct ?? store ?? file });
    await service.start();
    service.users = [];
    while (service.users.length < users) service.users.push(await world.citizen());
    return service;
  }

  get pid() {
    return this.world.relay.child.pid;
  }

  get gone() {
    return this.world.relay.gone;
  }

  start() {
    this.world.relays = [];
    return this.world.startRelay();
  }

  kill() {
    return this.world.relay.kill();
  }

  async restart() {
    await this.kill();
    await this.start();
  }

  async verdict() {
    return (await ask(`${this.admin}/readyz?verbose`)).text;
  }

  async close() {
    await this.world.close();
    this.way.close();
  }

  /** Posts an operation on a connection of its own. */
  async post({ path, body, key }) {
    const headers = { authorization: `Bearer ${this.world.token}` };
    if (key) headers['idempotency-key'] = key;
    const options = { method: 'POST', body: JSON.stringify(body), agent: false };
    headers['content-type'] = 'application/json';
    const answer = await ask(this.world.relay.made + path, { ...options, headers });
    if (answer.lost) return answer;
    const { headers: fields, text } = answer;
    return { ...reply(answer.status, answer.json), headers: fields, text };
  }
}

/** What a relay may answer while something is broken. */
const TRUE = {
  502: /^upstream_/,
  503: /^(store_unavailable|pins_unproven|overloaded|upstream_\w+|faucet_empty)$/,
  504: /^outcome_unknown$/,
  409: /^in_progress$/,
};

/** One kind of operation, and everything that was requested of it. */
class Operations {
  constructor(service, name, make) {
    Object.assign(this, { service, name, make, made: 0 });
    /** Each operation with its latest answer. */
    this.requested = new Map();
  }

  /** Every other one has an idempotency key. */
  async fresh() {
    this.made += 1;
    const operation = await this.make(this.service, this.made);
    return this.made % 2 ? underKey(operation) : operation;
  }

  async send(operation) {
    const answer = await this.service.post(operation);
    this.requested.set(operation, answer);
    return answer;
  }

  isTrue({ lost, status, reason, hash, text }) {
    if (lost || (status === 200 && !reason) || (status === 202 && hash)) return;
    assert.match(reason ?? '', TRUE[status] ?? /^\b$/, `${status} ${text}`);
    if (status === 504) assert.match(hash, /^0x/, text);
  }

  failed({ status, reason, text, why }) {
    return status === 200 && !reason ? undefined : (text ?? why);
  }

  /** How often it happened so far. */
  async #happened(operation) {
    await this.service.world.history.read();
    return operation.happened(this.service.world);
  }

  /** What was answered is so, and the request again has the outcome, which is one transaction. */
  async settle(operation, { lost, status, reason, hash, text }) {
    const before = await this.#happened(operation);
    const what = `${operation.path} answered ${status} ${text}`;
    assert.ok(before <= 1, `${what} happened ${before} times`);
    if (status === 200 && !reason) assert.equal(before, 1, what);
    if (!lost && status !== 200 && !hash && reason !== 'in_progress') assert.equal(before, 0, what);
    const last = await this.#answered(operation);
    assert.equal(await this.#happened(operation), 1, `${what} and then ${last.text}`);
    // an unknown outcome may be that nothing was sent, and then it is another transaction
    if (hash && last.hash && status < 300) assert.equal(last.hash, hash, what);
    this.done(operation);
  }

  async #answered(operation) {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      const answer = await this.send(operation);
      if (!this.failed(answer) || answer.reason === 'faucet_cooldown') return answer;
      this.isTrue(answer);
      assert.ok(Date.now() < end, `no outcome of ${operation.path}: ${answer.text}`);
      await pause(AGAIN_MS);
    }
  }

  /** The same request until it has an outcome. */
  async next() {
    this.pending ??= await this.fresh();
    const answer = await this.send(this.pending);
    // it was accepted, and its receipt is late
    if (answer.status === 202) return undefined;
    const failed = answer.reason === 'faucet_cooldown' ? undefined : this.failed(answer);
    if (failed) return failed;
    this.done(this.pending);
    this.pending = undefined;
    return undefined;
  }

  done() {}

  /** Compares everything with the journal and the chain, and repeats it. */
  async examine() {
    const requested = [...this.requested];
    while (requested.length) {
      const some = requested.splice(0, AT_ONCE);
      const [operations, answers] = [0, 1].map((at) => some.map((entry) => entry[at]));
      await once(this.service.world, operations, answers);
    }
  }
}

/** Users' own transactions: a user signs the next one once the last one has its outcome. */
class Invokes extends Operations {
  constructor(service) {
    super(service, 'invoke', async () => {
      this.free ??= new Set(service.users);
      // a user whose transaction has no outcome yet is not free
      const [user = await service.world.citizen()] = this.free;
      this.free.delete(user);
      return Object.assign(approval(user, service.world), { user });
    });
  }

  async send(operation) {
    const answer = await super.send(operation);
    if (!this.failed(answer)) this.done(operation);
    return answer;
  }

  done({ user }) {
    this.free.add(user);
  }
}

export const KINDS = {
  drip: (service) => new Operations(service, 'drip', () => drip()),
  mint: (service) => new Operations(service, 'mint', () => mint(service.users[0])),
  invoke: (service) => new Invokes(service),
};
