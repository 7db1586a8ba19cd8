// Writes per second and CPU time per write of one or more programs, by turns: see README.md.
//
//   node benches/writes/run.mjs [--seconds N] [--rounds N] PROGRAM [PROGRAM…]
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';

const run = promisify(execFile);
const MEASURE = fileURLToPath(new URL('measure.mjs', import.meta.url));
const { values, positionals: programs } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: '10' },
    rounds: { type: 'string', default: '5' },
  },
});

const median = (list) => list.toSorted((one, other) => one - other)[Math.floor(list.length / 2)];

async function measure(program, what) {
  const env = { ...process.env, PORTCULLIS: program };
  const { stdout } = await run('node', [MEASURE, what, values.seconds], { env });
  return JSON.parse(stdout);
}

console.log('| what | program | writes per second | CPU per write | rounds |');
console.log('|---|---|---|---|---|');
for (const what of ['drips', 'events']) {
  const found = programs.map(() => []);
  for (let round = 0; round < Number(values.rounds); round += 1) {
    for (const [at, program] of programs.entries()) found[at].push(await measure(program, what));
  }
  for (const [at, program] of programs.entries()) {
    const [rates, cpus] = ['rate', 'cpu'].map((name) => found[at].map((one) => one[name]));
    const rate = `${median(rates).toFixed(1)}/s`;
    const cpu = `${median(cpus).toFixed(2)} ms`;
    console.log(`| ${what} | ${program} | ${rate} | ${cpu} | ${rates.length} |`);
  }
}
