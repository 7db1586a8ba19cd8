// One measurement of one program, printed as JSON: run.mjs starts it with PORTCULLIS set.
//
//   PORTCULLIS=target/dist/portcullis node benches/writes/measure.mjs drips|events SECONDS
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { drip } from '../../tests/crash/lib/operations.mjs';
import { place, program, startNode } from '../../tests/crash/lib/processes.mjs';
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

await program(async () => {
  console.log(JSON.stringify(await { drips, events }[what]()));
  return 0;
}, {});
