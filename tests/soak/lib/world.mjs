// What is on the chain and can be queried; aborted blocks and transactions, too.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  ACCOUNT_CLASS, BALANCE_OF, SEEDED, STRK, UNSIGNED,
} from '../../clients/js/devnet.mjs';

const require = createRequire(new URL('../../clients/js/package.json', import.meta.url));
const { ec, hash } = require('starknet');

const UDC = '0x41a78e741e5af2fec34b695679bc6891742439f7afb8484ecd7766661ad02bf';
const CHAIN_ID = `0x${Buffer.from('PORTCULLIS_DEV').toString('hex')}`;
/** Recipients: few, so that an aborted transaction is sometimes sent again unchanged. */
const RECIPIENTS = ['0x501', '0x502', '0x503'];
/** How many blocks and transactions are queried: the newest, including aborted ones. */
const REMEMBERED = 40;

const hex = (value) => `0x${BigInt(value).toString(16)}`;

/** A question: method, params by name, and whether the gateway may cache the response. */
const ask = (kind, method, params, isCacheable = false) => {
  const name = `starknet_${method}`;
  return { kind, method: name, params, isCacheable, key: `${name} ${JSON.stringify(params)}` };
};

export class World {
  constructor(chance) {
    this.chance = chance;
    this.head = 0;
    this.blocks = [];
    this.transactions = [];
    this.declares = declares();
  }

  /** Records a block seen at the head. */
  saw({ block_hash: block, block_number: number, transactions }) {
    this.head = number;
    remember(this.blocks, [block]);
    remember(this.transactions, transactions);
  }

  /** Records a sent transaction; it may be in no block yet. */
  sent(transaction) {
    remember(this.transactions, [transaction]);
  }

  /** The parameters of a payment. */
  payment() {
    const { chance } = this;
    return { address: chance.one(RECIPIENTS), amount: chance.between(1, 3), unit: 'FRI' };
  }

  /** A question; most often one that other clients ask, too. */
  question() {
    return this.chance.weighted(QUESTIONS)(this);
  }

  number() {
    return Math.max(0, this.head + 1 - this.chance.between(0, REMEMBERED));
  }

  block() {
    return this.chance.one(this.blocks) ?? '0x1';
  }

  transaction() {
    return { transaction_hash: this.chance.one(this.transactions) ?? '0x1' };
  }

  recipient() {
    return this.chance.one(RECIPIENTS);
  }

  declared() {
    return this.chance.one(this.declares).class;
  }
}

function remember(list, added) {
  for (const one of added) if (!list.includes(one)) list.push(one);
  list.splice(0, Math.max(0, list.length - REMEMBERED));
}

const balance = (address) => ({
  contract_address: STRK,
  entry_point_selector: BALANCE_OF,
  calldata: [address],
});

const estimate = () => ({
  request: [UNSIGNED],
  simulation_flags: ['SKIP_VALIDATE'],
  block_id: 'latest',
});

const at = (block_id) => ask('block by tag', 'getBlockWithTxHashes', { block_id });
const byNumber = (world) => ({ block_number: world.number() });
const byHash = (world) => ({ block_hash: world.block() });
const classOf = (block_id, class_hash, kind, isCacheable) =>
  ask(kind, 'getClass', { block_id, class_hash }, isCacheable);

/** Kinds that the gateway caches: a soak must see hits for each. */
export const KEPT = [
  'chain id',
  'spec version',
  'block by number',
  'block by hash',
  'receipt',
  'class at a tag',
  'class at a number',
];

const QUESTIONS = [
  [2, () => ask('chain id', 'chainId', {}, true)],
  [2, () => ask('spec version', 'specVersion', {}, true)],
  [3, () => ask('head', 'blockNumber', {})],
  [3, () => at('latest')],
  [1, () => at('pre_confirmed')],
  [2, () => at('l1_accepted')],
  [
    12,
    (world) =>
      ask('block by number', 'getBlockWithTxHashes', { block_id: byNumber(world) }, true),
  ],
  [12, (world) => ask('block by hash', 'getBlockWithTxHashes', { block_id: byHash(world) }, true)],
  [5, (world) => ask('transaction', 'getTransactionByHash', world.transaction())],
  [15, (world) => ask('receipt', 'getTransactionReceipt', world.transaction(), true)],
  [5, (world) => ask('status', 'getTransactionStatus', world.transaction())],
  [
    3,
    (world) => {
      const params = { block_id: byNumber(world), contract_address: SEEDED.address };
      return ask('class hash at', 'getClassHashAt', params);
    },
  ],
  [2, (world) => classOf('latest', world.declared(), 'class at a tag', true)],
  [1, (world) => classOf('pre_confirmed', world.declared(), 'class at a tag', true)],
  [2, (world) => classOf(byNumber(world), world.declared(), 'class at a number', true)],
  [0.2, () => classOf('latest', ACCOUNT_CLASS, 'class at a tag', true)],
  [1, () => ask('class at', 'getClassAt', { block_id: 'latest', contract_address: UDC })],
  [
    5,
    () => {
      const params = { block_id: 'latest', contract_address: SEEDED.address };
      return ask('nonce', 'getNonce', params);
    },
  ],
  [
    4,
    (world) => ask('call', 'call', { request: balance(world.recipient()), block_id: 'latest' }),
  ],
  [
    3,
    (world) => {
      const params = { request: balance(world.recipient()), block_id: byNumber(world) };
      return ask('call', 'call', params);
    },
  ],
  [2, () => ask('estimate', 'estimateFee', estimate())],
];

const BOUNDS = {
  l1_gas: { max_amount: '0x0', max_price_per_unit: '0x2540be400' },
  l1_data_gas: { max_amount: '0x2710', max_price_per_unit: '0x2540be400' },
  l2_gas: { max_amount: '0x3b9aca00', max_price_per_unit: '0x2540be400' },
};

/** The declarations of small classes by the seeded account, one for each nonce from 0 on. Signed
 * once: an aborted declaration may be sent again unchanged. */
function declares() {
  const folder = new URL('../../../conf/dev/contracts/build/', import.meta.url);
  const read = (name) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
  const classes = read('classes.json');
  return ['usership', 'bridge'].map((name, nonce) => {
    const { class_hash: classHash, compiled_class_hash: compiledClassHash } = classes[name];
    const bounds = Object.entries(BOUNDS).map(([resource, bound]) => [
      resource,
      {
        max_amount: BigInt(bound.max_amount),
        max_price_per_unit: BigInt(bound.max_price_per_unit),
      },
    ]);
    const transactionHash = hash.calculateDeclareTransactionHash({
      classHash,
      compiledClassHash,
      senderAddress: SEEDED.address,
      version: '0x3',
      chainId: CHAIN_ID,
      nonce: BigInt(nonce),
      accountDeploymentData: [],
      nonceDataAvailabilityMode: 0,
      feeDataAvailabilityMode: 0,
      resourceBounds: Object.fromEntries(bounds),
      tip: 0n,
      paymasterData: [],
    });
    const { r, s } = ec.starkCurve.sign(transactionHash, SEEDED.key);
    const { sierra_program, contract_class_version, entry_points_by_type, abi } = read(
      `${name}.sierra.json`,
    );
    const text = typeof abi === 'string' ? abi : JSON.stringify(abi);
    const declare_transaction = {
      type: 'DECLARE',
      version: '0x3',
      sender_address: SEEDED.address,
      compiled_class_hash: compiledClassHash,
      contract_class: { sierra_program, contract_class_version, entry_points_by_type, abi: text },
      signature: [hex(r), hex(s)],
      nonce: hex(nonce),
      resource_bounds: BOUNDS,
      tip: '0x0',
      paymaster_data: [],
      account_deployment_data: [],
      nonce_data_availability_mode: 'L1',
      fee_data_availability_mode: 'L1',
    };
    return { class: classHash, nonce, params: { declare_transaction } };
  });
}

/** The declaring account. */
export const DECLARER = SEEDED.address;
