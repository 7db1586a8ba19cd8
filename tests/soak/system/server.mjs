// One `portcullis serve` with fixed addresses, over restarts, reloads and upgrades of its process.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { openSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ask, freePort } from '../../crash/lib/sidecar.mjs';

const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
/** The name that the kernel shows of the program. */
const COMMAND = basename(PORTCULLIS).slice(0, 15);
export const SURFACES = ['gateway', 'relay', 'sidecar', 'admin'];
/** Only a run that has failed waits this long. */
const PATIENCE_MS = 90_000;
const POLL_MS = 50;

/** Polls until there is an answer. */
export async function until(what, check) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await check();
    if (found) return found;
    assert.ok(Date.now() < end, `in time: ${what}`);
    await pause(POLL_MS);
  }
}

const read = (path) => {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
};

export class Server {
  /** Chooses the addresses. `settings` are environment variables, `config` is its file. */
  static async at({ name, folder, config, settings, surfaces = SURFACES }) {
    const server = new Server();
    Object.assign(server, { name, config, log: `${folder}/${name}.log`, mark: randomUUID() });
    server.env = { ...settings, SOAK_SERVER: server.mark };
    for (const surface of surfaces) {
      const address = `127.0.0.1:${await freePort()}`;
      server[surface] = `http://${address}`;
      server.env[`PORTCULLIS__${surface.toUpperCase()}__LISTEN`] = address;
    }
    return server;
  }

  /** The address that Prometheus scrapes, as its label. */
  get target() {
    return new URL(this.admin).host;
  }

  async start() {
    const out = openSync(this.log, 'a');
    const env = { ...process.env, ...this.env };
    const child = spawn(PORTCULLIS, ['serve', '--config', this.config], {
      env,
      stdio: ['ignore', out, out],
    });
    let ended = null;
    child.once('exit', (code, signal) => (ended = `${code ?? signal}`));
    await until(`${this.name} is ready`, async () => {
      assert.equal(ended, null, `${this.name} did not start: see ${this.log}`);
      return (await ask(`${this.admin}/readyz`)).status === 200;
    });
  }

  /** Its processes, the newest last: during an upgrade there are two. */
  pids() {
    const marked = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => ({ pid: Number(pid), stat: read(`/proc/${pid}/stat`).split(') ') }))
      // not the shell in between, nor one that has ended
      .filter(({ stat }) => stat[0].endsWith(`(${COMMAND}`) && !/^[ZX]/.test(stat[1] ?? 'X'))
      .filter(({ pid }) => read(`/proc/${pid}/environ`).includes(`SOAK_SERVER=${this.mark}\0`));
    const started = ({ stat }) => Number(stat[1].split(' ')[19]);
    return marked.sort((one, other) => started(one) - started(other)).map(({ pid }) => pid);
  }

  signal(name) {
    process.kill(this.pids().at(-1), name);
  }

  /** Changes the configuration file at once, and has it read. */
  reload(change) {
    const text = change(readFileSync(this.config, 'utf8'));
    writeFileSync(`${this.config}.new`, text);
    renameSync(`${this.config}.new`, this.config);
    this.signal('SIGHUP');
  }

  /** Another process takes the sockets; resolves when the first has ended. */
  async upgrade() {
    const [first] = this.pids();
    this.signal('SIGUSR2');
    await until(`${this.name} is upgraded`, () => {
      const pids = this.pids();
      return pids.length === 1 && pids[0] !== first;
    });
  }

  /** Ends every process of it. */
  async end(signal = 'SIGKILL') {
    for (const pid of this.pids()) process.kill(pid, signal);
    await until(`${this.name} has ended`, () => this.pids().length === 0);
  }

  /** Memory in MiB, open files and threads of each process. */
  usage() {
    return this.pids().flatMap((pid) => {
      const status = read(`/proc/${pid}/status`);
      const number = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
      const rss = number('VmRSS') / 1024;
      if (!rss) return [];
      try {
        const files = readdirSync(`/proc/${pid}/fd`).length;
        return [{ pid, rss, files, threads: number('Threads') }];
      } catch {
        return []; // it has ended meanwhile
      }
    });
  }
}
