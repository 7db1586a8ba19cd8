// Each of the 13 methods, by name and by position: the result is the node's, byte for byte.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import {
  ACCOUNT_CLASS, BALANCE_OF, GATEWAY, NODE, SEEDED, STRK, UNSIGNED, gateway, mint, node, rpc,
} from './world.mjs';

const call = {
  contract_address: STRK,
  entry_point_selector: BALANCE_OF,
  calldata: [SEEDED.address],
};

const world = {};
before(async () => {
  world.hash = await mint(SEEDED.address);
  world.block = await node.getBlockWithTxHashes('latest');
});

const hash = () => ({ transaction_hash: world.hash });
const at = (contract_address) => ({ block_id: 'latest', contract_address });

/** Method, its params by name, and those names in the order of their positions. */
const reads = [
  ['starknet_specVersion', () => ({}), []],
  ['starknet_chainId', () => ({}), []],
  ['starknet_blockNumber', () => ({}), []],
  ['starknet_getBlockWithTxHashes', () => ({ block_id: 'latest' }), ['block_id']],
  ['starknet_getTransactionByHash', hash, ['transaction_hash']],
  ['starknet_getTransactionReceipt', hash, ['transaction_hash']],
  ['starknet_getTransactionStatus', hash, ['transaction_hash']],
  ['starknet_getClassHashAt', () => at(SEEDED.address), ['block_id', 'contract_address']],
  [
    'starknet_getClass',
    () => ({ class_hash: ACCOUNT_CLASS, block_id: 'latest' }),
    ['block_id', 'class_hash'],
  ],
  ['starknet_getClassAt', () => at(STRK), ['block_id', 'contract_address']],
  ['starknet_getNonce', () => at(SEEDED.address), ['block_id', 'contract_address']],
  ['starknet_call', () => ({ request: call, block_id: 'latest' }), ['request', 'block_id']],
  [
    'starknet_estimateFee',
    () => ({ request: [UNSIGNED], block_id: 'latest', simulation_flags: ['SKIP_VALIDATE'] }),
    ['request', 'simulation_flags', 'block_id'],
  ],
];

/** The bytes of the result, before any parser could round a number. */
const result = ({ text }) => text.slice(text.indexOf('"result":') + '"result":'.length, -1);

for (const [method, named, order] of reads) {
  test(`${method} returns the node's result, by name and by position`, async () => {
    const params = named();
    const what = JSON.stringify(params).slice(0, 80);
    const truth = await rpc(NODE, method, params);
    assert.ok('result' in truth.json, `the node itself refuses ${what}: ${truth.text}`);

    const positional = order.map((name) => params[name]);
    for (const form of [params, positional]) {
      const answer = await rpc(GATEWAY, method, form);
      assert.equal(answer.status, 200, `${what}: ${answer.text.slice(0, 200)}`);
      assert.deepEqual(answer.json.result, truth.json.result);
      assert.ok(result(answer) === result(truth), `${what}: the result's bytes were changed`);
    }
  });
}

test('a block is found by its number, hash and every tag', async () => {
  const { block_number, block_hash } = world.block;
  for (const block_id of [{ block_number }, { block_hash }, 'latest', 'pre_confirmed']) {
    const params = { block_id, contract_address: SEEDED.address };
    const what = JSON.stringify(block_id);
    const truth = await rpc(NODE, 'starknet_getNonce', params);
    assert.ok('result' in truth.json, `the node itself refuses ${what}: ${truth.text}`);
    const answer = await rpc(GATEWAY, 'starknet_getNonce', params);
    assert.equal(answer.status, 200, what);
    assert.deepEqual(answer.json.result, truth.json.result, what);
  }
});

test('a method without params accepts each form that clients send', async () => {
  // left out: starknet.js; []: starknet.py and starknet-rs; {}: by hand; null: starknet.go
  for (const method of ['starknet_specVersion', 'starknet_chainId', 'starknet_blockNumber']) {
    const truth = await rpc(NODE, method);
    for (const params of [undefined, [], {}, null]) {
      const answer = await rpc(GATEWAY, method, params);
      assert.deepEqual(answer.json.result, truth.json.result, `${method} ${params}`);
    }
  }
});

test('zero-padded and upper-case addresses are the same address', async () => {
  const padded = `0x${SEEDED.address.slice(2).padStart(64, '0')}`;
  const shouted = `0x${SEEDED.address.slice(2).toUpperCase()}`;
  const truth = await node.getClassHashAt(SEEDED.address);
  for (const contract_address of [padded, shouted]) {
    const { json } = await rpc(GATEWAY, 'starknet_getClassHashAt', ['latest', contract_address]);
    assert.equal(json.result, truth, contract_address);
  }
});

test('responses carry the gateway’s headers and none of the node’s', async () => {
  const { headers } = await rpc(GATEWAY, 'starknet_chainId');
  assert.equal(headers.get('content-type'), 'application/json');
  assert.equal(headers.get('cache-control'), 'no-store');
  assert.equal(headers.get('x-content-type-options'), 'nosniff');
  assert.match(headers.get('x-request-id'), /^[A-Za-z0-9-]{8,64}$/);
  assert.match(headers.get('ratelimit'), /^"minute";r=\d+;t=\d+$/);
  assert.equal(headers.get('vary'), null);
});

test('starknet.js reads everything through its own methods', async () => {
  const reads = [
    (p) => p.getChainId(),
    (p) => p.getSpecVersion(),
    (p) => p.getBlockNumber(),
    (p) => p.getBlockWithTxHashes(world.block.block_hash),
    (p) => p.getTransactionByHash(world.hash),
    (p) => p.getTransactionReceipt(world.hash),
    (p) => p.getTransactionStatus(world.hash),
    (p) => p.getClassHashAt(STRK),
    (p) => p.getClassByHash(ACCOUNT_CLASS),
    (p) => p.getClassAt(STRK),
    (p) => p.getNonceForAddress(SEEDED.address),
    (p) => p.callContract({ contractAddress: STRK, entrypoint: 'decimals' }),
  ];
  for (const read of reads) {
    const [answer, truth] = [await read(gateway), await read(node)];
    // As JSON: starknet.js wraps receipts in objects whose methods are never equal.
    assert.equal(JSON.stringify(answer), JSON.stringify(truth), String(read));
  }
});
