// `portcullis store import` under faults, next to a running server on the same store.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { rows } from '../crash/lib/tables.mjs';
import { Trace } from './lib/strace.mjs';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
/** Records of a file: more than one transaction of a batch, if it had several. */
const RECORDS = 40;
/** How long the next import may fail after a fault. */
const PATIENCE_MS = 10_000;
/** Exit codes: a file that cannot be read, and a store that is not available. */
const UNUSABLE = [2, 70];

export class Import {
  name = 'import';
  isCommand = true;
  made = 0;

  /** `server` runs on the same store; `webhook` is a request to it. */
  constructor(server, webhook) {
    Object.assign(this, { server, webhook });
  }

  async fresh() {
    this.made += 1;
    const did = `did:web:import-${this.made}.example`;
    const path = `${this.server.sidecar.folder}/import.ndjson`;
    const record = (at) => ({ type: 'follow', did, subject_did: `did:web:friend-${at}.example` });
    const lines = Array.from({ length: RECORDS }, (_, at) => JSON.stringify(record(at)));
    return { did, path, text: `${lines.join('\n')}\n` };
  }

  async send({ path, text }) {
    writeFileSync(path, text);
    const { config, env } = this.server.sidecar;
    const command = [PORTCULLIS, 'store', 'import', '--config', config, path];
    const { calls, ...how } = this.under ?? {};
    const { code, text: said, trace } = calls
      ? await Trace.run(command, calls, { ...how, env })
      : await plain(command, env);
    return { code, text: said, trace, lost: code === 'SIGKILL', why: code };
  }

  isTrue({ code, text, lost }) {
    if (code === 0 || lost) return;
    assert.ok(UNUSABLE.includes(code), `exit ${code}: ${text}`);
    assert.match(text, /^portcullis(:| store:) \S/m, `exit ${code} says why`);
  }

  failed({ code, text }) {
    return code === 0 ? undefined : `exit ${code}: ${text}`;
  }

  async #stored({ did }) {
    const sql = `SELECT count(*) AS stored FROM follow WHERE did = '${did}'`;
    const [{ stored }] = await rows(this.server.store, sql);
    return Number(stored);
  }

  /** A file is imported as a whole or not at all, and again it is stored once. */
  async settle(file, { code, text }) {
    const stored = await this.#stored(file);
    assert.ok(stored === RECORDS || (stored === 0 && code !== 0), `exit ${code}: ${stored} stored`);
    let again = await this.send(file);
    for (const end = Date.now() + PATIENCE_MS; again.code !== 0 && Date.now() < end; ) {
      again = await this.send(file);
    }
    assert.equal(again.code, 0, `${text} and then ${again.text}`);
    assert.equal(await this.#stored(file), RECORDS);
  }

  /** Another import succeeds, and so does a request to the server. */
  async next() {
    return this.failed(await this.send(await this.fresh())) ?? this.webhook.next();
  }

  /** The service of a sweep: a command that was killed needs no start. */
  get service() {
    return {
      start: async () => {},
      restart: () => this.server.restart(),
      verdict: () => this.server.verdict(),
    };
  }
}

function plain([program, ...args], env) {
  return new Promise((resolve) => {
    execFile(program, args, { env }, (error, stdout, stderr) => {
      resolve({ code: error ? (error.code ?? error.signal) : 0, text: stdout + stderr });
    });
  });
}
