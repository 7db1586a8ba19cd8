// A sidecar on a store of its own: configured, filled, started, observed, ended. PORTCULLIS names
// the binary; a store on PostgreSQL is a database of its own on the server that
// PORTCULLIS_TEST_POSTGRES names. At the end neither the log nor the metrics may hold a secret.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { SignJWT } from 'jose';
import { Child } from './relay_world.mjs';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const run = promisify(execFile);

/** The public URL of the sidecar; its listen address differs. */
export const BASE_URL = 'https://cards.example';
export const SERVICE_DID = 'did:web:cards.example';

/** Generated for each run: 32 random bytes as text. */
export const freshSecret = () => randomBytes(32).toString('hex');

/** Strings, numbers, booleans and lists of them look the same in JSON and in TOML. */
function toml(tables) {
  const lines = ([key, value]) => `${key} = ${JSON.stringify(value)}\n`;
  return Object.entries(tables)
    .map(([name, keys]) => `[${name}]\n${Object.entries(keys).map(lines).join('')}`)
    .join('\n');
}

/** A fresh database on the test server, and a function that drops it. */
async function freshDatabase() {
  const server = process.env.PORTCULLIS_TEST_POSTGRES;
  assert.ok(server, 'PORTCULLIS_TEST_POSTGRES is not set: tests/lib/postgres.sh sets it');
  const name = `sidecar_${randomBytes(6).toString('hex')}`;
  const sql = (text) => run('psql', ['-qv', 'ON_ERROR_STOP=1', '-c', text, `${server}postgres`]);
  await sql(`CREATE DATABASE ${name}`);
  return { url: server + name, drop: () => sql(`DROP DATABASE ${name} WITH (FORCE)`) };
}

/** One request: status, headers, and the body as text and, if it is JSON, parsed. */
async function ask(url, init = {}) {
  const answer = await fetch(url, init);
  const text = await answer.text();
  const isJson = /^application\/(health\+)?json\b/.test(answer.headers.get('content-type') ?? '');
  const json = isJson && text !== '' ? JSON.parse(text) : undefined;
  return { status: answer.status, headers: answer.headers, text, json };
}

export class Sidecar {
  /** `settings` adds tables to the configuration, or keys to its tables. */
  static async start({ content = [], settings = {}, postgres = false } = {}) {
    const sidecar = new Sidecar();
    sidecar.dir = await mkdtemp(join(tmpdir(), 'portcullis-sidecar-'));
    // Values that no log line and no metric may hold.
    sidecar.secrets = new Set();
    sidecar.sessionSecret = freshSecret();
    // During a rotation there are two.
    Object.assign(sidecar, { webhookSecret: freshSecret(), nextWebhookSecret: freshSecret() });
    try {
      if (postgres) sidecar.database = await freshDatabase();
      await sidecar.configure(settings);
      await sidecar.run('store', 'migrate');
      if (content.length > 0) await sidecar.load(content);
      await sidecar.serve();
    } catch (error) {
      await sidecar.clear();
      throw error;
    }
    return sidecar;
  }

  async configure(settings) {
    const session = await this.secretFile('session.key', this.sessionSecret);
    const webhook = [
      await this.secretFile('webhook.key', this.webhookSecret),
      await this.secretFile('webhook.next.key', this.nextWebhookSecret),
    ];
    const tables = {
      node: { url: 'http://127.0.0.1:9' },
      log: { format: 'json', level: 'debug' },
      admin: { listen: '127.0.0.1:0' },
      store: { url: this.database?.url ?? `sqlite:${join(this.dir, 'portcullis.db')}` },
      // Tests send more requests than any one client does.
      sidecar: {
        listen: '127.0.0.1:0',
        base_url: BASE_URL,
        requests_per_minute: 1_000_000,
        max_in_flight_per_client: 1000,
      },
      'sidecar.session': { hs256_secret_files: [session] },
      'sidecar.age': { webhook_secret_files: webhook },
    };
    for (const [name, keys] of Object.entries(settings)) {
      tables[name] = { ...tables[name], ...keys };
    }
    this.config = join(this.dir, 'portcullis.toml');
    await writeFile(this.config, toml(tables));
  }

  /** Writes a secret to a file that only its owner reads. Returns the file's name. */
  async secretFile(name, secret) {
    this.keep(secret);
    const file = join(this.dir, name);
    await writeFile(file, `${secret}\n`, { mode: 0o600 });
    return file;
  }

  /** Marks a value as secret, and returns it. */
  keep(value) {
    this.secrets.add(value);
    return value;
  }

  run(command, subcommand, ...args) {
    return run(PORTCULLIS, [command, subcommand, '--config', this.config, ...args]);
  }

  /** Imports records into the store, as the product's backend may do at any time. */
  async load(records) {
    const file = join(this.dir, `${randomBytes(6).toString('hex')}.ndjson`);
    await writeFile(file, records.map((record) => `${JSON.stringify(record)}\n`).join(''));
    await this.run('store', 'import', '--base-url', BASE_URL, file);
  }

  async serve() {
    this.child = new Child(PORTCULLIS, ['serve', '--config', this.config]);
    const url = async (surface) => {
      const line = new RegExp(`"listening","surface":"${surface}","address":"([^"]+)"`);
      const [, address] = await this.child.says(line);
      return `http://${address}`;
    };
    this.url = await url('sidecar');
    this.admin = await url('admin');
  }

  /** One request to a path of the sidecar. */
  ask(path, init) {
    return ask(this.url + path, init);
  }

  /** A session of the platform: the token that its login issues, with extra `claims`. */
  async session(user, claims = {}) {
    const now = Math.floor(Date.now() / 1000);
    const token = await new SignJWT({
      iss: 'https://login.cards.example/auth/v1',
      aud: 'authenticated',
      role: 'authenticated',
      sub: user,
      iat: now,
      exp: now + 3600,
      email: this.keep(`${user}@mail.example`),
      is_anonymous: false,
      ...claims,
    })
      .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
      .sign(Buffer.from(this.sessionSecret));
    return this.keepToken(token);
  }

  /** Marks a token as secret, whole or in its sensitive parts. */
  keepToken(token) {
    const [, payload, signature] = token.split('.');
    for (const part of [payload, signature]) if (part?.length >= 16) this.keep(part);
    return token;
  }

  /** Ends it, and searches all of its output for secrets. */
  async end() {
    try {
      const metrics = await ask(`${this.admin}/metrics`);
      const code = await this.child.end();
      assert.equal(code, 0, this.child.output);
      this.saysNothing(`${this.child.output}\n${metrics.text}`);
    } finally {
      await this.clear();
    }
  }

  saysNothing(said) {
    for (const part of ['"listening"', '"surface":"sidecar"', 'portcullis_']) {
      assert.ok(said.includes(part), `${part} is missing from what was searched`);
    }
    const all = said.toLowerCase();
    for (const value of this.secrets) {
      assert.ok(value.length >= 8, `too short to be looked for: ${value}`);
      const at = all.indexOf(value.toLowerCase());
      const around = said.slice(Math.max(0, at - 300), at + 300);
      assert.equal(at, -1, `${value} got out: …${around}…`);
    }
  }

  async clear() {
    await this.child?.end('SIGKILL');
    await rm(this.dir, { recursive: true, force: true });
    await this.database?.drop();
  }
}
