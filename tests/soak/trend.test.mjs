// The slope of memory, and the samples that it is judged by. Pure: no process, no clock.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Chance } from './lib/chance.mjs';
import { Samples } from './system/samples.mjs';
import { BOUNDS, DAY_S, grows, trend } from './system/trend.mjs';

const MIB_A_DAY = 1 / DAY_S;

/** Samples of a process: a level, growth per second, and noise that a heap has. */
function samples({ seconds, every, slope = 0, level = 50, noise = 1, seed = 1, from = 0 }) {
  const chance = new Chance(seed);
  let drift = 0;
  return Array.from({ length: Math.floor(seconds / every) }, (_, at) => {
    drift = 0.8 * drift + noise * (chance.next() - 0.5);
    return [from + at * every, level + slope * at * every + drift];
  });
}

test('growth is found in a short run and in a long one', () => {
  const cases = [
    ['flat for 20 minutes', { seconds: 1_000, every: 2 }, false],
    ['a bounded fill of 3 MiB', { seconds: 1_000, every: 2, slope: 0.003 }, false],
    ['30 MiB in 20 minutes', { seconds: 1_000, every: 2, slope: 0.03 }, true],
    ['flat for three days', { seconds: 3 * DAY_S, every: 60 }, false],
    ['half a MiB a day', { seconds: 3 * DAY_S, every: 60, slope: 0.5 * MIB_A_DAY }, false],
    ['two MiB a day', { seconds: 3 * DAY_S, every: 60, slope: 2 * MIB_A_DAY }, true],
  ];
  for (const [name, shape, isBad] of cases) {
    for (let seed = 1; seed <= 20; seed += 1) {
      const found = trend([samples({ ...shape, seed })]);
      assert.equal(grows(found, BOUNDS.rss), isBad, `${name}, seed ${seed}`);
    }
  }
});

test('processes at other levels are no growth', () => {
  const segments = [0, 1, 2, 3].map((at) => {
    return samples({ seconds: 600, every: 2, level: 40 + 20 * at, from: 700 * at, seed: at });
  });
  assert.equal(grows(trend(segments), BOUNDS.rss), false);
  const leaking = segments.map((points) => points.map(([t, v]) => [t, v + 0.05 * (t % 700)]));
  assert.equal(grows(trend(leaking), BOUNDS.rss), true, 'each process grows');
});

test('the error covers the slope of correlated samples', () => {
  const misses = Array.from({ length: 200 }, (_, seed) => {
    const { slope, error } = trend([samples({ seconds: 2_000, every: 2, seed })]);
    return Math.abs(slope) > error;
  }).filter(Boolean).length;
  assert.ok(misses <= 20, `${misses} of 200, at 95 %`);
});

test('too few samples prove nothing', () => {
  assert.equal(trend([samples({ seconds: 20, every: 2 })]), null);
  assert.equal(trend([]), null);
  assert.equal(grows(null, BOUNDS.rss), false);
});

test('a sampler leaves out the warm-up and halves its points', () => {
  let rss = 10;
  const usage = () => [{ pid: 1, rss: (rss += 1), files: 5, threads: 2 }];
  const servers = [{ name: 'one', usage }];
  const sampler = new Samples({ servers, every: 1, warmUp: 100 });
  for (let at = 0; at < 10_000; at += 1) sampler.take(at);
  const [points] = sampler.segments('one', 'rss');
  assert.ok(points.length > 1_000 && points.length <= 4_001, `${points.length} points`);
  assert.ok(points.every(([time]) => time >= 100), 'none of the warm-up');
  const { slope } = trend([points]);
  assert.ok(Math.abs(slope - 1) < 1e-6, `points keep their times: ${slope}`);
});
