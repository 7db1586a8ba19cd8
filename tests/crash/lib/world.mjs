// One network of a test: the contracts on a node, a proxy in front of the node, and relays that
// write through it. Relays start and stop; the folder with the journal and the keys stays.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Chain, History } from './chain.mjs';
import { Journal } from './journal.mjs';
import { place, prepare, startRelay } from './processes.mjs';
import { Proxy } from './proxy.mjs';
import { User, hex } from './stark.mjs';

/** How long any background process may take; only a failing test waits this long. */
const PATIENCE_MS = 90_000;
const LOOK_MS = 100;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Polls until there is an answer. */
export async function eventually(what, ask) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await ask();
    if (found) return found;
    assert.ok(Date.now() < end, `in time: ${what}`);
    await pause(LOOK_MS);
  }
}

/** The operations that give a user an account, an identity and an attestation, in this order. */
export function naturalisation(user) {
  const { address: account, identity, publicKey: public_key } = user;
  const attestation = {
    account,
    attestation_id: identity,
    assurance_type: 'age_over_18',
    assurance_level: 1,
    expires_at: '2099-01-01T00:00:00Z',
  };
  return [
    { path: '/faucet-drip', body: { identity, recipient: account, public_key } },
    user.deploy(),
    { path: '/register', body: { identity, account, public_key } },
    { path: '/verification-attest', body: attestation },
  ];
}

let worlds = 0;

export class World {
  /** On a node, with contracts and keys of its own. `env` is for its relays. */
  static async on(node, env = {}) {
    const world = new World();
    worlds += 1;
    world.folder = place(`network-${worlds}`);
    world.proxy = await Proxy.before(node.made);
    world.env = { PORTCULLIS__NODE__URL: world.proxy.url, ...env };
    world.relays = [];
    await world.prepareOn(node);
    return world;
  }

  /** Deploys the contracts on a node, with the keys in the folder, if there are any. */
  async prepareOn(node) {
    await prepare(node.made, this.folder);
    const config = readFileSync(`${this.folder}/portcullis.toml`, 'utf8');
    const pin = (name) => new RegExp(`^${name} = "(0x[0-9a-f]+)"`, 'm').exec(config)[1];
    const names = ['owner', 'verifier', 'faucet', 'card', 'usership', 'staking', 'registry'];
    this.pins = Object.fromEntries(names.map((name) => [name, pin(name)]));
    this.token = readFileSync(`${this.folder}/relay.token`, 'utf8').trim();
    await this.beginAt(node);
    const unit = { amount: 10 ** 24, unit: 'FRI' };
    await this.chain.read('devnet_mint', { address: this.pins.faucet, ...unit });
  }

  /** Excludes transactions before now: they are not the relay's. */
  async beginAt(node) {
    this.chain = new Chain(node.made);
    this.history = new History(this.chain, (await this.chain.height()) + 1);
    this.nonces = new Map();
    for (const role of ['owner', 'verifier', 'faucet']) {
      const address = this.pins[role];
      this.nonces.set(address, await this.chain.nonce(address));
    }
  }

  /** Selects the chain that the relays see from now on. */
  turnTo(node) {
    this.proxy.target = node.made;
  }

  /** A relay that is ready. `env` is for it alone. */
  async startRelay(env = {}) {
    const relay = await startRelay(this.folder, { ...this.env, ...env });
    this.relays.push(relay);
    await eventually('the relay is ready', async () => (await this.get('/readyz', relay)) === 200);
    return relay;
  }

  /** A relay that must start, but need not be ready. */
  async startRelayUnready() {
    const relay = await startRelay(this.folder, this.env);
    this.relays.push(relay);
    return relay;
  }

  get relay() {
    return this.relays.at(-1);
  }

  /** SIGKILL: no warning and no chance to clean up. */
  async kill(relay = this.relay) {
    await relay.kill('SIGKILL');
    this.relays = this.relays.filter((one) => one !== relay);
  }

  async get(path, relay = this.relay) {
    const headers = { authorization: `Bearer ${this.token}` };
    const answer = await fetch(relay.made + path, { headers });
    await answer.arrayBuffer();
    return answer.status;
  }

  /** Posts an operation. `lost` when no response arrived because the relay is dead. */
  async post({ path, body, key }, relay = this.relay) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' };
    if (key) headers['idempotency-key'] = key;
    try {
      const options = { method: 'POST', headers, body: JSON.stringify(body) };
      const answer = await fetch(relay.made + path, options);
      return reply(answer.status, await answer.json());
    } catch (error) {
      return { lost: true, status: 0, why: String(error.cause ?? error) };
    }
  }

  /** Posts an operation that must succeed. */
  async must(operation) {
    const answer = await this.post(operation);
    assert.equal(answer.status, 200, `${operation.path}: ${JSON.stringify(answer)}`);
    assert.ok(!answer.reason, `${operation.path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  journal() {
    return Journal.read(this.folder, this.env);
  }

  /** Waits until the journal has an outcome for every intent. */
  settled() {
    return eventually('the journal has nothing open', async () => {
      const journal = await this.journal();
      return journal.open().length === 0 && journal;
    });
  }

  /** A user with an account, an identity and an attestation, all made through the relay. */
  async citizen() {
    const user = new User();
    for (const operation of naturalisation(user)) await this.must(operation);
    return user;
  }

  async close() {
    await Promise.all(this.relays.map((relay) => relay.kill('SIGKILL')));
    await this.proxy.close();
  }
}

/** A response of either surface: the hash in it, or the reason of the refusal. */
export function reply(status, json) {
  const error = json.error?.data ?? json.error;
  const of = json.result ?? error ?? json;
  const hash = of.transaction_hash ? hex(of.transaction_hash) : '';
  return { status, hash, reason: error?.reason };
}
