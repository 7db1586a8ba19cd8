// Many clients at once: one call to the node, and a complete response for each client.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CLASS, Gateway, Way, ask, chainNode, height } from './cache_world.mjs';
import { endAll, eventually } from './relay_world.mjs';

/** STRK's class, 672 KB of JSON. */
const STRK_CLASS = '0x2e77ee61d4df3d988ee1f42ea5442e913862cc82c2584d212ecda76666498fc';
const CLIENTS = 50;

let node;
let way;
let gateway;

before(async () => {
  node = await chainNode();
  way = await Way.to(node);
});
after(() => endAll(gateway, way, node));

for (const [what, env] of [
  ['with the cache', {}],
  ['without it', { PORTCULLIS__GATEWAY__CACHE__ENABLED: 'false' }],
]) {
  test(`fifty concurrent reads of a large class are one call, ${what}`, async () => {
    await gateway?.end();
    gateway = await Gateway.start(way, env);
    if (!env.PORTCULLIS__GATEWAY__CACHE__ENABLED) await gateway.settled(await height(node));
    const question = [CLASS, ['latest', STRK_CLASS]];
    const truth = await ask(node.url, question);
    assert.ok(truth.text.length > 500_000, 'it is large');
    way.calls = [];
    let release;
    way.hold = new Promise((resolve) => (release = resolve));
    const asking = Array.from({ length: CLIENTS }, () => ask(gateway.url, question));
    await eventually('all of them to wait', async () => {
      const shared = await gateway.metric('portcullis_calls_total{cache="shared"');
      return shared === CLIENTS - 1;
    });
    release();
    const answers = await Promise.all(asking);
    assert.ok(answers.every(({ text }) => text === truth.text), 'each answer is whole');
    const parts = answers.map(({ cache }) => cache).sort();
    assert.deepEqual(parts, ['miss', ...Array(CLIENTS - 1).fill('shared')]);
    assert.equal(way.calls.length, 1, JSON.stringify(way.calls));
    const next = await ask(gateway.url, question);
    const cached = !env.PORTCULLIS__GATEWAY__CACHE__ENABLED;
    assert.equal(next.cache, cached ? 'hit' : 'miss');
    assert.ok(next.text === truth.text);
  });
}
