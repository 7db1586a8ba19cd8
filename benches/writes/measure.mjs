// One measurement of one program, printed as JSON: run.mjs starts it with PORTCULLIS set.
//
//   PORTCULLIS=target/dist/portcullis node benches/writes/measure.mjs drips|events|journal SECONDS
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect, createServer } from 'node:net';
import { drip } from '../../tests/crash/lib/operations.mjs';
import { place, program, startNode, startPostgres } from '../../tests/crash/lib/processes.mjs';
import { Sidecar, connection } from '../../tests/crash/lib/sidecar.mjs';
import { World } from '../../tests/crash/lib/world.mjs';

const CONNECTIONS = 16;
const TICK_MS = 10;
const [, , what, seconds] = process.argv;

/** The CPU time of a process so far, in ms. */
function cpu(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** Has `write` done again and again, on all connections at once; returns the figures. */
async function load(pid, write) {
  const [begun, before] = [performance.now(), cpu(pid)];
  const end = begun + Number(seconds) * 1_000;
  let writes = 0;
  const work = async () => {
    while (performance.now() < end) {
      await write();
      writes += 1;
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, work));
  const took = performance.now() - begun;
  return { rate: (writes / took) * 1_000, cpu: (cpu(pid) - before) / writes };
}

async function drips() {
  const world = await World.on(await startNode());
  const relay = await world.startRelay();
  return load(relay.child.pid, async () => {
    const answer = await world.post({ ...drip(), key: randomUUID() });
    assert.equal(answer.status, 200, JSON.stringify(answer));
  });
}

async function events() {
  const folder = place('sidecar');
  mkdirSync(folder, { recursive: true });
  const sidecar = await Sidecar.on(`sqlite:${folder}/portcullis.db`, folder);
  await sidecar.start();
  const agents = Array.from({ length: CONNECTIONS }, connection);
  let at = 0;
  const write = async () => {
    const agent = agents[at++ % CONNECTIONS];
    const subject_ref = await sidecar.open(randomUUID(), agent);
    const now = new Date().toISOString();
    const said = { event_id: randomUUID(), subject_ref, status: 'verified', age_band: '18_plus' };
    const body = { ...said, verified_at: now, expires_at: null, occurred_at: now };
    const answer = await sidecar.report(JSON.stringify(body), agent);
    assert.equal(answer.status, 200, answer.text);
  };
  try {
    return await load(sidecar.pid, write);
  } finally {
    agents.forEach((agent) => agent.destroy());
    await sidecar.kill('SIGTERM');
  }
}

/** Half of the time that a round trip to the database takes with latency. */
const DELAY_MS = 10;

/** A call that a relay refuses, which it records: one transaction of its journal. */
function refused(relay, token, agent) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const call = { jsonrpc: '2.0', id: 1, method: 'starknet_getNonce', params: ['latest', '0x1'] };
  return new Promise((resolve, reject) => {
    const sent = request(`${relay.made}/rpc`, { method: 'POST', agent, headers }, (answer) => {
      let text = '';
      answer.on('data', (part) => (text += part));
      answer.on('end', () => resolve(text));
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(call));
  });
}

/** Has calls refused on so many connections to each relay; returns the figures. */
async function refusals(world, relays, writers) {
  const end = performance.now() + Number(seconds) * 1_000;
  const times = [];
  const work = async (relay) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    while (performance.now() < end) {
      const begun = performance.now();
      const text = await refused(relay, world.token, agent);
      assert.match(text, /method_not_allowed/, text);
      times.push(performance.now() - begun);
    }
    agent.destroy();
  };
  const each = (relay) => Array.from({ length: writers }, () => work(relay));
  await Promise.all(relays.flatMap(each));
  times.sort((one, other) => one - other);
  const at = (part) => times[Math.floor(times.length * part)];
  return { rate: times.length / Number(seconds), p50: at(0.5), p99: at(0.99) };
}

/** A port behind which the database is DELAY_MS away. */
async function afar(url) {
  const path = `${decodeURIComponent(new URL(url).hostname)}/.s.PGSQL.5432`;
  const pass = (from, to) => {
    from.on('data', (data) => setTimeout(() => to.write(data), DELAY_MS));
    from.on('close', () => setTimeout(() => to.destroy(), DELAY_MS));
    from.on('error', () => to.destroy());
  };
  const server = createServer({ noDelay: true }, (client) => {
    const database = connect(path);
    pass(client, database);
    pass(database, client);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  server.unref();
  return `postgres://portcullis@127.0.0.1:${server.address().port}/postgres`;
}

async function journal() {
  const world = await World.on(await startNode());
  const database = await startPostgres('fsync=on');
  const store = (url) => ({ PORTCULLIS__STORE__URL: url, PORTCULLIS__STORE__TLS: 'off' });
  const one = await world.startRelay();
  const sqlite = await refusals(world, [one], 32);
  await world.kill(one);
  const near = await world.startRelay(store(database.made));
  const postgres = {
    'PostgreSQL, 4 writers': await refusals(world, [near], 4),
    'PostgreSQL, 32 writers': await refusals(world, [near], 32),
  };
  const beside = await world.startRelay(store(database.made));
  const two = await refusals(world, [near, beside], 32);
  await world.kill(near);
  await world.kill(beside);
  const far = await world.startRelay(store(await afar(database.made)));
  return {
    'SQLite, 32 writers': sqlite,
    ...postgres,
    'PostgreSQL, two relays with 32 writers each': two,
    'PostgreSQL 20 ms away, 32 writers': await refusals(world, [far], 32),
  };
}

await program(async () => {
  console.log(JSON.stringify(await { drips, events, journal }[what]()));
  return 0;
}, {});
