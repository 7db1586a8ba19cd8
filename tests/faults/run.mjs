#!/usr/bin/env node
// Faults at every step: each system call and each message of a request fails, is killed, stalls, or
// loses its answer. After each, nothing acknowledged is lost or doubled, every answer was true, and
// within ten seconds the next request succeeds without a restart; until then the probe says so.
//
//   PORTCULLIS=target/debug/portcullis unshare --mount tests/faults/run.mjs [--all] [KIND|LANE…]
//
// Without --all or PORTCULLIS_TEST_LONG it plays a sample: always the same one, of every kind of
// request, store and fault. Needs starknet-devnet on PATH, PostgreSQL, python3, strace, and the
// right to trace another process. `unshare` is for the small file systems that fill up.
import { parseArgs } from 'node:util';
import { postgres } from '../crash/lib/cluster.mjs';
import { program, startNode } from '../crash/lib/processes.mjs';
import { budgetClock, relayClock, sidecarClock } from './clocks.mjs';
import { relayDisk, sidecarDisk } from './disks.mjs';
import { sweeps } from './lanes.mjs';
import { mustTrace } from './lib/strace.mjs';
import { Tally } from './lib/tally.mjs';
import { relayPower, sidecarPower } from './power.mjs';

const { values, positionals } = parseArgs({
  options: { all: { type: 'boolean', default: false }, keep: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const isWhole = values.all || 'PORTCULLIS_TEST_LONG' in process.env;
/** They wait more than they compute. */
const LANES = 6;

/** Faults of the whole machine, on both stores. */
const OF_MACHINES = { disk: [sidecarDisk, relayDisk], clock: [sidecarClock, relayClock] };
const machines = Object.entries(OF_MACHINES).flatMap(([kind, lanes]) =>
  lanes.flatMap((lane) =>
    ['sqlite', 'postgres'].map((store) => ({
      kind,
      name: `${lane.name.toLowerCase()}_${store}`,
      play: lane(store),
    })),
  ),
);
const others = Object.entries({ power: [sidecarPower, relayPower], clock: [budgetClock] });
const single = others.flatMap(([kind, lanes]) =>
  lanes.map((play) => ({ kind, name: play.name.toLowerCase(), play })),
);
/** All lanes, the longest first. */
const PLAYED = [...machines, ...sweeps, ...single];
const NAMES = [...new Set(PLAYED.flatMap(({ kind, name }) => [kind, name]))];

async function main() {
  const unknown = positionals.filter((name) => !NAMES.includes(name));
  if (unknown.length) {
    console.error(`no kind or lane ${unknown.join(', ')}; there are: ${NAMES.join(', ')}`);
    return 2;
  }
  const wants = ({ kind, name }) =>
    !positionals.length || positionals.some((one) => one === kind || one === name);
  await mustTrace();
  const [node, cluster] = await Promise.all([startNode(), postgres()]);
  const tallies = [];
  const started = Date.now();
  const lanes = PLAYED.filter(wants).values();
  const work = async () => {
    for (const lane of lanes) {
      const tally = new Tally();
      tallies.push(tally);
      const run = { tally, isWhole, node, cluster };
      await lane.play(lane.name, run).catch((error) => tally.fail(lane.name, error));
      const seconds = Math.round((Date.now() - started) / 1000);
      const { hits, failures } = tally;
      console.log(`${seconds} s  ${lane.name}: ${hits} faults, ${failures.length} failures`);
    }
  };
  await Promise.all(Array.from({ length: LANES }, work));
  const tally = Tally.of(tallies);
  tally.print();
  return tally.failures.length || !tally.hits ? 1 : 0;
}

await program(main, { keep: values.keep });
