// A chain that aborts blocks, restarts or is replaced: after the gateway's next poll, every
// response equals the node's again, whatever load clients put on it meanwhile.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { join } from 'node:path';
import {
  BLOCK, CLASS, Gateway, RECEIPT, Way, abort, agrees, ask, chainNode, declare, height, mint, poll,
} from './cache_world.mjs';
import { ACCOUNT_CLASS } from './devnet.mjs';
import { endAll } from './relay_world.mjs';

let node;
let way;
let gateway;
/** Every hash ever seen, on aborted branches, too. */
const seen = { transactions: new Set(), blocks: new Set(), classes: new Set([ACCOUNT_CLASS]) };
let heights = 4;

before(async () => {
  node = await chainNode('--dump-on', 'request');
  way = await Way.to(node);
  gateway = await Gateway.start(way);
});
after(() => endAll(gateway, way, node));

/** Every cacheable request, about every hash ever seen. */
function questions() {
  const requested = [
    ['starknet_chainId', []],
    ['starknet_specVersion', []],
    ['starknet_blockNumber', []],
    [BLOCK, ['latest']],
    [BLOCK, ['l1_accepted']],
  ];
  for (let number = 0; number <= heights; number += 1) {
    requested.push([BLOCK, [{ block_number: number }]]);
  }
  for (const hash of seen.blocks) requested.push([BLOCK, [{ block_hash: hash }]]);
  for (const hash of seen.transactions) requested.push([RECEIPT, [hash]]);
  for (const hash of seen.classes) {
    for (const block of ['pre_confirmed', { block_number: 1 }]) {
      requested.push([CLASS, [block, hash]]);
    }
  }
  return requested;
}

async function look() {
  const head = await node.ask(BLOCK, ['latest']);
  seen.blocks.add(head.block_hash);
  head.transactions.forEach((hash) => seen.transactions.add(hash));
  heights = Math.max(heights, head.block_number + 1);
}

/** Mines one block. */
async function mined(amount) {
  const hash = await mint(node, amount);
  await look();
  return hash;
}

/** A chain with some settled blocks, so that most responses are cacheable. */
async function settle() {
  for (let block = 0; block < 3; block += 1) await mined(1000 + block);
  await gateway.settled(await height(node));
}

async function hits() {
  return gateway.metric('portcullis_calls_total{cache="hit"');
}

/** Changes the chain while clients send every request, waits for one poll, and compares. */
async function survives(why, change) {
  await agrees(gateway, node, questions(), `before: ${why}`);
  const clients = poll(gateway, questions);
  await change();
  await look();
  await way.look();
  await clients.stop();
  await agrees(gateway, node, questions(), why);
}

test("cached responses equal the node's, byte for byte", async () => {
  await settle();
  seen.classes.add(await declare(node, 'card'));
  await look();
  await gateway.settled(await height(node));
  await agrees(gateway, node, questions(), 'before anything happens');
  const before = await hits();
  await agrees(gateway, node, questions(), 'again');
  assert.ok((await hits()) > before + questions().length, 'most of it came from memory');
});

test('aborted blocks disappear, with their transactions and classes', async () => {
  await survives('the chain was cut in its middle', () => abort(node, 2));
  await settle();
});

test('transactions that are mined again are in other blocks', async () => {
  await survives('aborted and mined again', async () => {
    const from = (await height(node)) - 1;
    await abort(node, from);
    for (const amount of [1001, 1002, 1003]) await mined(amount);
  });
  await settle();
});

test('a block that exists only between two polls leaves nothing', async () => {
  await survives('nobody looked meanwhile', async () => {
    const hash = await mined(7);
    const { text } = await ask(gateway.url, [RECEIPT, [hash]]);
    assert.match(text, /ACCEPTED_ON_L2/, 'it was given while it was there');
    await abort(node, await height(node));
  });
});

test('distinguishes two branches with the same head within one second', async () => {
  // Polls are frequent here, so that several fall within the second.
  const busy = await Gateway.start(way, { PORTCULLIS__GATEWAY__CACHE__WATCH_INTERVAL: '100ms' });
  try {
    await busy.settled(await height(node));
    // Repeats until it fits in one second: a busy machine may need several tries.
    let fits = false;
    for (let round = 0; round < 10 && !fits; round += 1) {
      await nextSecond();
      const first = await mint(node, 5, `0xa${round}`);
      const from = await height(node);
      const last = await mint(node, 5);
      const before = await node.ask(BLOCK, ['latest']);
      const requested = [[RECEIPT, [first]], [BLOCK, [{ block_hash: before.parent_hash }]]];
      const looks = way.looks + 5;
      while (way.looks < looks) for (const question of requested) await ask(busy.url, question);
      await abort(node, from);
      await mint(node, 5, `0xb${round}`);
      assert.equal(await mint(node, 5), last, 'the same transaction');
      const after = await node.ask(BLOCK, ['latest']);
      fits = JSON.stringify(after) === JSON.stringify(before);
      await way.look();
      await agrees(busy, node, requested, 'nothing but a block before the last is another');
      await busy.settled(await height(node));
      await agrees(busy, node, requested, 'and it has settled');
    }
    assert.ok(fits, 'both branches had a last block of the same second');
  } finally {
    await busy.end();
  }
});

/** Waits for the start of a second: block timestamps are in whole seconds. */
function nextSecond() {
  return new Promise((resolve) => setTimeout(resolve, 1000 - (Date.now() % 1000)));
}

test('a class aborted between two polls disappears', async () => {
  for (const name of ['bridge', 'usership']) {
    await gateway.settled(await height(node));
    await survives(`${name} is gone`, async () => {
      const hash = await declare(node, name);
      for (const block of ['latest', 'pre_confirmed']) {
        const { text } = await ask(gateway.url, [CLASS, [block, hash]]);
        assert.match(text, /"result"/, 'it was given while it was there');
      }
      await abort(node, await height(node));
      // The chain is as long as before.
      if (name === 'usership') await mined(8);
      seen.classes.add(hash);
    });
  }
});

test('blocks accepted on L1 have that status', async () => {
  await settle();
  for (const from of [2, 1]) {
    const at = (await height(node)) - from;
    await survives(`block ${at} is on L1`, () => {
      return node.ask('devnet_acceptOnL1', { starting_block_id: { block_number: at } });
    });
  }
  // A block that was on L1 is aborted, and its number is on L2 again.
  const head = (await height(node)) - 1;
  await survives('a block on L1 is aborted', () => abort(node, head));
  // It has the hash of the aborted block, which the node still takes for its head on L1.
  await survives('and mined again', () => mined(9));
  await gateway.settled(head);
  await survives('and accepted again', () => {
    return node.ask('devnet_acceptOnL1', { starting_block_id: { block_number: head } });
  });
});

test('a restored snapshot restores the chain', async () => {
  const id = await node.ask('devnet_snapshot', {});
  await settle();
  await survives('reverted', () => node.ask('devnet_revert', { snapshot_id: id }));
  await settle();
});

test('a loaded dump is another chain', async () => {
  const path = join(gateway.dir, 'chain.json');
  await node.ask('devnet_dump', { path });
  await settle();
  await survives('loaded', () => node.ask('devnet_load', { path }));
  await settle();
});

test('a restarted node has nothing of its earlier chain', async () => {
  await survives('restarted', () => node.ask('devnet_restart', {}));
  await settle();
  await survives('restarted and busy', async () => {
    await node.ask('devnet_restart', {});
    for (const amount of [1000, 1001, 1002]) await mined(amount);
  });
});

test('another process in place of the node is another chain', async () => {
  await settle();
  await agrees(gateway, node, questions(), 'before');
  const clients = poll(gateway, questions);
  await node.end();
  node = await chainNode();
  way.node = node;
  await look();
  await way.look();
  await clients.stop();
  // calls that failed while there was no node rest for a second
  const rests = performance.now() + 2_000;
  while ((await ask(gateway.url, ['starknet_chainId', []])).text.includes('unreachable')) {
    assert.ok(performance.now() < rests, 'the node is called again');
  }
  await agrees(gateway, node, questions(), 'killed and started again');
  assert.match(gateway.child.output, /"cause":"(unreachable|genesis)"/, 'it was seen');
});

test("one poll after any change every response equals the node's", async () => {
  const rounds = process.env.PORTCULLIS_TEST_LONG ? 60 : 8;
  for (let round = 0; round < rounds; round += 1) {
    if (round % 3 === 0) await gateway.settled(await height(node));
    const steps = Array.from({ length: 1 + (round % 4) }, () => Math.random());
    await survives(`round ${round}: ${steps}`, async () => {
      for (const step of steps) {
        const head = await height(node);
        if (step < 0.5 || head < 2) await mined(1000 + Math.floor(step * 6));
        else await abort(node, Math.max(1, head - Math.floor((step - 0.5) * 8)));
      }
    });
  }
});
