// Measures the sidecar's speed and memory on this machine: see README.md.
//
//   PORTCULLIS=target/dist/portcullis node benches/sidecar/run.mjs [--seconds N] [--only sqlite]
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { Sidecar, ask } from '../../tests/crash/lib/sidecar.mjs';
import { execute } from '../../tests/crash/lib/tables.mjs';
import { CREATOR, EPISODES, SUBJECTS, content, subject } from './content.mjs';

const run = promisify(execFile);
const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '10' }, only: { type: 'string' } },
});
const LUA = fileURLToPath(new URL('load.lua', import.meta.url));
const POSTGRES = fileURLToPath(new URL('../../tests/lib/postgres.sh', import.meta.url));
const FOLDER = mkdtempSync(join(tmpdir(), 'portcullis-bench.'));
const PODCAST = `/functions/podcast-rss-feed?did=${CREATOR}`;
const SITEMAP = '/functions/seo-sitemap';
/** The number of pages that a crawler with many connections fetches at once. */
const SHARDS_AT_ONCE = 8;

let failed = 0;
const say = (store, what, figures) => console.log(`| ${store} | ${what} | ${figures} |`);

/** Runs a load for some seconds; returns the number of requests. */
async function load(store, what, sidecar, connections, ...mode) {
  const options = ['-t1', `-c${connections}`, `-d${values.seconds}s`, '--timeout', '10s'];
  const args = [...options, '-s', LUA, sidecar.url, '--', ...mode.map(String)];
  const { stdout } = await run('wrk', args);
  const [, ...found] = /^figures (\d+) (\d+) (\d+) (\d+) (\d+) (.*)$/m.exec(stdout);
  const [requests, us, p50, p99, errors] = found.map(Number);
  const rate = Math.round((requests / us) * 1e6);
  const ms = (time) => `${(time / 1000).toFixed(1)} ms`;
  const first = errors ? ` FAILED, first: ${found[5]}` : '';
  say(store, what, `${rate}/s | ${ms(p50)} | ${ms(p99)} | ${errors}${first}`);
  failed += errors ? 1 : 0;
  return requests;
}

/** A value of /proc/PID/status, in MiB. */
function memory(sidecar, name) {
  const status = readFileSync(`/proc/${sidecar.pid}/status`, 'utf8');
  const [, kib] = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status);
  return Math.round(kib / 1024);
}

/** Times of one response: to the first byte, and to the last. */
async function timed(sidecar, path) {
  const begun = performance.now();
  const request = http.get(sidecar.url + path);
  const [answer] = await once(request, 'response');
  assert.equal(answer.statusCode, 200, path);
  let [first, bytes, head] = [0, 0, ''];
  for await (const chunk of answer) {
    first ||= performance.now() - begun;
    bytes += chunk.length;
    if (head.length < 4096) head += chunk;
  }
  return { first, whole: performance.now() - begun, bytes, head };
}

async function sitemap(store, sidecar) {
  const index = await timed(sidecar, SITEMAP);
  assert.match(index.head, /<sitemapindex/, 'that many URLs need an index');
  const { text } = await ask(sidecar.url + SITEMAP);
  const pages = [...text.matchAll(/<loc>[^<]*[?&](?:amp;)?page=([\d.]+)<\/loc>/g)];
  const paths = pages.map(([, page]) => `${SITEMAP}?page=${page}`);
  const ms = (time) => `${time.toFixed(1)} ms`;
  const head = (what, { first, whole, bytes }) => {
    const size = `${(bytes / 2 ** 20).toFixed(1)} MiB`;
    say(store, what, `first byte ${ms(first)} | last ${ms(whole)} | ${size} | 0`);
  };
  head(`sitemap index of ${paths.length}`, index);
  head('sitemap page, first time', await timed(sidecar, paths[0]));
  head('sitemap page, again', await timed(sidecar, paths[0]));
  // From here on, the peak is caused by the pages.
  writeFileSync(`/proc/${sidecar.pid}/clear_refs`, '5');
  const before = memory(sidecar, 'VmHWM');
  const begun = performance.now();
  for (let at = 0; at < paths.length; at += SHARDS_AT_ONCE) {
    await Promise.all(paths.slice(at, at + SHARDS_AT_ONCE).map((path) => timed(sidecar, path)));
  }
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  const peak = `VmHWM ${before} MiB before, ${memory(sidecar, 'VmHWM')} MiB after`;
  const what = `all ${paths.length} pages, ${SHARDS_AT_ONCE} at a time`;
  say(store, what, `${seconds} s | ${peak} | | 0`);
}

/** Signed events, each new and the first of its subject. */
function signed(sidecar, file) {
  const occurred_at = new Date().toISOString();
  const proof = { age_band: '18_plus', verified_at: occurred_at, expires_at: null, occurred_at };
  const lines = Array.from({ length: SUBJECTS }, (_, at) => {
    const said = { event_id: randomUUID(), subject_ref: subject(at + 1), status: 'verified' };
    const body = JSON.stringify({ ...said, ...proof });
    return `${sidecar.signature(body)} ${body}\n`;
  });
  writeFileSync(file, lines.join(''));
}

async function webhook(store, sidecar, file) {
  let sent = 0;
  for (const connections of [16, 64]) {
    const what = `webhook, ${connections} connections`;
    sent += await load(store, what, sidecar, connections, 'post', file, sent);
    // Requests in flight at the end of the run are applied, too.
    sent += connections;
  }
}

async function measure(store, url) {
  const folder = join(FOLDER, store);
  const sidecar = await Sidecar.on(url, folder);
  try {
    const begun = Date.now();
    await execute(url, folder, content());
    if (url.startsWith('postgres')) await execute(url, folder, 'VACUUM ANALYZE;\n');
    console.error(`${store} is filled in ${Math.round((Date.now() - begun) / 1000)} s`);
    await sidecar.start();
    say(store, 'memory after start', `VmRSS ${memory(sidecar, 'VmRSS')} MiB | | | 0`);
    await load(store, 'getFeedSkeleton, 100 readers', sidecar, 100, 'feed');
    const { headers, text } = await ask(sidecar.url + PODCAST);
    const kib = `${Math.round(text.length / 1024)} KiB`;
    const what = `podcast of ${EPISODES} episodes`;
    await load(store, `${what}, 200 of ${kib}`, sidecar, 16, 'get', PODCAST, 200);
    await load(store, `${what}, 304`, sidecar, 16, 'get', PODCAST, 304, headers.etag);
    await sitemap(store, sidecar);
    signed(sidecar, join(folder, 'events'));
    await webhook(store, sidecar, join(folder, 'events'));
    await pause(2_000);
    say(store, 'memory after all that', `VmRSS ${memory(sidecar, 'VmRSS')} MiB | | | 0`);
  } finally {
    await sidecar.kill('SIGTERM');
  }
}

/** A PostgreSQL with fsync on; it ends when its standard input closes. */
async function durable() {
  const script = `source "$1"; trap stop_postgres EXIT; start_postgres fsync=on
    echo "$PORTCULLIS_TEST_POSTGRES"; cat`;
  const stdio = ['pipe', 'pipe', 'inherit'];
  const server = spawn('bash', ['-ec', script, 'bash', POSTGRES], { stdio });
  const [url] = await once(createInterface({ input: server.stdout }), 'line');
  return { server, url: `${url}postgres` };
}

async function main() {
  console.log('| store | what | requests | p50 | p99 | errors |');
  console.log('|---|---|---|---|---|---|');
  if (values.only !== 'postgres') await measure('sqlite', `sqlite:${FOLDER}/portcullis.db`);
  if (values.only === 'sqlite') return;
  const { server, url } = await durable();
  try {
    await measure('postgres', url);
  } finally {
    server.stdin.end();
    await once(server, 'exit');
  }
}

try {
  await main();
} finally {
  rmSync(FOLDER, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
