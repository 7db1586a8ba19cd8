// strace on a running process, or around a command: it counts system calls, or tampers with one.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const LOOK_MS = 50;
const STUCK_MS = 5_000;
const FOLDER = mkdtempSync(join(tmpdir(), 'portcullis-strace.'));
process.once('exit', () => rmSync(FOLDER, { recursive: true, force: true }));
let traces = 0;

const options = (calls, { paths = [], inject, more = [] }, out) => [
  ...['-f', '-e', 'signal=SIGKILL', '-e', `trace=${calls.join(',')}`, '-o', out],
  ...paths.flatMap((path) => ['-P', path]),
  ...(inject ? ['-e', `inject=${inject}`] : []),
  ...more,
];

export class Trace {
  /** Traces all threads of a process. */
  static async attach(pid, calls, how = {}) {
    const trace = new Trace();
    trace.out = join(FOLDER, String((traces += 1)));
    const args = [...options(calls, how, trace.out), '-p', String(pid)];
    trace.child = spawn('strace', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    trace.gone = once(trace.child, 'exit');
    let said = '';
    const attached = new Promise((resolve) => {
      trace.child.stderr.on('data', (text) => {
        said += text;
        if (/attached/.test(said)) resolve(true);
      });
    });
    // one that is killed at its first call ends while strace attaches to its other threads
    const ended = trace.gone.then(([code]) => code === 0 && said === '');
    assert.ok(await Promise.race([attached, ended]), `strace cannot attach: ${said}`);
    return trace;
  }

  /** Runs a command under strace from its first instruction. */
  static async run(command, calls, how = {}) {
    const trace = new Trace();
    trace.out = join(FOLDER, String((traces += 1)));
    trace.gone = Promise.resolve();
    const child = spawn('strace', ['-q', ...options(calls, how, trace.out), ...command], {
      env: { ...process.env, ...how.env },
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (more) => (text += more));
    const [code, signal] = await once(child, 'close');
    return { code: signal ?? code, text, trace };
  }

  /** Waits until a delayed call has ended, or for as long as that takes. */
  async delayed(ms) {
    const end = Date.now() + ms;
    while (!this.isHit() && Date.now() < end) await pause(LOOK_MS);
  }

  /** Detaches; the process runs on. One that was killed may keep strace waiting. */
  async detach() {
    this.child.kill('SIGINT');
    const stuck = setTimeout(() => this.child.kill('SIGKILL'), STUCK_MS);
    await this.gone;
    clearTimeout(stuck);
  }

  lines() {
    return readFileSync(this.out, 'utf8').split('\n');
  }

  /** Whether a call was tampered with: also one that was delayed until its process was gone. */
  isHit() {
    return this.hits().length > 0;
  }

  /** The calls that were tampered with. */
  hits() {
    const hit = /INJECTED|DELAYED|killed by SIGKILL|= \?$/;
    const begun = new Map();
    return this.lines().flatMap((line) => {
      const thread = line.split(' ', 1)[0];
      const call = / resumed>/.test(line) ? begun.get(thread) + line : line;
      begun.set(thread, line);
      return hit.test(line) ? [call] : [];
    });
  }

  /** Whether a call failed that cannot fail: the release of a lock of a local file. */
  isImpossible() {
    return this.hits().some((call) => /F_UNLCK.*= -1.*INJECTED/.test(call));
  }

  /** How often a thread made each call, of the thread that made most. */
  counts() {
    const made = {};
    for (const line of this.lines()) {
      const [, thread, call] = /^(\d+) +(\w+)\(/.exec(line) ?? [];
      if (!call) continue;
      made[call] ??= {};
      made[call][thread] = (made[call][thread] ?? 0) + 1;
    }
    const most = ([call, threads]) => [call, Math.max(...Object.values(threads))];
    return Object.fromEntries(Object.entries(made).map(most));
  }

  remove() {
    rmSync(this.out, { force: true });
  }
}

/** Fails with the remedy when this process may not trace another one. */
export async function mustTrace() {
  const child = spawn('sleep', ['60']);
  try {
    const trace = await Trace.attach(child.pid, ['write']);
    await trace.detach();
  } catch (error) {
    const remedy = 'install strace; run as root, or with CAP_SYS_PTRACE and ptrace_scope 0';
    throw new Error(`${error.message}: ${remedy}`);
  } finally {
    child.kill('SIGKILL');
  }
}
