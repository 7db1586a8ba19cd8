// Real file systems that are full, and have room again: of a SQLite file, and of PostgreSQL.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { place } from '../crash/lib/processes.mjs';
import { execute } from '../crash/lib/tables.mjs';
import { eventually } from '../crash/lib/world.mjs';
import { Import } from './import.mjs';
import { heal, wellAgain } from './lib/heal.mjs';
import { KINDS, RelayService } from './relay.mjs';
import { Session, SidecarService, Verifier, Webhook } from './sidecar.mjs';

/** Requests until one finds no room: a database has room in what it has allocated. */
const MANY = 3_000;
/** Within this time the probe says that requests fail. */
const SAID_MS = 10_000;
/** How long the disk stays full after that, with a request now and then. */
const FULL_MS = 14_000;
const SELDOM_MS = 2_000;
/** More than those whose requests fail while the disk is full: a newcomer's account needs room. */
const USERS = 16;
const CHUNK = Buffer.alloc(4_096);

/** A small file system, which `close` unmounts. */
class Disk {
  constructor(folder, size) {
    this.folder = folder;
    mkdirSync(this.folder);
    const made = ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', this.folder];
    execFileSync('mount', made, { stdio: ['ignore', 'inherit', 'inherit'] });
  }

  fill() {
    const filler = openSync(`${this.folder}/filler`, 'a');
    try {
      for (;;) writeSync(filler, CHUNK);
    } catch (error) {
      assert.equal(error.code, 'ENOSPC');
    } finally {
      closeSync(filler);
    }
  }

  free() {
    rmSync(`${this.folder}/filler`, { force: true });
  }

  close() {
    execFileSync('umount', ['--lazy', this.folder]);
  }
}

const isOk = (verdict) => /verdict: ok/.test(verdict);

/** Sends a request, and notes it with its answer; whether it failed. */
async function fails(kind, asked) {
  const request = await kind.fresh();
  const answer = await kind.send(request);
  kind.isTrue(answer);
  asked.push([request, answer]);
  return Boolean(kind.failed(answer));
}

async function untilFailed(kind, asked) {
  for (let count = 0; count < MANY; count += 1) if (await fails(kind, asked)) return;
  assert.fail(`${MANY} requests found room on a full disk`);
}

/** The probe says that requests fail. While it does not, a database may have found room again, which
 * the probe's own write left. */
async function reportsFailure(service, kind, asked) {
  let failing = Date.now();
  for (let sent = failing; isOk(await service.verdict()); await pause(100)) {
    assert.ok(Date.now() - failing < SAID_MS, 'the probe says that requests fail');
    if (Date.now() - sent < SELDOM_MS) continue;
    sent = Date.now();
    if (!(await fails(kind, asked))) failing = Date.now();
  }
}

/** The probe does not take back that requests fail while they do. A command says so itself: the
 * server's own requests may have room where a file's records have none. */
async function keepsReporting(service, kind, asked) {
  const end = Date.now() + FULL_MS;
  while (Date.now() < end) {
    const isFailing = await fails(kind, asked);
    const verdict = await service.verdict();
    const isHidden = isFailing && !kind.isCommand && isOk(verdict);
    assert.ok(!isHidden, `the disk is full: ${verdict}`);
    await pause(SELDOM_MS);
  }
}

/** Fills the disk under each kind of request, and makes room again. */
async function filled({ service, kinds, label, disk }, tally) {
  for (const kind of kinds) {
    const asked = [];
    disk.fill();
    try {
      await untilFailed(kind, asked);
      if (!kind.isCommand) await reportsFailure(service, kind, asked);
      await keepsReporting(service, kind, asked);
      disk.free();
      tally.healed(await heal(service, () => kind.next()));
      for (const [request, answer] of asked) await kind.settle(request, answer);
      await wellAgain(service);
      tally.add(kind.name, label, 'full disk', true);
    } catch (error) {
      tally.fail(`${kind.name} on ${label}: full disk`, error);
      return;
    }
  }
}

/** A database of PostgreSQL with its tables on a disk of its own, which the server may enter. */
async function tablespace(name, cluster) {
  const url = await cluster.database(`${name}_maker`);
  const [, folder] = /@([^/]+)\//.exec(url).map(decodeURIComponent);
  const { uid, gid } = statSync(folder);
  const disk = new Disk(`${folder}/${name}`, SIZES.postgres);
  const location = `${disk.folder}/tables`;
  execFileSync('install', ['-d', '-m', '700', '-o', String(uid), '-g', String(gid), location]);
  // each statement by itself: neither may be in a transaction
  await execute(url, disk.folder, `CREATE TABLESPACE ${name} LOCATION '${location}'`);
  await execute(url, disk.folder, `CREATE DATABASE ${name} TABLESPACE ${name}`);
  const close = async () => {
    // the server would go on writing the pages that it holds, to a disk that is gone
    disk.free();
    // which begins with a checkpoint of all disks, and another one may be full
    await eventually('the tables are dropped', () =>
      execute(url, disk.folder, `DROP DATABASE ${name} WITH (FORCE)`).then(
        () => true,
        () => false,
      ),
    );
    await execute(url, disk.folder, `DROP TABLESPACE ${name}`);
    disk.close();
  };
  return { disk, label: 'PostgreSQL', url: url.replace(`${name}_maker`, name), close };
}

function file(name) {
  const disk = new Disk(place(`${name}-disk`), SIZES.sqlite);
  return { disk, label: 'SQLite', url: `sqlite:${disk.folder}/p.db`, close: () => disk.close() };
}

/** Room for the log of SQLite, which has a thousand pages before it moves to the tables. */
const SIZES = { sqlite: '16m', postgres: '24m' };

async function onDisk(name, database, { cluster }, work) {
  const made = database === 'sqlite' ? file(name) : await tablespace(name, cluster);
  try {
    await work(made);
  } finally {
    await made.close();
  }
}

export const sidecarDisk = (database) => (name, run) =>
  onDisk(name, database, run, async ({ url, disk, label }) => {
    const service = await SidecarService.on(url, place(name));
    const verifier = new Verifier(service);
    // a database has room for many events before it needs another page
    const ofEvents = database === 'sqlite' ? [new Webhook(verifier)] : [];
    const ofImports = run.isWhole ? [new Import(service, new Webhook(verifier))] : [];
    const kinds = [new Session(verifier), ...ofEvents, ...ofImports];
    await verifier.subject();
    await filled({ service, kinds, label, disk }, run.tally);
    await service.kill();
  });

export const relayDisk = (database) => (name, run) =>
  onDisk(name, database, run, async ({ url, disk, label }) => {
    const service = await RelayService.on(run.node, { url, ...(run.isWhole && { users: USERS }) });
    const makers = run.isWhole ? Object.values(KINDS) : [KINDS.drip, KINDS.mint];
    const kinds = makers.map((make) => make(service));
    await filled({ service, kinds, label, disk }, run.tally);
    await service.close();
  });
