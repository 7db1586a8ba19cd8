// The judge of a soak finds what it must find, and nothing else. Pure: no process, no clock.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { Chance } from './lib/chance.mjs';
import { ACTIONS } from './system/actions.mjs';
import { disagreements } from './system/era.mjs';
import { drawn } from './system/faults.mjs';
import { Durations, Outcomes } from './system/outcomes.mjs';
import { Stalls } from './system/stalls.mjs';
import { FAULTS, LATE, LOST, ROUND, STALL, UNHEALTHY } from './system/table.mjs';
import { judge } from './system/verdict.mjs';
import { Windows } from './system/windows.mjs';

const TABLE = {
  outage: { reasons: { upstream_timeout: 10, [LOST]: 2 }, alerts: { NodeDown: 60 } },
  calm: { reasons: {}, alerts: {} },
};
const failure = (more) => {
  return { reason: 'upstream_timeout', instance: 'one', began: 5_000, ended: 6_000, ...more };
};

test('a failure needs a fault of its time and reason', () => {
  const windows = new Windows(TABLE);
  const end = windows.begin('outage', 10_000);
  windows.begin('calm', 0)(100_000);
  const cases = [
    ['before it', failure(), null],
    ['under way when it began', failure({ ended: 10_001 }), 'outage'],
    ['in it', failure({ began: 11_000, ended: 12_000 }), 'outage'],
    ['for another reason', failure({ began: 11_000, ended: 12_000, reason: 'overloaded' }), null],
    ['in its tail', failure({ began: 29_000, ended: 31_000 }), 'outage'],
    ['after its tail', failure({ began: 30_001, ended: 31_000 }), null],
  ];
  assert.equal(windows.explain(cases[2][1]), 'outage', 'while it is open');
  end(20_000);
  for (const [name, one, fault] of cases) assert.equal(windows.explain(one), fault, name);
  assert.deepEqual([...windows.explained], [['upstream_timeout outage', 4]]);
});

test('a killed instance explains its own lost connections', () => {
  const windows = new Windows(TABLE);
  windows.begin('outage', 0, 'two')(10_000);
  assert.equal(windows.explain(failure({ reason: LOST, instance: 'two' })), 'outage');
  assert.equal(windows.explain(failure({ reason: LOST })), null);
  assert.equal(windows.explain(failure()), 'outage', 'other reasons may be everywhere');
});

test('a fault that must fail requests is hit', () => {
  const windows = new Windows({ ...TABLE, outage: { ...TABLE.outage, hits: 'upstream_timeout' } });
  windows.begin('outage', 0)(10_000);
  assert.deepEqual(windows.unhit(), ['outage']);
  windows.explain(failure({ reason: LOST }));
  assert.deepEqual(windows.unhit(), ['outage'], 'for another reason');
  windows.explain(failure());
  assert.deepEqual(windows.unhit(), []);
});

test('an alert needs a fault that fires it', () => {
  const windows = new Windows(TABLE);
  windows.begin('outage', 10_000)(20_000);
  assert.equal(windows.allow('NodeDown', 9_999), null);
  assert.equal(windows.allow('NodeDown', 80_000), 'outage');
  assert.equal(windows.allow('NodeDown', 80_001), null);
  assert.equal(windows.allow('Other', 15_000), null);
  assert.equal(windows.part(0, 100_000), 0.1);
  assert.equal(windows.part(0, 100_000, 'calm'), 0);
});

test('a stall explains what it did', () => {
  const windows = new Windows();
  const stalls = new Stalls(windows);
  stalls.last = 10_000;
  stalls.poll(10_900);
  assert.deepEqual(windows.all, [], 'a busy moment is none');
  stalls.poll(13_000);
  stalls.poll(13_100);
  const stall = { name: STALL, target: null, began: 10_900, ended: 13_000 };
  assert.deepEqual(windows.all, [stall]);
  assert.equal(windows.explain(failure({ began: 4_000, ended: 13_001 })), STALL);
  assert.equal(windows.explain(failure({ began: 24_000, ended: 25_000 })), null);
});

test('a block that takes long is one stall', async () => {
  const windows = new Windows();
  const stalls = new Stalls(windows);
  let answer;
  stalls.read = () => new Promise((resolve) => (answer = resolve));
  stalls.last = 9_900;
  for (let now = 10_000; now <= 14_000; now += 500) stalls.poll(now);
  assert.deepEqual(windows.all.map(({ began, ended }) => [began, ended]), [[10_000, 14_000]]);
  answer();
  stalls.read = null;
  await new Promise(setImmediate);
  stalls.poll(14_100);
  assert.equal(windows.all.length, 1);
  const end = windows.begin('node hangs', 1e15);
  stalls.last = 1e15 + 1;
  stalls.poll(1e15 + 5_000);
  end(1e15 + 5_000);
  assert.equal(windows.all.length, 2, 'a fault explains itself');
});

test('quantiles are within five percent', () => {
  const durations = new Durations();
  assert.equal(durations.quantile(0.5), null);
  for (let ms = 1; ms <= 1_000; ms += 1) durations.add(ms);
  for (const [part, ms] of [[0.5, 500], [0.99, 990], [1, 1_000]]) {
    const found = durations.quantile(part);
    assert.ok(found >= ms && found <= 1.06 * ms, `${part}: ${found}`);
  }
});

const outcomes = () => {
  const stalls = { poll() {} };
  return new Outcomes({ windows: new Windows(TABLE), stalls, began: 0, seconds: 100 });
};
const good = () => {
  const all = outcomes();
  all.record({ surface: 'feed', instance: 'one', began: 1, ended: 2, status: 200 });
  const nothing = { alerts: [], missing: [], unhit: [], trends: [], unwell: [], unscraped: [] };
  return { outcomes: all, calm: 0.8, stalled: 0, ...nothing, findings: [] };
};

test('each kind of finding makes a run bad', () => {
  assert.deepEqual(judge(good()), []);
  const alert = { alert: 'NodeDown', instance: 'one', unexplained: 1 };
  const bad = [
    ['an alert', { alerts: [alert] }],
    ['an alert that did not fire', { missing: [{ name: 'outage', alert: 'NodeDown' }] }],
    ['a fault without an effect', { unhit: ['outage'] }],
    ['growth', { trends: [{ server: 'one', quantity: 'rss', isBad: true }] }],
    ['a verdict', { unwell: [{ name: 'one', text: 'failing' }] }],
    ['a server that was not scraped', { unscraped: ['one'] }],
    ['a lost event', { findings: ['lost'] }],
    ['too many faults', { calm: 0.1 }],
    ['a busy machine', { stalled: 0.1 }],
  ];
  for (const [name, one] of bad) {
    assert.equal(judge({ ...good(), ...one }).length, 1, name);
  }
  assert.deepEqual(judge({ ...good(), alerts: [{ ...alert, unexplained: 0 }] }), []);
});

test('a failure without a fault makes a run bad', () => {
  const facts = good();
  const one = { surface: 'feed', instance: 'one', began: 5, ended: 9, status: 503 };
  const refusal = { ...one, reason: 'faucet_cooldown', isExpected: true };
  assert.equal(facts.outcomes.record(refusal), true);
  assert.deepEqual(judge(facts), []);
  assert.equal(facts.outcomes.record({ ...one, reason: 'overloaded' }), false);
  assert.equal(facts.outcomes.record({ ...one, reason: 'overloaded', instance: 'two' }), false);
  const [found, ...others] = judge(facts);
  assert.match(found, /^feed: overloaded, 2 times .* 503 after 4 ms at one, 0.0 s$/);
  assert.deepEqual(others, []);
});

test('connections that end under requests make a run bad', () => {
  const facts = good();
  const one = { surface: 'feed', instance: 'one', began: Date.now() };
  facts.outcomes.repeat(one);
  assert.deepEqual(judge(facts), [], 'one is a race that every server has');
  for (let at = 0; at < 3; at += 1) facts.outcomes.repeat(one);
  assert.equal(judge(facts).length, 1);
  const killed = good();
  killed.outcomes.windows.begin('outage', 0, 'one');
  for (let at = 0; at < 3; at += 1) killed.outcomes.repeat(one);
  assert.deepEqual(judge(killed), [], 'the instance was killed');
});

const intent = (hash, state, more) => ({ hash, state, ...more });
const chained = (hash, succeeded = true) => ({ hash, succeeded });
const operation = (more) => {
  const sent = { path: '/mint-card', count: 1, acknowledged: '0x1', isUnknown: false };
  return { ...sent, ...more };
};

test('journal, chain and answers must agree', () => {
  const agreed = {
    intents: [intent('0x1', 'succeeded')],
    onChain: [chained('0x1')],
    sent: [operation()],
    rolledBack: new Set(),
  };
  assert.deepEqual(disagreements(agreed), []);
  const gone = { onChain: [], sent: [operation({ count: 0 })] };
  const rolledBack = new Set(['0x1']);
  const refused = operation({ acknowledged: null });
  const cases = [
    ['a transaction without an intent', { intents: [] }, 1],
    ['a transaction that reverted', { onChain: [chained('0x1', false)] }, 1],
    ['an intent that is open', { intents: [intent('0x1', 'sent')] }, 1],
    ['an operation that happened twice', { sent: [operation({ count: 2 })] }, 1],
    ['an acknowledged operation that is gone', gone, 2],
    ['one that was rolled back', { ...gone, rolledBack }, 0],
    ['one of two intents', { intents: Array(2).fill(intent('0x1', 'succeeded')) }, 1],
    ['a refusal that happened', { sent: [refused] }, 1],
    ['an unknown outcome that happened', { sent: [{ ...refused, isUnknown: true }] }, 0],
    [
      'a success that was lost later',
      { intents: [intent('0x1', 'succeeded'), intent('0x2', 'lost', { isRollback: true })] },
      1,
    ],
  ];
  for (const [name, change, count] of cases) {
    const found = disagreements({ ...agreed, ...change });
    assert.equal(found.length, count, `${name}: ${found.join('; ')}`);
  }
});

test('a seed draws the same faults, and a round all of them', () => {
  const names = (seed) => {
    const draws = drawn(new Chance(seed));
    return ROUND.map(() => draws.next().value).map(({ name, seconds }) => `${name} ${seconds}`);
  };
  assert.deepEqual(names(7), names(7));
  assert.notDeepEqual(names(7), names(8));
  const drawnOnce = new Set(names(7).map((one) => one.replace(/ [\d.]+$/, '')));
  const drawable = Object.keys(FAULTS).filter((name) => name !== STALL).sort();
  assert.deepEqual([...drawnOnce].sort(), drawable);
  assert.deepEqual(Object.keys(ACTIONS).sort(), drawable);
});

test('the table names alerts and reasons that exist', () => {
  const root = new URL('../../', import.meta.url);
  const rules = new URL('conf/prometheus/rules/', root);
  const texts = readdirSync(rules).map((name) => readFileSync(new URL(name, rules), 'utf8'));
  const alerts = new Set([...texts.join().matchAll(/alert: (\w+)/g)].map(([, name]) => name));
  const reasons = readFileSync(new URL('filters/src/reason.rs', root), 'utf8');
  for (const [name, fault] of Object.entries(FAULTS)) {
    const named = [...Object.keys(fault.alerts), ...(fault.fires ? [fault.fires] : [])];
    for (const alert of named) assert.ok(alerts.has(alert), `${name}: ${alert}`);
    for (const reason of Object.keys(fault.reasons)) {
      const isKnown = [LATE, LOST, UNHEALTHY].includes(reason);
      assert.ok(isKnown || reasons.includes(`"${reason}":`), `${name}: ${reason}`);
    }
  }
});
