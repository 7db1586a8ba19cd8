// An account's life cycle: deploy an account, pay with it, read everything back through the
// gateway. Writes go directly to the node; `tip: 0n` keeps starknet.js from reading whole blocks.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { TransactionType } from 'starknet';
import { ACCOUNT_CLASS, balance, fundedAccount, gateway, node, transfer } from './world.mjs';

const SOON = { retryInterval: 100 };
const world = {};
before(async () => Object.assign(world, await fundedAccount()));

test('the gateway estimates the fee of a deployment', async () => {
  const fee = await world.account.estimateAccountDeployFee(world.payload, { tip: 0n });
  assert.ok(fee.overall_fee > 0n);
});

test('an account deploys and its receipt is readable through the gateway', async () => {
  const { account, address, payload } = world;
  const sent = await account.deployAccount(payload, { tip: 0n });
  const receipt = await gateway.waitForTransaction(sent.transaction_hash, SOON);
  assert.equal(receipt.execution_status, 'SUCCEEDED');
  assert.equal(BigInt(sent.contract_address), BigInt(address));
  assert.equal(BigInt(await gateway.getClassHashAt(address)), BigInt(ACCOUNT_CLASS));
  assert.equal(BigInt(await account.getNonce()), 1n);
  const { abi } = await gateway.getClassAt(address);
  assert.match(JSON.stringify(abi), /__execute__/, 'its class comes with its ABI');
});

test('the deployed account pays, and the gateway shows the transfer', async () => {
  const { account, address } = world;
  const receiver = '0xf00d';
  const before = await balance(gateway, receiver);

  const fee = await account.estimateInvokeFee(transfer(receiver, 7n), { tip: 0n });
  assert.ok(fee.overall_fee > 0n);
  const sent = await account.execute(transfer(receiver, 7n), { tip: 0n });
  const receipt = await gateway.waitForTransaction(sent.transaction_hash, SOON);

  assert.equal(receipt.execution_status, 'SUCCEEDED');
  assert.equal(await balance(gateway, receiver), before + 7n);
  assert.equal(BigInt(await gateway.getNonceForAddress(address)), 2n);
  assert.deepEqual(
    await gateway.getTransactionByHash(sent.transaction_hash),
    await node.getTransactionByHash(sent.transaction_hash),
  );
});

test('a signed estimate without SKIP_VALIDATE and a bulk estimate succeed', async () => {
  const { account } = world;
  const calls = transfer('0xf00d', 1n);
  const signed = await account.estimateInvokeFee(calls, { tip: 0n, skipValidate: false });
  assert.ok(signed.overall_fee > 0n);
  const invoke = { type: TransactionType.INVOKE, payload: calls };
  const fees = await account.estimateFeeBulk([invoke, invoke], { tip: 0n });
  assert.equal(fees.length, 2);
});
