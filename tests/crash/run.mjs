// Kills relays and nodes, and checks that no write is lost or done twice.
//
//   PORTCULLIS=target/debug/portcullis \
//     node tests/crash/run.mjs [--rounds N] [--only NAME,NAME] [--keep]
//
// Needs starknet-devnet on PATH, PostgreSQL, and starknet.js as installed for the clients' tests.
import { parseArgs } from 'node:util';
import { program, startNode } from './lib/processes.mjs';
import { totals } from './lib/truth.mjs';
import { moments } from './moments.mjs';
import { connections, nodes, standstill } from './nodes.mjs';
import { points } from './points.mjs';
import { promoted, three } from './three.mjs';
import { two } from './two.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    keep: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);

/** Each scenario gets the shared node; some start nodes of their own. */
const SCENARIOS = { points, moments, connections, nodes, standstill, two, three, promoted };

async function main() {
  const node = await startNode();
  const started = Date.now();
  const only = values.only?.split(',');
  const chosen = Object.entries(SCENARIOS).filter(([name]) => !only || only.includes(name));
  let failed = 0;
  let passed = 0;
  await Promise.all(
    chosen.map(async ([name, scenario]) => {
      const say = (text) => {
        passed += 1;
        const at = `${Math.round((Date.now() - started) / 1000)} s`.padStart(6);
        console.log(`ok ${at}  ${name}: ${text}`);
      };
      try {
        await scenario(node, say, { rounds });
      } catch (error) {
        failed += 1;
        console.log(`FAILED  ${name}: ${error.stack}`);
      }
    }),
  );
  const counted = Object.entries(totals).map(([what, count]) => `${count} ${what}`);
  console.log(`counted ${counted.join(', ')}`);
  const seconds = Math.round((Date.now() - started) / 1000);
  console.log(`${passed} passed, ${failed} failed, ${seconds} s`);
  return failed ? 1 : 0;
}

await program(main, { keep: values.keep });
