// What a developer sees when the gateway, or the node behind it, refuses a request.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { Account, RpcError, RpcProvider } from 'starknet';
import { GATEWAY, SEEDED, fundedAccount, gateway, post, rpc, transfer } from './world.mjs';

const world = {};
before(async () => Object.assign(world, await fundedAccount()));

/** The error that `promise` rejects with. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail('it was answered');
}

test('a write gets 403 with a hint to the relay', async () => {
  const writes = [
    ['starknet_addInvokeTransaction', { invoke_transaction: {} }],
    ['starknet_addDeployAccountTransaction', { deploy_account_transaction: {} }],
    ['starknet_addDeclareTransaction', { declare_transaction: {} }],
  ];
  for (const [method, params] of writes) {
    const { status, json } = await rpc(GATEWAY, method, params);
    assert.equal(status, 403, method);
    assert.equal(json.error.code, -32601, method);
    assert.equal(json.error.data.reason, 'method_not_allowed', method);
    assert.match(json.error.message, /relay/i, method);
  }
});

test('starknet.js reports a signed transaction sent to the wrong surface', async () => {
  const provider = new RpcProvider({ nodeUrl: GATEWAY });
  const { address, key } = SEEDED;
  const account = new Account({ provider, address, signer: key, cairoVersion: '1' });
  const error = await failure(account.execute(transfer('0xf00d', 1n), { tip: 0n }));
  assert.ok(error instanceof RpcError, String(error));
  assert.equal(error.code, -32601);
  assert.equal(error.baseError.data.reason, 'method_not_allowed');
  assert.match(error.message, /relay/i);
});

test('a deployment sent to the gateway gets the same refusal', async () => {
  const provider = new RpcProvider({ nodeUrl: GATEWAY });
  const { account, address, payload } = world;
  const lost = new Account({ provider, address, signer: account.signer, cairoVersion: '1' });
  const error = await failure(lost.deployAccount(payload, { tip: 0n }));
  assert.equal(error.code, -32601);
});

test('a refused method or path gets a hint with its remedy', async () => {
  const hinted = {
    starknet_getBlockWithReceipts: /starknet_getTransactionReceipt/,
    starknet_blockHashAndNumber: /starknet_getBlockWithTxHashes/,
    starknet_addInvokeTransaction: /relay/,
    starknet_getEvents: /starknet_getTransactionReceipt/,
    starknet_subscribeNewHeads: /poll starknet_blockNumber/,
    starknet_getnonce: /did you mean starknet_getNonce/,
    eth_chainId: /use starknet_chainId/,
  };
  for (const [method, hint] of Object.entries(hinted)) {
    assert.match((await rpc(GATEWAY, method, {})).json.error.data.hint, hint, method);
  }
  const version = await post(`${GATEWAY}/v0_10`, { jsonrpc: '2.0', id: 1, method: 'starknet_chainId' });
  assert.equal(version.status, 404);
  assert.match(version.json.error.data.hint, /use \/rpc/);
});

test('a baseFetch that splits batches makes starknet.js work with them', async () => {
  const splits = async (url, init) => {
    const calls = JSON.parse(init.body);
    if (!Array.isArray(calls)) return fetch(url, init);
    const send = (call) => fetch(url, { ...init, body: JSON.stringify(call) });
    const answers = await Promise.all(calls.map(send));
    return Response.json(await Promise.all(answers.map((answer) => answer.json())));
  };
  const refused = new RpcProvider({ nodeUrl: GATEWAY, batch: 0 });
  await failure(Promise.all([refused.getBlockNumber(), refused.getChainId()]));
  const provider = new RpcProvider({ nodeUrl: GATEWAY, batch: 0, baseFetch: splits });
  const [block, chain] = await Promise.all([provider.getBlockNumber(), provider.getChainId()]);
  assert.ok(Number.isInteger(block) && chain.startsWith('0x'), 'each call is a request');
});

test('devnet methods and unlisted reads get 403, whatever their params', async () => {
  const methods = ['devnet_mint', 'devnet_restart', 'starknet_getEvents', 'starknet_chainID'];
  for (const method of methods) {
    const { status, json } = await rpc(GATEWAY, method, {});
    assert.equal(status, 403, method);
    assert.equal(json.error.data.reason, 'method_not_allowed', method);
  }
});

test('a missing `tip: 0n` gets a hint to pass it', async () => {
  // starknet.js reads whole blocks to choose a tip, and wraps the refusal in its own error.
  const error = await failure(world.account.estimateInvokeFee(transfer('0xf00d', 1n)));
  assert.match(error.message, /starknet_getBlockWithTxs/);
  assert.match(error.message, /-32601/);
  assert.match(error.message, /tip: 0n/);
});

test('contract not found passes through unchanged', async () => {
  const error = await failure(gateway.getClassHashAt('0xdead'));
  assert.ok(error instanceof RpcError, String(error));
  assert.ok(error.isType('CONTRACT_NOT_FOUND'), error.message);
  assert.equal(error.code, 20);

  const { status } = await rpc(GATEWAY, 'starknet_getClassHashAt', ['latest', '0xdead']);
  assert.equal(status, 200, 'the node’s own error is a normal answer');
});

test('unknown block and unknown transaction errors pass through unchanged', async () => {
  assert.equal((await failure(gateway.getBlockWithTxHashes(10 ** 9))).code, 24);
  assert.equal((await failure(gateway.getTransactionReceipt('0xdead'))).code, 29);
});

test('the reason of a reverted call passes through', async () => {
  const entry_point_selector = '0x1';
  const request = { contract_address: SEEDED.address, entry_point_selector, calldata: [] };
  const { status, json } = await rpc(GATEWAY, 'starknet_call', { request, block_id: 'latest' });
  assert.equal(status, 200);
  assert.ok([21, 40].includes(json.error.code), JSON.stringify(json.error));
});

test('a batch is refused with a hint to send single calls', async () => {
  const single = { jsonrpc: '2.0', id: 1, method: 'starknet_chainId' };
  const { status, json } = await post(GATEWAY, [single, single]);
  assert.equal(status, 400);
  assert.equal(json.error.code, -32600);
  assert.equal(json.error.data.reason, 'batch');
  assert.match(json.error.message, /single|each call/i);
});

test('an id is returned exactly as it was sent', async () => {
  for (const id of ['0', '-1', '9007199254740993', '"a"', '"\\u00e9\\/"', '""']) {
    const body = `{"jsonrpc":"2.0","id":${id},"method":"starknet_chainId"}`;
    const { text } = await post(GATEWAY, body);
    assert.ok(text.includes(`"id":${id},`) || text.includes(`"id":${id}}`), `${id} in ${text}`);
  }
});
