// One scenario, in order: V2 is activated, a user gets money, an account and a name, is attested,
// plays, stakes and bridges, and moves to another account. starknet.js signs, the relay submits,
// and every effect is read back through the gateway.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Backend } from './relay_backend.mjs';
import { User, calls, fresh } from './relay_wallet.mjs';
import { Node, Portcullis, endAll } from './relay_world.mjs';

const STRK = 10n ** 18n;
const L1 = '0x00000000000000000000000000000000000a11ce';
const CONFIRM = { confirm: 'ACTIVATE PERMANENT V2 VERIFICATION' };
const RECOVERY_DELAY = 3600;
const UNBONDING_DELAY = 60;

let node;
let portcullis;
let backend;
let view;
let call;
let alice;
let bob;
let dave;

before(async () => {
  node = await Node.start();
  portcullis = await Portcullis.start(node, { v2: false });
  backend = new Backend(portcullis);
  view = backend.view;
  call = calls(portcullis.pins);
  [alice, bob, dave] = [1, 2, 3].map(() => new User(portcullis));
});
after(() => endAll(portcullis, node));

test('before V2 the relay is not ready and names the pin', async () => {
  const { status, json } = await portcullis.get('/readyz');
  assert.deepEqual([status, json.ready], [503, false]);
  const wrong = json.pins.filter((pin) => !pin.ok).map((pin) => pin.pin);
  assert.deepEqual(wrong, ['verification_v2_required']);
});

test('before V2 nothing is written', async () => {
  await backend.refused('/faucet-drip', alice.asRecipient(), 503, 'pins_unproven');
  await backend.refused('/register', alice.asRegistered(), 503, 'pins_unproven');
  await backend.refused('/rpc', await alice.signedDeployment(), 503, 'pins_unproven');
});

test('V2 requires the exact confirmation', async () => {
  for (const body of [{}, { confirm: 'yes' }, { confirm: CONFIRM.confirm.toLowerCase() }]) {
    await backend.refused('/require-v2', body, 403, 'confirmation_required');
  }
  assert.equal(await view.isTrue('registry', 'verification_v2_required'), false);
});

test('the first confirmation activates V2 and the relay is ready', async () => {
  const json = await backend.written('/require-v2', CONFIRM);
  assert.equal(json.verification_v2_required, true);
  assert.equal(await view.isTrue('registry', 'verification_v2_required'), true);
  const ready = await portcullis.get('/readyz');
  assert.deepEqual([ready.status, ready.json.ready], [200, true], ready.text);
  assert.ok(ready.json.pins.every((pin) => pin.ok));
});

test('later requests get the idempotent body, confirmed or not', async () => {
  const exact =
    '{"ok":true,"transaction_hash":"","idempotent":true,"verification_v2_required":true}';
  for (const body of [CONFIRM, {}]) {
    const nonces = await view.signers();
    const { status, text } = await portcullis.post('/require-v2', body);
    assert.deepEqual([status, text], [200, exact]);
    assert.deepEqual(await view.signers(), nonces);
  }
});

test('the faucet pays ten STRK to an account not yet deployed', async () => {
  for (const user of [alice, bob]) {
    await backend.written('/faucet-drip', user.asRecipient());
    assert.equal(await view.balance(user.address), 10n * STRK);
  }
  // The account that alice moves to later is not bound yet.
  await node.ask('devnet_mint', { address: dave.address, amount: 1e19, unit: 'FRI' });
});

test('starknet.js deploys the accounts through the relay', async () => {
  for (const user of [alice, bob, dave]) {
    const sent = await user.deploy();
    await view.succeeded(sent.transaction_hash);
    assert.equal(BigInt(sent.contract_address), BigInt(user.address));
    const found = await view.provider.getClassHashAt(user.address);
    assert.equal(BigInt(found), BigInt(user.payload.classHash));
    assert.equal(await view.nonce(user.address), 1n);
  }
});

test('an identity is bound to its account, once', async () => {
  for (const user of [alice, bob]) {
    await backend.written('/register', user.asRegistered());
    const account = await view.address('registry', 'account_of', user.identity);
    assert.equal(BigInt(account), BigInt(user.address));
    const identity = await view.address('registry', 'identity_of', user.address);
    assert.equal(BigInt(identity), BigInt(user.identity));
    await backend.already('/register', user.asRegistered());
  }
});

test('an assurance is attested, once', async () => {
  for (const user of [alice, bob]) {
    assert.equal(await view.isTrue('registry', 'is_verified', user.address), false);
    const attestation = user.attestation({ assurance_level: 2 });
    await backend.written('/verification-attest', attestation);
    const { id, ...found } = await view.attestation(user.address);
    assert.equal(id, BigInt(attestation.attestation_id));
    assert.deepEqual(found, {
      address: BigInt(user.address),
      assurance: 'age_over_18',
      level: 2n,
      expiresAt: BigInt(Date.parse(attestation.expires_at) / 1000),
      revoked: false,
    });
    assert.equal(await view.isTrue('registry', 'is_verified', user.address), true);
    await backend.already('/verification-attest', attestation);
  }
});

test('cards are minted once, in any notation of the id', async () => {
  for (const [id, same] of [['7', '0x7'], ['0x8', '8'], [`${2n ** 130n}`, `${2n ** 130n}`]]) {
    await backend.written('/mint-card', { recipient: alice.address, card_id: id });
    const owner = await cardOwner(BigInt(id));
    assert.equal(owner, BigInt(alice.address));
    await backend.already('/mint-card', { recipient: alice.address, card_id: same });
  }
  assert.equal(await view.number('card', 'balance_of', alice.address), 3n);
});

async function cardOwner(id) {
  const [low, high] = [id & (2n ** 128n - 1n), id >> 128n];
  const [owner] = await view.of('card', 'owner_of', low, high);
  return owner;
}

test('a validator approves and stakes in one transaction', async () => {
  await alice.does(call.approve('staking', STRK), call.registerValidator(500, STRK));
  assert.equal(await view.isTrue('staking', 'is_validator', alice.address), true);
  assert.equal(await view.number('staking', 'self_stake_of', alice.address), STRK);
  assert.deepEqual(await view.of('staking', 'commission_of', alice.address), [500n]);
});

test('the validator increases its stake', async () => {
  await alice.does(call.approve('staking', 5n), call.increaseSelfStake(5n));
  assert.equal(await view.number('staking', 'self_stake_of', alice.address), STRK + 5n);
});

test('another user delegates, and withdraws part of it', async () => {
  await bob.does(call.approve('staking', 1000n), call.delegate(alice.address, 1000n));
  const delegated = ['staking', 'delegation_of', bob.address, alice.address];
  assert.equal(await view.number(...delegated), 1000n);
  await bob.does(call.undelegate(alice.address, 400n));
  assert.equal(await view.number(...delegated), 600n);
  assert.equal(await view.number('staking', 'pending_of', bob.address), 400n);
});

test('a withdrawal before its time reverts, later it pays', async () => {
  const early = await view.receipt((await bob.execute([call.withdraw()])).transaction_hash);
  assert.equal(early.execution_status, 'REVERTED');
  assert.match(early.revert_reason, /TOO_EARLY|544f4f5f4541524c59/);
  assert.equal(await view.number('staking', 'pending_of', bob.address), 400n);

  await node.later(UNBONDING_DELAY);
  const before = await view.balance(bob.address);
  const receipt = await bob.does(call.withdraw());
  const fee = BigInt(receipt.actual_fee.amount);
  assert.equal(await view.balance(bob.address), before + 400n - fee);
  assert.equal(await view.number('staking', 'pending_of', bob.address), 0n);
});

test('the validator exits, and its stake stays locked', async () => {
  await alice.does(call.exitValidator());
  assert.equal(await view.isTrue('staking', 'is_validator', alice.address), false);
  assert.equal(await view.number('staking', 'self_stake_of', alice.address), 0n);
  assert.equal(await view.number('staking', 'pending_of', alice.address), STRK + 5n);
});

test('tokens are approved and bridged out in one transaction', async () => {
  const before = await view.balance(portcullis.pins.bridge);
  const receipt = await alice.does(call.approve('bridge', 77n), call.bridgeOutToken(L1, 77n));
  assert.equal(await view.balance(portcullis.pins.bridge), before + 77n);
  assert.equal(await view.number('bridge', 'deposited_by', alice.address), 77n);
  const payload = receipt.messages_sent[0].payload.map(BigInt);
  assert.deepEqual(payload, [1n, BigInt(L1), 77n, 0n]);
});

test('a card is bridged out, and its depositor is recorded', async () => {
  const receipt = await alice.does(call.bridgeOutCard(L1, 7));
  assert.equal(await cardOwner(7n), BigInt(portcullis.pins.bridge));
  const [depositor] = await view.of('bridge', 'depositor_of', 7n, 0n);
  assert.equal(depositor, BigInt(alice.address));
  const payload = receipt.messages_sent[0].payload.map(BigInt);
  assert.deepEqual(payload, [2n, BigInt(L1), 7n, 0n, BigInt(alice.address)]);
});

test('a card is transferred, and another is burnt', async () => {
  await alice.does(call.transfer(bob.address, 8));
  assert.equal(await cardOwner(8n), BigInt(bob.address));
  await alice.does(call.burn(2n ** 130n));
  assert.equal(await cardOwner(2n ** 130n), 0n);
  assert.equal(await view.number('card', 'balance_of', alice.address), 0n);
  // A burnt card still counts as minted.
  await backend.already('/mint-card', { recipient: alice.address, card_id: `${2n ** 130n}` });
});

test('the usership of an epoch is submitted, once', async () => {
  const usership = { account: alice.address, epoch: 12, units: '42', evidence: '0xe71d' };
  await backend.written('/submit-usership', usership);
  const found = await view.of('usership', 'usership_of', alice.address, 12);
  assert.deepEqual(found, [42n, 0xe71dn]);
  await backend.already('/submit-usership', usership);
  for (const other of [{ units: '43' }, { evidence: '0x1' }]) {
    const body = { ...usership, ...other };
    await backend.refused('/submit-usership', body, 409, 'usership_conflict');
  }
  await backend.written('/submit-usership', { ...usership, epoch: 13 });
});

test('a verification is revoked, once', async () => {
  const revocation = { account: bob.address, reason: 'by request' };
  await backend.written('/verification-revoke', revocation);
  assert.equal((await view.attestation(bob.address)).revoked, true);
  assert.equal(await view.isTrue('registry', 'is_verified', bob.address), false);
  await backend.already('/verification-revoke', revocation);
});

test('a pending recovery is not executed early, and is cancelled', async () => {
  const { identity } = alice;
  const proposal = dave.asRecovered(identity);
  const { ready_at: readyAt } = await backend.written('/recovery-propose', proposal);
  const again = await backend.already('/recovery-propose', proposal);
  assert.equal(again.ready_at, readyAt);
  const [account, seconds] = await view.of('registry', 'recovery_of', identity);
  assert.equal(account, BigInt(dave.address));
  assert.equal(Date.parse(readyAt) / 1000, Number(seconds));

  const error = await backend.refused('/recovery-execute', { identity }, 409, 'recovery_not_ready');
  assert.equal(error.ready_at, readyAt);

  await backend.written('/recovery-cancel', { identity });
  assert.deepEqual(await view.of('registry', 'recovery_of', identity), [0n, 0n]);
});

test('after its delay a recovery moves the binding', async () => {
  const { identity } = alice;
  await backend.written('/recovery-propose', dave.asRecovered(identity));
  await node.later(RECOVERY_DELAY);
  const done = await backend.written('/recovery-execute', { identity });
  assert.equal(BigInt(done.account), BigInt(dave.address));

  const account = await view.address('registry', 'account_of', identity);
  assert.equal(BigInt(account), BigInt(dave.address));
  assert.deepEqual(await view.of('registry', 'identity_of', alice.address), [0n]);
  assert.equal((await view.attestation(alice.address)).revoked, true);
  for (const user of [alice, dave]) {
    assert.equal(await view.isTrue('registry', 'is_verified', user.address), false);
  }
});

test('the new account is attested, and the old one is not', async () => {
  await backend.refused('/verification-attest', alice.attestation(), 409, 'not_registered');
  await backend.written('/verification-attest', dave.attestation({ attestation_id: fresh() }));
  assert.equal(await view.isTrue('registry', 'is_verified', dave.address), true);
});

test('the journal is complete, with the outcome of every write', async () => {
  assert.match(await portcullis.journal('verify'), /entries, all unchanged/);
  const entries = await portcullis.entries();
  const kinds = (intent) => entries.filter((e) => e.intent === intent).map((e) => e.kind);
  const intents = new Set(entries.map((entry) => entry.intent).filter((id) => id !== null));
  assert.ok(intents.size > 30);
  for (const intent of intents) {
    const [first, ...more] = kinds(intent);
    assert.equal(first, 'intended');
    assert.ok(['succeeded', 'reverted'].includes(more.at(-1)), `${intent}: ${more}`);
  }
  assert.equal(entries.filter((entry) => entry.kind === 'reverted').length, 1);
});
