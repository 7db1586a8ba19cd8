// Lanes that run side by side: each has a process and a store of its own, for one kind of request.
import { place } from '../crash/lib/processes.mjs';
import { Import } from './import.mjs';
import { wellAgain } from './lib/heal.mjs';
import { files, fillLog, makeCold } from './lib/outside.mjs';
import { PostgresWay } from './lib/postgres_way.mjs';
import { CommandCalls, Messages, SystemCalls } from './lib/sources.mjs';
import { Sweep } from './lib/sweep.mjs';
import { KINDS, RelayService } from './relay.mjs';
import { Session, SidecarService, Verifier, Webhook } from './sidecar.mjs';
import { Sitemap } from './sitemap.mjs';

/** A SQLite file, and how its system calls are found. */
const sqlite = async (name) => {
  const url = `sqlite:${place(name)}.db`;
  const how = { paths: () => files(url), before: () => makeCold(url) };
  const sources = (service) => [new SystemCalls('file', service, how)];
  return { label: 'SQLite', url, how, sources };
};

/** A database of PostgreSQL behind a way. */
const postgres = async (name, { cluster }) => {
  const way = await PostgresWay.before(await cluster.database(name), place(`${name}-way`));
  const sources = () => [new Messages('postgres', way)];
  return { label: 'PostgreSQL', url: way.url, direct: way.direct, way, sources };
};

export const STORES = { sqlite, postgres };

/** Sweeps a kind of request at all sources. */
async function swept({ kind, service, store, sources }, { tally, isWhole }) {
  const sweep = new Sweep({ service, store: store.label, tally, isWhole });
  for (const source of sources) await sweep.run(kind, source);
}

/** A request to the sidecar. */
const sidecar = (make) => async (name, store, run) => {
  const service = await SidecarService.on(store.url, place(name), store);
  const verifier = new Verifier(service);
  const log = new SystemCalls('log', service, { paths: () => [service.log] });
  const sources = [...store.sources(service), new SystemCalls('socket', service), log];
  await swept({ kind: make(verifier), service, store, sources }, run);
  await wellAgain(service);
  await verifier.examine();
};

/** An event whose commit moves SQLite's log to its tables. */
async function checkpoint(name, store, run) {
  const service = await SidecarService.on(store.url, place(name));
  const verifier = new Verifier(service);
  const kind = Object.assign(new Webhook(verifier), { name: 'webhook, checkpoint' });
  const how = { ...store.how, before: () => fillLog(store.url) };
  const sources = [new SystemCalls('file', service, how)];
  await swept({ kind, service, store, sources }, run);
  await wellAgain(service);
  await verifier.examine();
}

/** An import next to a server. */
async function imports(name, store, run) {
  const server = await SidecarService.on(store.url, place(name), store);
  const verifier = new Verifier(server);
  const kind = new Import(server, new Webhook(verifier));
  const ofPostgres = () => [...store.sources(), new CommandCalls('socket', kind)];
  const sources = store.way ? ofPostgres() : [new CommandCalls('file', kind, store.how)];
  await swept({ kind, service: kind.service, store, sources }, run);
  await wellAgain(server);
  await verifier.examine();
}

/** An operation of the relay. */
const relay = (make) => async (name, store, run) => {
  const service = await RelayService.on(run.node, store);
  const kind = make(service);
  const ofNode = new Messages('node', service.way);
  const sources = [...store.sources(service), new SystemCalls('socket', service), ofNode];
  await swept({ kind, service, store, sources }, run);
  await wellAgain(service);
  await kind.examine();
  await service.close();
};

/** A document that is streamed from one snapshot. */
async function sitemap(name, store, run) {
  const service = await RelayService.on(run.node, store);
  const sources = store.sources(service);
  await swept({ kind: await Sitemap.on(service), service, store, sources }, run);
  await wellAgain(service);
  await service.close();
}

/** Kinds of requests, the longest first, and the stores that they are swept on. */
const SWEEPS = [
  ...Object.entries(KINDS).map(([kind, make]) => [kind, relay(make), ['postgres', 'sqlite']]),
  ['import', imports, ['postgres', 'sqlite']],
  ['webhook', sidecar((verifier) => new Webhook(verifier)), ['postgres', 'sqlite']],
  ['session', sidecar((verifier) => new Session(verifier)), ['postgres', 'sqlite']],
  ['checkpoint', checkpoint, ['sqlite']],
  ['sitemap', sitemap, ['sqlite']],
];

export const sweeps = SWEEPS.flatMap(([kind, play, stores]) =>
  stores.map((label) => ({
    name: `${kind}_${label}`,
    kind,
    play: async (name, run) => {
      const store = await STORES[label](name, run);
      await play(name, store, run);
      store.way?.close();
    },
  })),
);
