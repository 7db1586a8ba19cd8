// Transactions of the journal per second, of one or more programs by turns: see README.md.
//
//   node benches/writes/journal.mjs [--seconds N] [--rounds N] PROGRAM [PROGRAM…]
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';

const run = promisify(execFile);
const MEASURE = fileURLToPath(new URL('measure.mjs', import.meta.url));
const { values, positionals: programs } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: '5' },
    rounds: { type: 'string', default: '3' },
  },
});

const sorted = (list) => list.toSorted((one, other) => one - other);
const median = (list) => sorted(list)[Math.floor(list.length / 2)];
const range = (list) => `${sorted(list)[0].toFixed(0)} to ${sorted(list).at(-1).toFixed(0)}`;

async function measure(program) {
  const env = { ...process.env, PORTCULLIS: program };
  const { stdout } = await run('node', [MEASURE, 'journal', values.seconds], { env });
  return JSON.parse(stdout);
}

const found = programs.map(() => []);
for (let round = 0; round < Number(values.rounds); round += 1) {
  for (const [at, program] of programs.entries()) found[at].push(await measure(program));
}
console.log('| case | program | transactions per second | range | p50 | p99 |');
console.log('|---|---|---|---|---|---|');
for (const name of Object.keys(found[0][0])) {
  for (const [at, program] of programs.entries()) {
    const [rates, p50s, p99s] = ['rate', 'p50', 'p99'].map((of) =>
      found[at].map((one) => one[name][of]),
    );
    const times = `${median(p50s).toFixed(1)} ms | ${median(p99s).toFixed(1)} ms`;
    console.log(
      `| ${name} | ${program} | ${median(rates).toFixed(0)} | ${range(rates)} | ${times} |`,
    );
  }
}
