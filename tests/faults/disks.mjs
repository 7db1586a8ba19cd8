// Real file systems that are full, and have room again: of a SQLite file, and of PostgreSQL.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { place } from '../crash/lib/processes.mjs';
import { execute } from '../crash/lib/tables.mjs';
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
    rmSync(`${this.folder}/filler`);
  }

  close() {
    execFileSync('umount', ['--lazy', this.folder]);
  }
}

const isOk = (verdict) => /verdict: ok/.test(verdict);

/** Requests until one fails; all of them with their answers. */
async function untilFailed(kind, asked) {
  for (let count = 0; count < MANY; count += 1) {
    const request = await kind.fresh();
    const answer = await kind.send(request);
    kind.isTrue(answer);
    asked.push([request, answer]);
    if (kind.failed(answer)) return;
  }
  assert.fail(`${MANY} requests found room on a full disk`);
}

/** The probe says that requests fail, and does not take that back while they do. */
async function said(service, kind, asked) {
  const began = Date.now();
  while (isOk(await service.verdict())) {
    assert.ok(Date.now() - began < SAID_MS, 'the probe says that requests fail');
    await pause(100);
  }
  const end = Date.now() + FULL_MS;
  while (Date.now() < end) {
    const request = await kind.fresh();
    const answer = await kind.send(request);
    kind.isTrue(answer);
    asked.push([request, answer]);
    const verdict = await service.verdict();
    assert.ok(!kind.failed(answer) || !isOk(verdict), `the disk is full: ${verdict}`);
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
      await said(service, kind, asked);
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
  return { disk, label: 'PostgreSQL', url: url.replace(`${name}_maker`, name) };
}

function file(name) {
  const disk = new Disk(place(`${name}-disk`), SIZES.sqlite);
  return { disk, label: 'SQLite', url: `sqlite:${disk.folder}/p.db` };
}

/** Room for the log of SQLite, which has a thousand pages before it moves to the tables. */
const SIZES = { sqlite: '16m', postgres: '24m' };

async function onDisk(name, database, { cluster }, work) {
  const made = database === 'sqlite' ? file(name) : await tablespace(name, cluster);
  try {
    await work(made);
  } finally {
    made.disk.close();
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
    const service = await RelayService.on(run.node, { url });
    const makers = run.isWhole ? Object.values(KINDS) : [KINDS.drip];
    const kinds = makers.map((make) => make(service));
    await filled({ service, kinds, label, disk }, run.tally);
    await service.close();
  });
