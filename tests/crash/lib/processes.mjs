// The processes of a test: the node, the relay, PostgreSQL. Real ones, which can be killed and
// paused. Any process still running after the tests is ended then.
import { execFile, spawn } from 'node:child_process';
import { createWriteStream, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const NODE = process.env.STARKNET_DEVNET ?? 'starknet-devnet';
const file = (path) => fileURLToPath(new URL(`../../${path}`, import.meta.url));

const alive = new Set();
const FOLDER = mkdtempSync(join(tmpdir(), 'portcullis-crash.'));

/** A new folder below the folder of this run. */
export const place = (name) => join(FOLDER, name);

/** Ends every remaining process, and removes their files unless these are to be inspected. */
export async function endAll(keep) {
  await Promise.all([...alive].map((one) => one.kill('SIGKILL')));
  if (keep) console.log(`what the processes wrote is in ${FOLDER}`);
  else rmSync(FOLDER, { recursive: true, force: true });
}

/** Runs a test program: its exit code is what `main` returns, and its processes end in any case. */
export async function program(main, { keep, end = endAll }) {
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => end(true).then(() => process.exit(130)));
  }
  let code = 1;
  try {
    code = await main();
  } finally {
    await end(keep || code !== 0);
  }
  process.exit(code);
}

/** A child process whose output lines are read until `ready` returns a value. */
class Process {
  static async start(command, args, { env = {}, log, ready }) {
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: 'pipe' });
    const self = new Process();
    self.child = child;
    self.gone = new Promise((resolve) => {
      child.once('exit', resolve);
      child.once('error', resolve);
    }).finally(() => alive.delete(self));
    alive.add(self);
    const out = createWriteStream(log, { flags: 'a' });
    const lines = new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        createInterface({ input: stream }).on('line', (line) => {
          out.write(`${line}\n`);
          const made = ready(line);
          if (made !== undefined) resolve(made);
        });
      }
    });
    const early = self.gone.then((why) => {
      throw new Error(`${command} did not come up (${why}): see ${log}`);
    });
    self.made = await Promise.race([lines, early]);
    early.catch(() => {});
    return self;
  }

  /** Sends a signal; the promise resolves when the process ends. */
  kill(signal = 'SIGKILL') {
    this.child.kill(signal);
    return this.gone;
  }

  /** Pauses it, or resumes it: it does not end. */
  pause() {
    this.child.kill('SIGSTOP');
  }

  resume() {
    this.child.kill('SIGCONT');
  }
}

let nodes = 0;
/** A node with a chain of its own; `made` is its URL. `more` are further arguments, `env` further
 * variables. */
export function startNode({ port = 0, more = [], env = {} } = {}) {
  nodes += 1;
  const chain = ['--seed', '0', '--chain-id', 'PORTCULLIS_DEV'];
  const args = ['--host', '127.0.0.1', '--port', String(port), ...chain, ...more];
  const ready = (line) => {
    const [, port] = /listening on 127\.0\.0\.1:(\d+)/.exec(line) ?? [];
    return port && `http://127.0.0.1:${port}/rpc`;
  };
  return Process.start(NODE, args, { env, log: place(`node-${nodes}.log`), ready });
}

let prepared = Promise.resolve();
/** Deploys what the relay's pins name, and writes its configuration into `folder`. One at a time:
 * two concurrent declarations of the same classes would conflict. */
export function prepare(node, folder) {
  const make = () => run(PORTCULLIS, ['dev', '--node', node, '--state', folder, '--prepare']);
  const made = prepared.then(make);
  prepared = made.catch(() => {});
  return made;
}

const ANY_PORT = '127.0.0.1:0';
const SETTINGS = {
  PORTCULLIS__GATEWAY__LISTEN: ANY_PORT,
  PORTCULLIS__RELAY__LISTEN: ANY_PORT,
  PORTCULLIS__SIDECAR__LISTEN: ANY_PORT,
  PORTCULLIS__ADMIN__LISTEN: ANY_PORT,
  PORTCULLIS__LOG__FORMAT: 'json',
  PORTCULLIS__RELAY__REQUESTS_PER_MINUTE: '1000000',
};

/** Finds in the log where a surface listens. */
const listening = (wanted) => (line) => {
  const { message, surface, address } = line.startsWith('{') ? JSON.parse(line) : {};
  return message === 'listening' && surface === wanted ? `http://${address}` : undefined;
};

/** A relay; `made` is its URL. */
export function startRelay(folder, env) {
  const args = ['serve', '--config', `${folder}/portcullis.toml`];
  return Process.start(PORTCULLIS, args, {
    env: { ...SETTINGS, ...env },
    log: `${folder}/relay.log`,
    ready: listening('relay'),
  });
}

/** A Redis or Valkey without files, on this port: a restart is empty. */
export async function startRedis(port) {
  // the package of its tools has the server under another name
  const found = await run('bash', ['-c', 'command -v redis-server || command -v redis-check-rdb']);
  const program = place('redis-server');
  rmSync(program, { force: true });
  symlinkSync(found.stdout.trim(), program);
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', FOLDER];
  const ready = (line) => (/Ready to accept connections/.test(line) ? port : undefined);
  return Process.start(program, args, { log: place('redis.log'), ready });
}

let clocks = 0;
/** The environment of a process whose wall clock is this many seconds ahead. */
export async function clockAhead(seconds) {
  clocks += 1;
  const [library, offset] = [place(`clock-${clocks}.so`), place(`clock-${clocks}`)];
  await run('cc', ['-shared', '-fPIC', '-O', '-o', library, file('outages/clock.c')]);
  writeFileSync(offset, new BigInt64Array([BigInt(seconds)]));
  // jemalloc's thread waits by the kernel's clock for a time of this one: it would never wait
  const quiet = { _RJEM_MALLOC_CONF: 'background_thread:false' };
  return { LD_PRELOAD: library, CLOCK_OFFSET: offset, ...quiet };
}

/** A gateway with this configuration; `made` is its URL. */
export function startGateway(config) {
  const file = place('gateway.toml');
  writeFileSync(file, config);
  return Process.start(PORTCULLIS, ['serve', '--config', file], {
    log: place('gateway.log'),
    ready: listening('gateway'),
  });
}

/** What `portcullis journal` prints; an exit code other than 0 is an error. */
export async function journal(folder, env, command) {
  const args = ['journal', '--config', `${folder}/portcullis.toml`, command];
  const { stdout } = await run(PORTCULLIS, args, {
    env: { ...process.env, ...env },
    maxBuffer: 1 << 30,
  });
  return stdout;
}

/** Crashes and starts PostgreSQL for each line of its input. */
const RESTARTS = `
pg() { (cd "$POSTGRES_FOLDER" && as_postgres "$POSTGRES_BIN/pg_ctl" -D data -s -w "$@"); }
source ${file('lib/postgres.sh')}
start_postgres "$@"
trap stop_postgres EXIT
echo "url \${PORTCULLIS_TEST_POSTGRES}postgres"
while read -r word; do pg -m immediate restart -l "$POSTGRES_FOLDER/again.log"; echo "$word"; done
`;

/** A PostgreSQL cluster of this run's own, with these settings; `made` is the URL of a database in
 * it. It ends when its standard input closes. */
export async function startPostgres(...settings) {
  const ready = (line) => /^url (.*)/.exec(line)?.[1];
  const server = await Process.start('bash', ['-euc', RESTARTS, 'bash', ...settings], {
    log: place('postgres.log'),
    ready,
  });
  /** Kills its processes, and resolves when it accepts connections again. */
  server.crash = () => order(server, 'restart');
  return endsWithInput(server);
}

/** A primary with a synchronous standby; `made` is the URL of a database of the primary. */
export async function startCluster() {
  const ready = (line) => /^(postgres:.*)\/$/.exec(line)?.[1];
  const server = await Process.start('bash', [file('lib/standby.sh')], {
    log: place('cluster.log'),
    ready,
  });
  server.made += ':5432/postgres';
  await order(server, 'synchronous');
  /** The primary crashes; resolves when the standby accepts writes at its address. */
  server.crash = () => order(server, 'failover');
  /** The one that crashed becomes the synchronous standby of the other. */
  server.rejoin = () => order(server, 'rejoin');
  /** The primary crashes, and starts again. */
  server.restart = () => order(server, 'restart');
  return endsWithInput(server);
}

/** Sends a command to a shell; resolves when the shell repeats it. */
function order(server, word) {
  const { stdin, stdout } = server.child;
  const done = new Promise((resolve) => {
    stdout.on('data', function read(text) {
      if (!String(text).includes(word)) return;
      stdout.off('data', read);
      resolve();
    });
  });
  stdin.write(`${word}\n`);
  return done;
}

function endsWithInput(server) {
  server.kill = () => {
    server.child.stdin.end();
    return server.gone;
  };
  return server;
}
