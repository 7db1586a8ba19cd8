// The whole system of a soak: a node, PostgreSQL with a standby, the fleet's store, two servers
// with every surface that share them, and a third on SQLite on a disk of its own.
import { execFile } from 'node:child_process';
import {
  closeSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync,
  writeSync,
} from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { place, startCluster, startNode, startRedis } from '../../crash/lib/processes.mjs';
import { freePort } from '../../crash/lib/sidecar.mjs';
import { execute } from '../../crash/lib/tables.mjs';
import { World } from '../../crash/lib/world.mjs';
import { Era } from './era.mjs';
import { SURFACES, Server, until } from './server.mjs';

const run = promisify(execFile);
const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
const CONTENT = fileURLToPath(new URL('../../../conf/dev/content', import.meta.url));
const BASE_URL = 'https://cards.example';
/** Rollbacks need old states, and a log of each request would fill the disk in days. */
const NODE = {
  more: ['--state-archive-capacity', 'full'],
  env: { RUST_LOG: 'info,rpc=warn' },
};
const DISK = '64m';
/** The bytes of a write-ahead log that the next writes have to extend. */
const SHORT = 256 * 1024;

/** Clients are peers here, with addresses of their own; backends have one for many users. */
const SETTINGS = {
  PORTCULLIS__GATEWAY__TRUSTED_PROXIES: '[]',
  PORTCULLIS__GATEWAY__CACHE__SIZE: '4 MiB',
  PORTCULLIS__SIDECAR__REQUESTS_PER_MINUTE: '100000',
  PORTCULLIS__SIDECAR__TRUSTED_PROXIES: '[]',
  PORTCULLIS__SIDECAR__BASE_URL: BASE_URL,
};

/** A file system that fills up. */
export class Disk {
  static async mount(folder) {
    const disk = new Disk();
    disk.folder = folder;
    disk.store = `sqlite:${folder}/portcullis.db`;
    mkdirSync(folder, { recursive: true });
    await run('mount', ['-t', 'tmpfs', '-o', `size=${DISK}`, 'tmpfs', folder]);
    return disk;
  }

  /** Empties the write-ahead log of the store on it: in a long one, writes need no room. Whether
   * that succeeded: a reader may be in the way. */
  async shorten() {
    await execute(this.store, place('.'), 'PRAGMA wal_checkpoint(TRUNCATE)');
    return statSync(`${this.folder}/portcullis.db-wal`).size < SHORT;
  }

  fill() {
    const file = openSync(`${this.folder}/filler`, 'a');
    const page = Buffer.alloc(4096);
    try {
      for (;;) writeSync(file, page);
    } catch (error) {
      if (error.code !== 'ENOSPC') throw error;
    } finally {
      closeSync(file);
    }
  }

  free() {
    rmSync(`${this.folder}/filler`, { force: true });
  }

  unmount() {
    return run('umount', ['--lazy', this.folder]);
  }
}

export class Network {
  constructor() {
    this.findings = [];
    this.totals = { operations: 0, intents: 0, chains: 0 };
    this.servers = [];
  }

  async start() {
    this.node = await startNode(NODE);
    this.cluster = await startCluster();
    this.redisPort = await freePort();
    await this.startRedis();
    const store = { PORTCULLIS__STORE__URL: this.cluster.made };
    this.world = await World.on(this.node, store);
    this.disk = await Disk.mount(place('disk'));
    await this.#startServers();
  }

  async startRedis() {
    this.redis = await startRedis(this.redisPort);
  }

  async #startServers() {
    const { folder } = this.world;
    const settings = { ...SETTINGS, PORTCULLIS__NODE__URL: this.world.proxy.url };
    const shared = {
      ...settings,
      PORTCULLIS__RELAY__REQUESTS_PER_MINUTE: '1000000',
      PORTCULLIS__STORE__URL: this.cluster.made,
    };
    for (const name of ['one', 'two']) {
      const config = this.#configure(name, this.#fleetConfiguration());
      this.servers.push(await Server.at({ name, folder, config, settings: shared }));
    }
    this.fleet = [...this.servers];
    const own = { ...settings, PORTCULLIS__STORE__URL: this.disk.store };
    const config = this.#configure('lone', this.#loneConfiguration());
    const surfaces = SURFACES.filter((surface) => surface !== 'relay');
    this.lone = await Server.at({ name: 'lone', folder, config, settings: own, surfaces });
    this.servers.push(this.lone);
    for (const server of this.servers) await server.start();
    for (const server of [this.fleet[0], this.lone]) await this.#load(server);
  }

  #configure(name, text) {
    const path = `${this.world.folder}/${name}.toml`;
    writeFileSync(path, text);
    return path;
  }

  /** The file that `dev` wrote, with warnings only in its log, and a key to change by a reload. */
  #prepared() {
    const text = readFileSync(`${this.world.folder}/portcullis.toml`, 'utf8');
    const log = text.replace(/^format = "text"$/m, 'format = "json"\nlevel = "warn"');
    return log.replace(/^\[gateway\]$/m, '[gateway]\ngzip = true');
  }

  #fleetConfiguration() {
    const secret = `${this.world.folder}/fleet.secret`;
    writeFileSync(secret, 'fleet-0123456789abcdef0123456789abcdef', { mode: 0o600 });
    const url = `redis://127.0.0.1:${this.redisPort}`;
    return `${this.#prepared()}\n[fleet]\nurl = "${url}"\nsecret_file = "${secret}"\n`;
  }

  /** Without the sections of the relay: its keys belong to the fleet. */
  #loneConfiguration() {
    const sections = this.#prepared().split(/^(?=\[)/m);
    return sections.filter((section) => !section.startsWith('[relay')).join('');
  }

  /** Imports the content of `dev`. */
  async #load(server) {
    const files = readdirSync(CONTENT).map((name) => `${CONTENT}/${name}`);
    const args = ['store', 'import', '--config', server.config, '--base-url', BASE_URL];
    await run(PORTCULLIS, [...args, ...files], { env: { ...process.env, ...server.env } });
  }

  /** The creators that have a podcast. */
  podcasts() {
    const lines = readFileSync(`${CONTENT}/2-podcasts.ndjson`, 'utf8').split('\n').filter(Boolean);
    const records = lines.map((line) => JSON.parse(line));
    return records.filter(({ type }) => type === 'podcast').map(({ did }) => did);
  }

  secrets() {
    const read = (name) => readFileSync(`${this.world.folder}/${name}`, 'utf8').trim();
    return { sessionSecret: read('session.secret'), webhookSecret: read('webhook.secret') };
  }

  /** The writers begin on the chain as it is. */
  async beginEra() {
    const journal = this.totals.chains ? await this.world.journal() : null;
    this.era = await Era.begin(this.world, journal);
    this.totals.chains += 1;
    this.era.work = Promise.all(this.writers.map((writer) => writer.run(this.era)));
    this.era.work.catch(() => {}); // `closeEra` reports it
  }

  /** The writers end, and chain and journal are compared. */
  async closeEra() {
    if (this.era.isClosing) return;
    this.era.isClosing = true;
    await this.era.work;
    const { found, journal } = await this.era.judge();
    this.findings.push(...found);
    this.totals.operations += this.era.sent.length;
    this.totals.intents = journal.all().length;
  }

  /** The node dies, and one with the same contracts on another chain takes its place. */
  async replaceChain(seconds) {
    const next = await startNode(NODE);
    await this.world.prepareOn(next);
    await this.node.kill('SIGKILL');
    await pause(seconds * 1000);
    this.world.turnTo(next);
    this.node = next;
    for (const server of this.fleet) {
      const isReady = async () => (await this.world.get('/readyz', { made: server.relay })) === 200;
      await until(`${server.name} has proven the new chain`, isReady);
    }
  }

  async end() {
    for (const server of this.servers) await server.end('SIGKILL');
    await this.disk?.unmount();
    await this.cluster?.kill();
  }
}
