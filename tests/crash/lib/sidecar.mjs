// A sidecar on a store of its own: configured, started, killed, restarted at the same address.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHmac, randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const run = promisify(execFile);
/** How long any background process may take; only a failing test waits this long. */
const PATIENCE_MS = 90_000;
/** A slower response counts as lost; the sidecar gives up on a database after 5 s. */
const ANSWER_MS = 30_000;
const LOOK_MS = 20;

export const SESSION = '/functions/age-verification-session';
export const WEBHOOK = '/functions/age-verifier-webhook';

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

/** One request. `lost` when the connection broke before the whole response arrived. */
export async function ask(url, { method = 'GET', headers = {}, body = '', agent } = {}) {
  const lengthy = body && { 'content-length': Buffer.byteLength(body) };
  const request = http.request(url, { method, headers: { ...headers, ...lengthy }, agent });
  const late = new Error(`${method} ${url} had no answer in ${ANSWER_MS} ms`);
  request.setTimeout(ANSWER_MS, () => request.destroy(late));
  try {
    request.end(body);
    const [answer] = await once(request, 'response');
    const said = await text(answer);
    const isJson = /^application\/json\b/.test(answer.headers['content-type'] ?? '');
    const json = isJson && said ? JSON.parse(said) : undefined;
    return { status: answer.statusCode, headers: answer.headers, text: said, json };
  } catch (error) {
    if (error === late || !error.code) throw error;
    return { lost: true, status: 0, why: error.code, isReused: request.reusedSocket };
  }
}

/** A keep-alive connection, for one request after the other. */
export const connection = () => new http.Agent({ keepAlive: true, maxSockets: 1 });

/** A free loopback port, the same before and after a crash: below the ports that the system gives
 * to outgoing connections, one of which could have it meanwhile. */
export async function freePort() {
  for (;;) {
    const port = randomInt(10_000, 32_000);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch {
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

const configuration = ({ folder, port, store }) => `
[node]
url = "http://127.0.0.1:9"
[store]
url = "${store}"
[sidecar]
listen = "127.0.0.1:${port}"
base_url = "https://cards.example"
requests_per_minute = 1000000000
max_in_flight_per_client = 100000
[sidecar.session]
hs256_secret_files = ["${folder}/session.key"]
[sidecar.age]
webhook_secret_files = ["${folder}/webhook.key"]
`;

const base64 = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');

/** The secrets of a sidecar, and requests that need one. */
export class Caller {
  constructor({ url, sessionSecret, webhookSecret }) {
    Object.assign(this, { url, sessionSecret, webhookSecret });
  }

  /** The token of a signed-in user. */
  token(user) {
    const now = Math.floor(Date.now() / 1000);
    const claims = { sub: user, aud: 'authenticated', role: 'authenticated', is_anonymous: false };
    const signed = [{ alg: 'HS256', typ: 'JWT' }, { ...claims, iat: now, exp: now + 3600 }];
    const payload = signed.map(base64).join('.');
    const mac = createHmac('sha256', this.sessionSecret).update(payload);
    return `${payload}.${mac.digest('base64url')}`;
  }

  /** The verifier's signature of a body. */
  signature(body) {
    return createHmac('sha256', this.webhookSecret).update(body).digest('hex');
  }

  /** Requests a session of a user. */
  request(user, agent) {
    const headers = { authorization: `Bearer ${this.token(user)}` };
    return ask(this.url + SESSION, { method: 'POST', headers, agent });
  }

  /** Requests the age status of a user. */
  status(user, agent) {
    const headers = { authorization: `Bearer ${this.token(user)}` };
    return ask(this.url + SESSION, { headers, agent });
  }

  /** Opens a session of a user, and returns its reference. */
  async open(user, agent) {
    const answer = await this.request(user, agent);
    assert.equal(answer.status, 201, answer.text);
    return answer.json.subject_ref;
  }

  /** Reports an event as the verifier does. */
  report(body, agent) {
    const headers = {
      'content-type': 'application/json',
      'x-service-verifier-signature': this.signature(body),
    };
    return ask(this.url + WEBHOOK, { method: 'POST', headers, body, agent });
  }
}

export class Sidecar extends Caller {
  /** Creates a sidecar's files in `folder`, and its tables in the store at a URL. `env` overrides
   * its configuration. */
  static async on(store, folder, env = {}) {
    const sidecar = new Sidecar({});
    mkdirSync(folder, { recursive: true });
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    Object.assign(sidecar, { store, folder, starts: 0, url, env: { ...process.env, ...env } });
    sidecar.sessionSecret = sidecar.#secret('session.key');
    sidecar.webhookSecret = sidecar.#secret('webhook.key');
    sidecar.config = `${folder}/portcullis.toml`;
    writeFileSync(sidecar.config, configuration({ folder, port, store }));
    await sidecar.run('store', 'migrate');
    return sidecar;
  }

  /** Runs a command of the program on its configuration. */
  run(group, command, ...args) {
    return run(PORTCULLIS, [group, command, '--config', this.config, ...args], { env: this.env });
  }

  #secret(name) {
    const secret = randomBytes(32).toString('hex');
    writeFileSync(`${this.folder}/${name}`, `${secret}\n`, { mode: 0o600 });
    return secret;
  }

  get pid() {
    return this.child.pid;
  }

  async start() {
    this.starts += 1;
    this.log = `${this.folder}/sidecar-${this.starts}.log`;
    const out = openSync(this.log, 'a');
    this.child = spawn(PORTCULLIS, ['serve', '--config', this.config], {
      stdio: ['ignore', out, out],
      env: this.env,
    });
    closeSync(out);
    this.gone = once(this.child, 'exit').then(([code, signal]) => `exit ${code ?? signal}`);
    let ended;
    this.gone.then((why) => (ended = why));
    await eventually('the sidecar answers', async () => {
      assert.equal(ended, undefined, `the sidecar did not come up: see ${this.log}`);
      return (await ask(`${this.url}/healthz`)).status === 200;
    });
  }

  /** SIGKILL: no warning and no chance to clean up. */
  async kill(signal = 'SIGKILL') {
    this.child?.kill(signal);
    return this.gone;
  }
}
