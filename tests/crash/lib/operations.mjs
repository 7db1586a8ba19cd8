// Operations that can be requested twice and must happen once, each with a count of how often they
// happened on the chain.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { User, random } from './stark.mjs';

const DRIP = 10n * 10n ** 18n;

let last = 0;
const next = () => (last += 1);

/** A card for `owner`, with an id that no other operation has. */
export function mint(owner) {
  const id = next();
  return {
    kind: 'mint-card',
    path: '/mint-card',
    body: { recipient: owner.address, card_id: String(id) },
    async happened({ pins, chain, history }) {
      const [holder] = await chain.view(pins.card, 'owner_of', id, 0);
      const [first] = await chain.view(pins.card, 'minted_to', id, 0);
      const count = history.count(pins.card, 'Transfer', 0, owner.address, id, 0);
      const expected = count ? BigInt(owner.address) : 0n;
      assert.deepEqual([holder, first], [expected, expected], `card ${id} has its owner`);
      return count;
    },
  };
}

/** A drip to a fresh account. */
export const drip = () => dripTo(new User());

export function dripTo({ identity, address: recipient, publicKey: public_key }) {
  return {
    kind: 'faucet-drip',
    path: '/faucet-drip',
    body: { identity, recipient, public_key },
    async happened({ chain }) {
      const balance = await chain.balance(recipient);
      assert.equal(balance % DRIP, 0n, `${recipient} holds whole drips, not ${balance}`);
      return Number(balance / DRIP);
    },
  };
}

/** A result of `owner` for an epoch that no other operation has. */
export function usership(owner) {
  const epoch = next();
  const evidence = random();
  return {
    kind: 'submit-usership',
    path: '/submit-usership',
    body: { account: owner.address, epoch, units: String(epoch + 1), evidence },
    async happened({ pins, chain, history }) {
      const found = await chain.view(pins.usership, 'usership_of', owner.address, epoch);
      const count = history.count(pins.usership, 'Submitted', owner.address, epoch);
      const expected = count ? [BigInt(epoch + 1), BigInt(evidence)] : [0n, 0n];
      assert.deepEqual(found, expected, `epoch ${epoch} has its result`);
      return count;
    },
  };
}

/** A transaction signed by `owner`, through the relay's raw path. */
export function approval(owner, { pins }) {
  return raw('invoke', owner, owner.approve(pins.staking, next()));
}

/** The deployment of an account that has been funded. */
export function deployment(owner) {
  return raw('deploy-account', owner, owner.deploy());
}

function raw(kind, owner, signed) {
  const happened = async ({ history }) => {
    const same = history.sentBy(owner.address).filter(({ hash }) => hash === signed.hash);
    return same.filter(({ succeeded }) => succeeded).length;
  };
  return { kind, ...signed, happened };
}

/** The same under an idempotency key. A user-signed transaction needs none. */
export function underKey(operation) {
  return operation.hash ? operation : { ...operation, key: randomUUID() };
}

/** `count` operations of the three kinds in turn, every other one of a kind under a key. */
export function mixed(count, owner) {
  const make = [() => mint(owner), drip, () => usership(owner)];
  return Array.from({ length: count }, (_, at) => {
    const operation = make[at % 3]();
    return at % 2 ? underKey(operation) : operation;
  });
}
