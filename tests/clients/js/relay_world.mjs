// Processes of the relay's tests: a node, a proxy to it that can be observed, and a gateway and a
// relay in front. PORTCULLIS names the binary; starknet-devnet is found on PATH. Everything listens
// on free ports and ends with its test.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const run = promisify(execFile);
const PATIENCE = 60_000;

/** Polls `look` until it returns something, and returns that. */
export async function eventually(what, look) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `still waiting: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const children = new Set();
process.on('exit', () => children.forEach((child) => child.process.kill('SIGKILL')));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

/** Ends everything that was started, in this order, even when one of them reports an error. */
export async function endAll(...started) {
  const faults = [];
  for (const one of started) await one?.end().catch((fault) => faults.push(fault));
  if (faults.length > 0) throw faults[0];
}

/** A child process whose output is recorded, and which ends with this process at the latest. */
export class Child {
  constructor(command, args, env = {}) {
    this.output = '';
    this.process = spawn(command, args, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.ended = new Promise((resolve) => {
      this.process.on('close', resolve);
      this.process.on('error', (error) => resolve(this.keep(`${error}\n`)));
    });
    children.add(this);
    this.ended.then(() => {
      this.hasEnded = true;
      children.delete(this);
    });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => this.keep(text));
    }
  }

  keep(text) {
    this.output += text;
  }

  /** The first match of `pattern` in its output. */
  says(pattern) {
    return eventually(`${this.process.spawnfile} to say ${pattern}`, () => {
      assert.ok(!this.hasEnded, `${this.process.spawnfile} ended:\n${this.output}`);
      return this.output.match(pattern);
    });
  }

  /** Ends it, and returns its exit code. */
  end(signal = 'SIGTERM') {
    this.process.kill(signal);
    return this.ended;
  }
}

/** One POST of JSON: status, headers, and the body as text and as JSON. */
export async function post(url, body, headers = {}) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, json: JSON.parse(text) };
}

/** A node. Tests change it directly. */
export class Node {
  static async start(...more) {
    const node = new Node();
    const chain = ['--seed', '0', '--chain-id', 'PORTCULLIS_DEV'];
    const args = ['--host', '127.0.0.1', '--port', '0', ...chain, ...more];
    node.child = new Child('starknet-devnet', args);
    const [, address] = await node.child.says(/listening on (127\.0\.0\.1:\d+)/);
    node.url = `http://${address}/rpc`;
    return node;
  }

  async ask(method, params = {}) {
    const { json } = await post(this.url, { jsonrpc: '2.0', id: 1, method, params });
    assert.ok(!json.error, `${method}: ${JSON.stringify(json.error)}`);
    return json.result;
  }

  /** Advances its clock, and the chain's with a block. */
  later(seconds) {
    return this.ask('devnet_increaseTime', { time: seconds });
  }

  createBlock() {
    return this.ask('devnet_createBlock');
  }

  /** The seconds since 1970 of its newest block. */
  async time() {
    const block = await this.ask('starknet_getBlockWithTxHashes', { block_id: 'latest' });
    return block.timestamp;
  }

  end() {
    // A gentler signal would save nothing.
    return this.child.end('SIGKILL');
  }
}

/** A proxy to a node that counts requests, and awaits `before` and `after` around a write. */
export class Way {
  static async to(node) {
    const way = new Way();
    way.writes = [];
    way.server = createServer((request, response) => {
      way.pass(node, request, response).catch(() => response.destroy());
    });
    await new Promise((resolve) => way.server.listen(0, '127.0.0.1', resolve));
    way.url = `http://127.0.0.1:${way.server.address().port}/rpc`;
    return way;
  }

  async pass(node, request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = Buffer.concat(pieces);
    const call = JSON.parse(body);
    const isWrite = call.method?.startsWith('starknet_add');
    if (isWrite) {
      this.writes.push(call);
      await this.before?.(call);
    }
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(node.url, { method: 'POST', headers, body });
    const text = await answer.text();
    if (isWrite) await this.after?.(call);
    response.writeHead(answer.status, headers).end(text);
  }

  end() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** A gateway and a relay on contracts of their own. */
export class Portcullis {
  /** `env` overrides the configuration; without `v2` the last step is left to the test. */
  static async start(node, { v2 = true, env = {}, way = node, prepareBy = node } = {}) {
    const portcullis = new this();
    const dir = await mkdtemp(join(tmpdir(), 'portcullis-relay-'));
    const config = join(dir, 'portcullis.toml');
    // `signatures` must not leak; `log` and `said` collect every log line and response.
    Object.assign(portcullis, { node, dir, config, log: '', said: [], signatures: new Set() });
    portcullis.env = {
      PORTCULLIS__LOG__FORMAT: 'json',
      PORTCULLIS__LOG__LEVEL: 'debug',
      PORTCULLIS__NODE__URL: way.url,
      // Tests send more requests than any one client does.
      PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE: '100000',
      PORTCULLIS__GATEWAY__MAX_IN_FLIGHT_PER_CLIENT: '1000',
      PORTCULLIS__RELAY__REQUESTS_PER_MINUTE: '100000',
      ...env,
    };
    try {
      const more = v2 ? [] : ['--without-v2'];
      await run(PORTCULLIS, ['dev', '--node', prepareBy.url, '--state', dir, '--prepare', ...more]);
      await portcullis.readPins();
      await portcullis.readSecrets();
      await portcullis.serve();
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
    return portcullis;
  }

  async readPins() {
    const [, text] = (await readFile(this.config, 'utf8')).split('[relay.pins]\n');
    const pairs = text.split('\n\n')[0].matchAll(/^(\w+) = "(.+)"$/gm);
    this.pins = Object.fromEntries([...pairs].map(([, key, value]) => [key, value]));
  }

  async readSecrets() {
    const read = async (name) => (await readFile(join(this.dir, name), 'utf8')).trim();
    this.token = await read('relay.token');
    this.secrets = [this.token];
    for (const name of ['owner', 'verifier', 'faucet']) {
      const key = BigInt(await read(`${name}.key`));
      this.secrets.push(key.toString(16), key.toString(10));
    }
  }

  async serve() {
    const surfaces = ['GATEWAY', 'RELAY', 'SIDECAR', 'ADMIN'];
    const free = surfaces.map((surface) => [`PORTCULLIS__${surface}__LISTEN`, '127.0.0.1:0']);
    const env = { ...Object.fromEntries(free), ...this.env };
    this.child = new Child(PORTCULLIS, ['serve', '--config', this.config], env);
    const url = async (surface) => {
      const line = new RegExp(`"listening","surface":"${surface}","address":"([^"]+)"`);
      const [, address] = await this.child.says(line);
      return `http://${address}`;
    };
    this.gateway = `${await url('gateway')}/rpc`;
    this.relay = await url('relay');
    this.sidecar = await url('sidecar');
    this.admin = await url('admin');
  }

  /** Ends the process and starts it again, by default on the same configuration. */
  async restart(env = {}) {
    await this.stop();
    Object.assign(this.env, env);
    await this.serve();
  }

  async stop() {
    const metrics = await fetch(`${this.admin}/metrics`);
    this.said.push(await metrics.text());
    const code = await this.child.end();
    this.log += this.child.output;
    assert.equal(code, 0, this.child.output);
  }

  /** One POST with the token. */
  async post(path, body, headers = {}) {
    const authorization = `Bearer ${this.token}`;
    const answer = await post(this.relay + path, body, { authorization, ...headers });
    this.hears(answer);
    return answer;
  }

  async get(path) {
    const headers = { authorization: `Bearer ${this.token}` };
    const answer = await fetch(this.relay + path, { headers });
    const text = await answer.text();
    this.hears({ headers: answer.headers, text });
    return { status: answer.status, headers: answer.headers, text, json: JSON.parse(text) };
  }

  hears({ headers, text }) {
    this.said.push(JSON.stringify([...headers]), text);
  }

  /** What `portcullis journal` prints. */
  async journal(...args) {
    const { stdout } = await run(PORTCULLIS, ['journal', '--config', this.config, ...args], {
      env: { ...process.env, ...this.env },
      maxBuffer: 64 << 20,
    });
    return stdout;
  }

  /** The journal's entries, oldest first. */
  async entries() {
    const lines = (await this.journal('export')).trim().split('\n');
    return lines.filter(Boolean).map((line) => JSON.parse(line));
  }

  /** Ends it, and searches for secrets in everything it logged, returned or stored. */
  async end() {
    try {
      await this.stop();
      await this.keepsItsSecrets();
    } finally {
      await rm(this.dir, { recursive: true, force: true });
    }
  }

  async keepsItsSecrets() {
    for (const signature of this.signatures) {
      assert.ok(!this.log.includes(signature), 'a signature is in the log');
    }
    this.said.push(this.log, await this.journal('export'));
    this.said.push(await this.journal('list', '--last', '100000'));
    const stores = (await readdir(this.dir)).filter((name) => name.includes('portcullis.db'));
    for (const name of stores) this.said.push(await readFile(join(this.dir, name), 'latin1'));
    const all = this.said.join('\n').toLowerCase();
    for (const part of ['"listening"', 'portcullis_relay', '"ok":true', '"prev_hash"']) {
      assert.ok(all.includes(part), `${part} is missing from what was searched`);
    }
    for (const secret of this.secrets) {
      assert.ok(secret.length >= 32 && !all.includes(secret.toLowerCase()), 'a secret got out');
    }
  }
}
