// Power loss: what a process did to its SQLite file is traced while it answers, and each state in
// which a power cut may have left the file is opened with the program. Whatever was acknowledged by
// then is in it, and whatever had reached the node.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { Journal, verify } from '../crash/lib/journal.mjs';
import { place } from '../crash/lib/processes.mjs';
import { CALLS, HOW, eventsOf, states } from './lib/disk_trace.mjs';
import { fillLog, makeCold, rowsOf } from './lib/outside.mjs';
import { Trace } from './lib/strace.mjs';
import { KINDS, RelayService } from './relay.mjs';
import { Session, SidecarService, Verifier, Webhook } from './sidecar.mjs';

const run = promisify(execFile);
const PORTCULLIS = process.env.PORTCULLIS ?? 'portcullis';
/** Requests of each kind while the process is traced. */
const REQUESTS = { sample: 2, whole: 12 };
/** States of a trace that a sample opens, at equal distances. */
const STATES = 24;

const now = () => performance.timeOrigin + performance.now();
const files = (store) => ['', '-wal'].map((end) => store.replace(/^sqlite:/, '') + end);

/** The files as they are when a trace begins: nothing is written in between. */
async function attached(service) {
  const read = () => files(service.store).map((path) => [basename(path), readFileSync(path)]);
  for (;;) {
    const base = read();
    const trace = await Trace.attach(service.pid, CALLS, { paths: files(service.store), ...HOW });
    if (read().every(([, bytes], at) => bytes.equals(base[at][1]))) return { base, trace };
    await trace.detach();
  }
}

/** Sends requests under a trace: what was acknowledged when, the files before, and the changes. */
async function traced(service, kinds, count) {
  await makeCold(service.store);
  const { base, trace } = await attached(service);
  const acknowledged = [];
  for (let number = 0; number < count; number += 1) {
    for (const kind of kinds) {
      const request = await kind.fresh();
      const answer = await kind.send(request);
      assert.equal(kind.failed(answer), undefined);
      acknowledged.push({ at: now(), kind, request, answer });
    }
  }
  await trace.detach();
  const events = eventsOf(trace.lines());
  trace.remove();
  assert.ok(events.length > acknowledged.length, 'every request changed the files');
  return { base, acknowledged, events };
}

/** Opens states with the program, and has each examined. */
async function opened(name, kinds, { base, acknowledged, events }, { tally, isWhole, examine }) {
  const all = states(base, events);
  const stride = isWhole ? 1 : Math.ceil(all.length / STATES);
  for (let at = 0; at < all.length; at += stride) {
    const { what, until, files } = all[at];
    const folder = place(`${name}-state`);
    mkdirSync(folder);
    for (const [file, bytes] of files()) writeFileSync(`${folder}/${file}`, bytes);
    const store = `sqlite:${folder}/${base[0][0]}`;
    const due = acknowledged.filter((one) => one.at < until);
    try {
      await examine(store, due, until);
    } catch (error) {
      tally.fail(`power cut, ${name}: ${what}`, error);
    }
    rmSync(folder, { recursive: true });
    for (const kind of kinds) tally.add(kind.name, 'SQLite', 'power loss', true);
  }
}

/** The program opens the file, and SQLite finds it sound. */
async function isSound(config, store, env) {
  await run(PORTCULLIS, ['store', 'migrate', '--config', config], {
    env: { ...process.env, ...env, PORTCULLIS__STORE__URL: store },
  });
  const [{ integrity_check }] = await rowsOf(store, 'SELECT * FROM pragma_integrity_check');
  assert.equal(integrity_check, 'ok');
}

export async function sidecarPower(name, context) {
  const { isWhole } = context;
  const service = await SidecarService.on(`sqlite:${place(name)}.db`, place(name));
  const verifier = new Verifier(service);
  const kinds = [new Webhook(verifier), new Session(verifier)];
  await verifier.subject();
  const count = isWhole ? REQUESTS.whole : REQUESTS.sample;
  for (const before of [async () => {}, () => fillLog(service.store)]) {
    await before();
    const found = await traced(service, kinds, count);
    const judge = (...state) => examine(service, ...state);
    await opened(name, kinds, found, { ...context, examine: judge });
  }
  await service.kill();
}

/** Every acknowledged event and session is in the tables. */
async function examine({ sidecar }, store, due) {
  await isSound(sidecar.config, store, sidecar.env);
  const sql = `SELECT event_id AS id FROM age_event UNION ALL SELECT subject_ref FROM age_session`;
  const ids = (await rowsOf(store, sql)).map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, 'nothing is stored twice');
  for (const { request, answer } of due) {
    const id = request.event_id ?? answer.json.subject_ref;
    assert.ok(ids.includes(id), `${id} was acknowledged`);
  }
}

export async function relayPower(name, context) {
  const { node, isWhole } = context;
  const service = await RelayService.on(node, {});
  const kinds = Object.values(KINDS).map((make) => make(service));
  for (const kind of kinds) await kind.next();
  const sent = service.way.adds;
  sent.length = 0;
  const found = await traced(service, kinds, isWhole ? REQUESTS.whole : REQUESTS.sample);
  const examine = (...state) => judged(service, sent, ...state);
  await opened(name, kinds, found, { ...context, examine });
  await service.close();
}

/** The journal is whole; it has every success, and every transaction that the node had by then. */
async function judged({ world }, sent, store, due, until) {
  const env = { ...world.env, PORTCULLIS__STORE__URL: store };
  await isSound(`${world.folder}/portcullis.toml`, store, env);
  await verify(world.folder, env);
  const journal = await Journal.read(world.folder, env);
  const states = new Map(journal.all().map(({ hash, state }) => [hash, state]));
  const reached = sent.filter((one) => one.at < until).map(({ hash }) => hash);
  for (const hash of [...reached, ...due.map(({ answer }) => answer.hash)]) {
    assert.match(states.get(hash) ?? 'missing', /^(sent|accepted|succeeded)$/, `${hash} was sent`);
  }
}
