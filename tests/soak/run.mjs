// Reads through the gateway while the node behind it aborts blocks, loses its chain and dies, and
// compares every response with the node's own: see lib/judge.mjs.
//
//   PORTCULLIS=target/debug/portcullis node tests/soak/run.mjs [SECONDS] [--seed N] [--keep]
//
// Needs starknet-devnet on PATH, and starknet.js as installed for the clients' tests. Fails if a
// response was wrong, if a cacheable kind had no hit, or if the judge does not detect a liar.
import { parseArgs } from 'node:util';
import { program, startGateway } from '../crash/lib/processes.mjs';
import { Chance } from './lib/chance.mjs';
import { Changes, Node, ROUND } from './lib/changes.mjs';
import { Judge } from './lib/judge.mjs';
import { Liar } from './lib/liar.mjs';
import { Lock } from './lib/lock.mjs';
import { Tally, Worker } from './lib/workers.mjs';
import { KEPT, World } from './lib/world.mjs';

const WORKERS = 12;
const WATCH_INTERVAL_MS = 1_000;
/** How long to wait until a liar is detected, and until each cacheable kind had a hit. */
const PATIENCE_MS = 120_000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    keep: { type: 'boolean', default: false },
  },
});
const seconds = Number(positionals[0] ?? 600);
const seed = Number(values.seed);

const configuration = (node) => `
[node]
url = "${node}"
[gateway]
listen = "127.0.0.1:0"
requests_per_minute = 1000000000
max_in_flight_per_client = 1000
single_flight = true
[gateway.cache]
enabled = true
watch_interval = "${WATCH_INTERVAL_MS}ms"
`;

/** Runs the load until `isOver`; returns the counts. */
async function load(node, gateway, round, isOver) {
  // Changes to the node are reproducible; the questions depend on timing.
  const chance = new Chance(seed);
  const world = new World(chance);
  const [judge, lock, tally] = [new Judge(WATCH_INTERVAL_MS), new Lock(), new Tally()];
  const changes = new Changes({ node, world, judge, lock, chance, round });
  await changes.begin();
  const ends = () => changes.ended || isOver(tally);
  const workers = Array.from({ length: WORKERS }, (_, at) => {
    const own = new Chance(seed + 1 + at);
    return new Worker({ gateway, node, world, judge, lock, chance: own, tally }).run(ends);
  });
  const changing = changes.run();
  try {
    await Promise.race([Promise.all(workers), changing]);
  } finally {
    changes.end();
  }
  await Promise.all([changing, ...workers]);
  return { tally, judge, counts: changes.counts };
}

const listed = (counts) => {
  const entries = Object.entries(counts);
  return entries.map(([what, count]) => `${count} ${what}`).join(', ') || 'none';
};

async function soak(node, gateway) {
  const end = Date.now() + seconds * 1_000;
  const never = ({ hits }) => KEPT.filter((kind) => !hits[kind]);
  const isOver = (tally) => {
    const over = Date.now() - end;
    return over > PATIENCE_MS || (over > 0 && !never(tally).length);
  };
  const { tally, judge, counts } = await load(node, gateway, ROUND, isOver);
  tally.examples.forEach((one) => console.log(one));
  const verdicts = listed(tally.verdicts);
  console.log(`${tally.calls} calls judged (${verdicts}), ${tally.left} clients left`);
  console.log(`X-Cache: ${listed(tally.caches)}`);
  console.log(`hits: ${listed(tally.hits)}`);
  console.log(`disruptions: ${listed(counts)}`);
  if (tally.verdicts.late) {
    const latest = Math.round(judge.latest);
    console.log(`the latest of the late answers was requested ${latest} ms after the disruption`);
  }
  const missed = never(tally);
  if (missed.length) console.log(`FAILED  never cached: ${missed.join(', ')}`);
  if (tally.verdicts.wrong) console.log(`FAILED  ${tally.verdicts.wrong} answers were wrong`);
  return missed.length + tally.verdicts.wrong;
}

/** The same behind a gateway that caches for too long: the judge must find wrong responses. */
async function liar(node, gateway) {
  const lies = await Liar.before(gateway);
  const end = Date.now() + PATIENCE_MS;
  const isOver = ({ verdicts }) => verdicts.wrong > 0 || Date.now() > end;
  const { tally } = await load(node, lies.url, ['abort'], isOver);
  await lies.close();
  const { wrong } = tally.verdicts;
  const counted = `${wrong} of ${tally.calls} answers were found wrong`;
  console.log(`${wrong ? 'ok' : 'FAILED'}  a gateway that keeps answers too long: ${counted}`);
  return wrong ? 0 : 1;
}

async function main() {
  console.log(`seed ${seed}, ${seconds} s`);
  const node = await Node.start(new Chance(seed));
  const gateway = await startGateway(configuration(node.url));
  const url = `${gateway.made}/rpc`;
  const failed = (await soak(node, url)) + (await liar(node, url));
  return failed ? 1 : 0;
}

await program(main, { keep: values.keep });
