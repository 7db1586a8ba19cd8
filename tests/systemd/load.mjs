// Under constant load, no operator action may lose a request or reset a connection: three reloads,
// three upgrades, three restarts, by a real systemd.
//
//   MACHINE="nsenter …" node tests/systemd/load.mjs [RATE] [CONNECTIONS]
//
// MACHINE runs a command in the machine that has the service. Losses are asserted; times are only
// printed.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Load } from './client.mjs';

const [rate = 500, connections = 64] = process.argv.slice(2).map(Number);
const ROUNDS = 3;
const SERVICE = 'portcullis.service';
const PATIENCE_MS = 60_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Asynchronous: the load continues meanwhile.
const machine = async (...words) => {
  const [program, ...rest] = [...process.env.MACHINE.split(' '), ...words];
  const { stdout } = await promisify(execFile)(program, rest);
  return stdout.trim();
};

const property = (name) => machine('systemctl', 'show', '--value', '-p', name, SERVICE);

const until = async (what, holds) => {
  for (const end = performance.now() + PATIENCE_MS; performance.now() < end; await pause(50)) {
    if (await holds()) return;
  }
  assert.fail(`not within a minute: ${what}`);
};

const isGone = (pid) => machine('kill', '-0', pid).then(() => false, () => true);

const reload = async () => {
  const before = await property('MainPID');
  await machine('systemctl', 'reload', SERVICE);
  await until('the reload is over', async () => (await property('ActiveState')) === 'active');
  assert.equal(await property('MainPID'), before, 'a reload is no restart');
};

// Afterwards the newly installed file runs, and no process of the old file is left.
const upgrade = async () => {
  const before = await property('MainPID');
  await machine('sh', '-c', 'cd /usr/local/bin && cp portcullis new && mv -f new portcullis');
  await machine('systemctl', 'kill', '--signal=USR2', '--kill-whom=main', SERVICE);
  await until('another process is the main one', async () => (await property('MainPID')) !== before);
  await until('the old process is gone', () => isGone(before));
  const program = await machine('readlink', `/proc/${await property('MainPID')}/exe`);
  assert.equal(program, '/usr/local/bin/portcullis', 'the new file runs');
};

const restart = async () => {
  const before = await property('MainPID');
  await machine('systemctl', 'restart', SERVICE);
  assert.notEqual(await property('MainPID'), before, 'another process');
};

const load = new Load({ port: 8080, rate, connections });
load.start();
await pause(2000);
const rows = [];
const note = (during) => rows.push({ during, lost: load.lost(), longest: load.longestWait() });
note('nothing');
for (const [name, act] of Object.entries({ reload, upgrade, restart })) {
  for (let round = 1; round <= ROUNDS; round += 1) {
    await act();
    await pause(1500);
    assert.equal(await property('ActiveState'), 'active', name);
    note(`${name} ${round}`);
  }
}
await load.stop();
const seconds = (performance.now() - load.began) / 1000;
console.log(`${load.sent} requests in ${seconds.toFixed(0)} s over ${connections} connections:`);
console.log(`  ${load.answered} answered, lost: ${JSON.stringify(load.wrong)}`);
for (const { during, lost, longest } of rows) {
  console.log(`  ${during}: longest wait ${longest} ms, ${lost} lost so far`);
}
assert.deepEqual(load.wrong, {}, 'nothing is lost, nothing is reset');
assert.equal(load.answered, load.sent);
assert.equal(await property('NRestarts'), '0', 'systemd had nothing to restart');
