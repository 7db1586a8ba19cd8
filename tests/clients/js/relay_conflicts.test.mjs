// Operations that the chain or the product's policy refuses: each has its own reason, and none
// sends a transaction or spends a signer's nonce.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ec } from 'starknet';
import { Backend } from './relay_backend.mjs';
import { DETAILS, User, calls, fresh } from './relay_wallet.mjs';
import { Node, Portcullis, Way, endAll, eventually } from './relay_world.mjs';

const CANCEL_WINDOW = 120;
const RECOVERY_DELAY = 3600;
const POLICY = 'PORTCULLIS__RELAY__POLICY';

let node;
let way;
let portcullis;
let backend;
let view;
let call;
/** Verified, registered only, deployed only, and no account at all. */
let alice;
let bob;
let carol;
let dora;
/** What was done before any refusal. */
const done = {};

before(async () => {
  node = await Node.start();
  way = await Way.to(node);
  const env = { [`${POLICY}__RECOVERY_CANCEL_WINDOW`]: `${CANCEL_WINDOW}s` };
  portcullis = await Portcullis.start(node, { way, env });
  backend = new Backend(portcullis, way);
  view = backend.view;
  call = calls(portcullis.pins);
  [alice, bob, carol, dora] = [1, 2, 3, 4].map(() => new User(portcullis));
  await alice.registered();
  await bob.registered();
  await carol.deployed();
  done.attestation = alice.attestation();
  done.mint = { recipient: alice.address, card_id: '1' };
  done.usership = { account: alice.address, epoch: 3, units: '9', evidence: '0x9' };
  await backend.written('/verification-attest', done.attestation);
  await backend.written('/mint-card', done.mint);
  await backend.written('/submit-usership', done.usership);
});
after(() => endAll(portcullis, way, node));

/** An x coordinate that is not on the curve. */
function offTheCurve() {
  for (let x = 2n; ; x += 1n) {
    const padded = x.toString(16).padStart(64, '0');
    try {
      ec.starkCurve.ProjectivePoint.fromHex(`02${padded}`);
    } catch {
      return `0x${padded}`;
    }
  }
}

/** The case, its path, its body, and the refusal. */
const REFUSALS = [
  ['a bound identity is not bound to another account', '/register',
    () => ({ ...carol.asRegistered(), identity: alice.identity }), 409, 'identity_taken'],
  ['a bound account is not bound to another identity', '/register',
    () => ({ ...alice.asRegistered(), identity: fresh() }), 409, 'account_taken'],
  ['an account that does not exist is not bound', '/register',
    () => dora.asRegistered(), 409, 'account_not_deployed'],
  ['an account is not bound with the key of another', '/register',
    () => ({ ...carol.asRegistered(), public_key: alice.publicKey }), 403, 'address_mismatch'],
  ['zero is not a key', '/register',
    () => ({ ...carol.asRegistered(), public_key: '0x0' }), 403, 'public_key_invalid'],
  ['a number off the curve is not a key', '/register',
    () => ({ ...carol.asRegistered(), public_key: offTheCurve() }), 403, 'public_key_invalid'],

  ['an account without an identity is not attested', '/verification-attest',
    () => carol.attestation(), 409, 'not_registered'],
  ['an attestation id is not reused for another level', '/verification-attest',
    () => ({ ...done.attestation, assurance_level: 3 }), 409, 'attestation_replayed'],
  ['an attestation id is not reused for another time', '/verification-attest',
    () => ({ ...done.attestation, expires_at: '2099-01-01T00:00:00Z' }), 409,
    'attestation_replayed'],
  ['an attestation id is not reused for another account', '/verification-attest',
    () => ({ ...done.attestation, account: bob.address }), 409, 'attestation_replayed'],
  ['an assurance that is not listed is not attested', '/verification-attest',
    () => alice.attestation({ assurance_type: 'age_over_21' }), 403, 'assurance_not_allowed'],
  ['a level that is not listed is not attested', '/verification-attest',
    () => alice.attestation({ assurance_level: 4 }), 403, 'assurance_not_allowed'],
  ['a level that is out of range is not attested', '/verification-attest',
    () => alice.attestation({ assurance_level: 257 }), 403, 'assurance_not_allowed'],
  ['an expired assurance is not attested', '/verification-attest',
    () => alice.attestation({ expires_at: '2020-01-01T00:00:00Z' }), 403, 'argument_not_allowed'],
  ['zero is not an attestation id', '/verification-attest',
    () => alice.attestation({ attestation_id: '0x0' }), 403, 'argument_not_allowed'],
  ['an assurance that was never attested is not revoked', '/verification-revoke',
    () => ({ account: bob.address, reason: 'none' }), 409, 'not_attested'],

  ['a minted card is not minted to another account', '/mint-card',
    () => ({ ...done.mint, recipient: bob.address }), 409, 'already_minted'],
  ['no card is minted to an unverified account', '/mint-card',
    () => ({ recipient: bob.address, card_id: '2' }), 409, 'not_verified'],
  ["no card is minted to one of the product's contracts", '/mint-card',
    () => ({ recipient: portcullis.pins.bridge, card_id: '2' }), 403, 'argument_not_allowed'],

  ['an epoch has one result', '/submit-usership',
    () => ({ ...done.usership, units: '10' }), 409, 'usership_conflict'],
  ['an account without an identity has no result', '/submit-usership',
    () => ({ ...done.usership, account: carol.address }), 409, 'not_registered'],
  ['the epoch before the first has no result', '/submit-usership',
    () => ({ ...done.usership, epoch: 0 }), 403, 'epoch_out_of_range'],
  ['the epoch after the last has no result', '/submit-usership',
    () => ({ ...done.usership, epoch: 1_000_001 }), 403, 'epoch_out_of_range'],

  ['an unknown identity is not recovered', '/recovery-propose',
    () => carol.asRecovered(fresh()), 409, 'not_registered'],
  ['an identity is not recovered to a bound account', '/recovery-propose',
    () => bob.asRecovered(alice.identity), 409, 'account_taken'],
  ['an identity is not recovered with the key of another account', '/recovery-propose',
    () => ({ ...carol.asRecovered(alice.identity), new_public_key: bob.publicKey }), 403,
    'address_mismatch'],
  ['a recovery that was not proposed is not executed', '/recovery-execute',
    () => ({ identity: alice.identity }), 409, 'recovery_not_pending'],
  ['a recovery that was not proposed is not cancelled', '/recovery-cancel',
    () => ({ identity: alice.identity }), 409, 'recovery_not_pending'],

  ['the faucet pays a registered identity at its own account only', '/faucet-drip',
    () => ({ ...dora.asRecipient(), identity: alice.identity }), 409, 'identity_taken'],
  ['the faucet pays a registered account for its own identity only', '/faucet-drip',
    () => ({ ...alice.asRecipient(), identity: fresh() }), 409, 'account_taken'],
  ['the faucet pays an unregistered identity at one account only', '/faucet-drip',
    () => ({ ...dora.asRecipient(), identity: carol.identity }), 409, 'identity_taken'],
  ['the faucet pays an unregistered account for one identity only', '/faucet-drip',
    () => ({ ...carol.asRecipient(), identity: fresh() }), 409, 'account_taken'],
  ['the faucet does not pay an address without its key', '/faucet-drip',
    () => ({ ...dora.asRecipient(), public_key: bob.publicKey }), 403, 'address_mismatch'],
];
for (const [sentence, path, body, status, reason] of REFUSALS) {
  test(`${sentence}: ${reason}`, () => backend.refused(path, body(), status, reason));
}

test('each refusal is in the journal, with its reason', async () => {
  const refusals = (await portcullis.entries()).filter((entry) => entry.kind === 'refused');
  const journaled = refusals.map((entry) => [`/${entry.operation}`, entry.detail.reason]);
  assert.deepEqual(
    journaled,
    REFUSALS.map(([, path, , , reason]) => [path, reason]),
  );
});

test('an attestation id is not reused after its revocation', async () => {
  const user = await new User(portcullis).registered();
  const attestation = user.attestation();
  await backend.written('/verification-attest', attestation);
  await backend.written('/verification-revoke', { account: user.address, reason: 'over' });
  await backend.refused('/verification-attest', attestation, 409, 'attestation_replayed');
  assert.equal(await view.isTrue('registry', 'is_verified', user.address), false);
  await backend.written('/verification-attest', user.attestation());
  assert.equal(await view.isTrue('registry', 'is_verified', user.address), true);
});

test('a transferred and burnt card still counts as minted', async () => {
  const [mallory, mint] = [await new User(portcullis).verified(), { card_id: '40' }];
  await backend.written('/mint-card', { ...mint, recipient: alice.address });
  await alice.does(call.transfer(bob.address, 40));
  await bob.does(call.burn(40));
  const again = { ...mint, recipient: mallory.address };
  await backend.refused('/mint-card', again, 409, 'already_minted');
});

test('only one recovery is pending, and each has its time', async () => {
  const [user, heir, other] = [1, 2, 3].map(() => new User(portcullis));
  for (const one of [user, heir, other]) await one.deployed();
  await backend.written('/register', user.asRegistered());
  const { identity } = user;
  const proposal = heir.asRecovered(identity);
  const { ready_at: readyAt } = await backend.written('/recovery-propose', proposal);

  const pending = other.asRecovered(identity);
  const refusal = await backend.refused('/recovery-propose', pending, 409, 'recovery_pending');
  assert.equal(refusal.ready_at, readyAt);
  const early = await backend.refused('/recovery-execute', { identity }, 409, 'recovery_not_ready');
  assert.equal(early.ready_at, readyAt);

  await node.later(CANCEL_WINDOW + 1);
  await backend.refused('/recovery-cancel', { identity }, 409, 'recovery_not_cancellable');
  await backend.refused('/recovery-execute', { identity }, 409, 'recovery_not_ready');

  // The recovering account has bound an identity of its own in the meantime.
  await backend.written('/register', heir.asRegistered());
  await node.later(RECOVERY_DELAY);
  await backend.refused('/recovery-execute', { identity }, 409, 'account_taken');
  const account = await view.address('registry', 'account_of', identity);
  assert.equal(BigInt(account), BigInt(user.address));
});

test('an account that changed its class is refused', async () => {
  const user = await new User(portcullis).deployed();
  const { token_class: other } = portcullis.pins;
  const upgrade = { contractAddress: user.address, entrypoint: 'upgrade', calldata: [other] };
  const burn = await user.signed([call.burn(1)], { nonce: 2 });
  // The relay refuses this write, so the user sends it to a node of their own.
  await node.ask('starknet_addInvokeTransaction', JSON.parse(await user.signed([upgrade])).params);
  assert.equal(BigInt(await view.provider.getClassHashAt(user.address)), BigInt(other));
  await backend.refused('/register', user.asRegistered(), 403, 'class_not_approved');
  await backend.refused('/rpc', burn, 403, 'class_not_approved');
});

test('a user without an account submits nothing', async () => {
  const burn = await dora.signed([call.burn(1)], { nonce: 0 });
  await backend.refused('/rpc', burn, 409, 'account_not_deployed');
});

test('a spent nonce is refused', async () => {
  const nonce = await view.nonce(alice.address);
  await alice.does(call.approve('staking', 1n));
  const known = await alice.signed([call.approve('staking', 2n)], { nonce });
  await backend.refused('/rpc', known, 409, 'nonce_conflict');

  // The relay has never seen this transaction: the user sent it directly to a node.
  const spent = await alice.signed([call.approve('staking', 3n)]);
  const late = await alice.signed([call.approve('staking', 4n)]);
  await node.ask('starknet_addInvokeTransaction', JSON.parse(spent).params);
  await backend.refusedByNode(late, 409, 'nonce_conflict');
  assert.equal(await view.nonce(alice.address), nonce + 2n);
});

test('a future nonce is refused', async () => {
  const nonce = (await view.nonce(alice.address)) + 5n;
  const early = await alice.signed([call.approve('staking', 5n)], { nonce });
  await backend.refusedByNode(early, 409, 'nonce_conflict');
});

test('bounds below the fee are rejected without spending the nonce', async () => {
  const nonce = await view.nonce(alice.address);
  const approve = [call.approve('staking', 6n)];
  const l2_gas = { max_amount: 1n, max_price_per_unit: 10n ** 10n };
  const resourceBounds = { ...DETAILS.resourceBounds, l2_gas };
  const poor = await alice.signed(approve, { resourceBounds });
  await backend.refusedByNode(poor, 409, 'rejected');
  await backend.refusedByNode(poor, 409, 'rejected');
  await alice.does(...approve);
  assert.equal(await view.nonce(alice.address), nonce + 1n);
});

test('an account that cannot pay for its bounds is rejected', async () => {
  const user = await new User(portcullis).deployed();
  const stake = 9n * 10n ** 18n;
  await user.does(call.approve('staking', stake), call.registerValidator(0, stake));
  const request = await user.signed([call.exitValidator()]);
  await backend.refusedByNode(request, 409, 'rejected');
});

test('bounds over the cap are not sent', async () => {
  const l2_gas = { max_amount: 400_000_000n, max_price_per_unit: 26n * 10n ** 9n };
  const resourceBounds = { ...DETAILS.resourceBounds, l2_gas };
  const request = await alice.signed([call.approve('staking', 1n)], { resourceBounds });
  await backend.refused('/rpc', request, 403, 'fee_bound_exceeded');
});

test("a user's reverted transaction is accepted: its receipt shows it", async () => {
  const { transaction_hash: hash } = await bob.execute([call.burn(1)]);
  const receipt = await view.receipt(hash);
  assert.equal(receipt.execution_status, 'REVERTED');
  assert.match(receipt.revert_reason, /NOT_CARD_OWNER/);
  const [owner] = await view.of('card', 'owner_of', 1n, 0n);
  assert.equal(owner, BigInt(alice.address));
});

test('the faucet reports its cooldown and does not pay twice', async () => {
  const user = new User(portcullis);
  const drip = user.asRecipient();
  await backend.written('/faucet-drip', drip);
  const day = 24 * 60 * 60;
  const another = { 'idempotency-key': 'another-drip' };
  const { headers } = await backend.refused('/faucet-drip', drip, 429, 'faucet_cooldown', another);
  const seconds = Number(headers.get('retry-after'));
  assert.ok(seconds > day - 600 && seconds <= day, `Retry-After: ${seconds}`);

  // A one-second cooldown ends soon.
  await portcullis.restart({ [`${POLICY}__FAUCET_COOLDOWN`]: '1s' });
  const paid = await eventually('the cooldown to be over', async () => {
    const answer = await portcullis.post('/faucet-drip', drip, another);
    if (answer.status === 200) return answer;
    assert.equal(answer.json.error.reason, 'faucet_cooldown');
    assert.equal(answer.headers.get('retry-after'), '1');
  });
  await view.succeeded(paid.json.transaction_hash);
  assert.equal(await view.balance(user.address), 20n * 10n ** 18n);
});

test('a faucet that cannot pay is empty', async () => {
  await portcullis.restart({ [`${POLICY}__FAUCET_AMOUNT`]: '5000 STRK' });
  await backend.refused('/faucet-drip', dora.asRecipient(), 503, 'faucet_empty');
  assert.equal(await view.balance(dora.address), 0n);
});
