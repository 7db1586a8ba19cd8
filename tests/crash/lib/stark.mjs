// Keys, addresses and signatures of users, with starknet.js as installed for the clients' tests.
import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { ACCOUNT_CLASS, STRK } from '../../clients/js/devnet.mjs';

const require = createRequire(new URL('../../clients/js/package.json', import.meta.url));
const { ec, hash, transaction } = require('starknet');

const CHAIN_ID = `0x${Buffer.from('PORTCULLIS_DEV').toString('hex')}`;

export const hex = (value) => `0x${BigInt(value).toString(16)}`;
export const selector = (name) => hex(hash.getSelectorFromName(name));
/** A number below 2^240, and so always a felt. */
export const random = () => hex(`0x${randomBytes(30).toString('hex')}`);

/** The cap on a transaction's fee: less than a drip pays. */
const BOUNDS = {
  l1_gas: { max_amount: '0x0', max_price_per_unit: '0x2540be400' },
  l1_data_gas: { max_amount: '0x2710', max_price_per_unit: '0x2540be400' },
  l2_gas: { max_amount: '0x2faf080', max_price_per_unit: '0x2540be400' },
};
const COMMON = {
  version: '0x3',
  resource_bounds: BOUNDS,
  tip: '0x0',
  paymaster_data: [],
  nonce_data_availability_mode: 'L1',
  fee_data_availability_mode: 'L1',
};
const HASHED = {
  version: '0x3',
  chainId: CHAIN_ID,
  resourceBounds: Object.fromEntries(
    Object.entries(BOUNDS).map(([name, { max_amount, max_price_per_unit }]) => [
      name,
      { max_amount: BigInt(max_amount), max_price_per_unit: BigInt(max_price_per_unit) },
    ]),
  ),
  tip: 0n,
  paymasterData: [],
  accountDeploymentData: [],
  nonceDataAvailabilityMode: 0,
  feeDataAvailabilityMode: 0,
};

/** A user's account; it need not exist yet. */
export class User {
  constructor() {
    this.key = random();
    this.identity = random();
    this.publicKey = hex(ec.starkCurve.getStarkKey(this.key));
    const parameters = [this.publicKey, ACCOUNT_CLASS, [this.publicKey], 0];
    this.address = hex(hash.calculateContractAddressFromHash(...parameters));
    this.nonce = 0;
  }

  #signed(transactionHash, fields) {
    const { r, s } = ec.starkCurve.sign(transactionHash, this.key);
    return { ...COMMON, ...fields, signature: [hex(r), hex(s)] };
  }

  /** The request that deploys the account, signed. */
  deploy() {
    const transactionHash = hash.calculateDeployAccountTransactionHash({
      ...HASHED,
      contractAddress: this.address,
      classHash: ACCOUNT_CLASS,
      compiledConstructorCalldata: [this.publicKey],
      salt: this.publicKey,
      nonce: 0n,
    });
    const fields = {
      type: 'DEPLOY_ACCOUNT',
      class_hash: ACCOUNT_CLASS,
      contract_address_salt: this.publicKey,
      constructor_calldata: [this.publicKey],
      nonce: '0x0',
    };
    this.nonce = 1;
    const params = { deploy_account_transaction: this.#signed(transactionHash, fields) };
    return request('starknet_addDeployAccountTransaction', params, transactionHash);
  }

  /** The request that approves `spender` for an amount, signed with the account's next nonce. */
  approve(spender, amount) {
    const nonce = this.nonce;
    this.nonce += 1;
    const calldata = [spender, hex(amount), '0x0'];
    const call = { contractAddress: STRK, entrypoint: 'approve', calldata };
    const encoded = transaction.getExecuteCalldata([call], '1').map(hex);
    const transactionHash = hash.calculateInvokeTransactionHash({
      ...HASHED,
      senderAddress: this.address,
      compiledCalldata: encoded,
      nonce: BigInt(nonce),
    });
    const fields = {
      type: 'INVOKE',
      sender_address: this.address,
      calldata: encoded,
      nonce: hex(nonce),
      account_deployment_data: [],
    };
    const params = { invoke_transaction: this.#signed(transactionHash, fields) };
    return request('starknet_addInvokeTransaction', params, transactionHash);
  }
}

/** The body to post to the relay, and the hash that its response must contain. */
function request(method, params, transactionHash) {
  const body = { jsonrpc: '2.0', id: 1, method, params };
  return { path: '/rpc', body, hash: hex(transactionHash) };
}
