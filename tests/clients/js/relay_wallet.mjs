// A user's wallet: starknet.js signs, the relay submits, the gateway reads the chain.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { Account, CallData, RpcProvider, cairo, ec, hash, shortString, stark } from 'starknet';

/** At most 2.001 STRK for each action of a user here; a drip of the faucet is 10. */
const price = 10n ** 10n;
const BOUNDS = {
  l1_gas: { max_amount: 100_000n, max_price_per_unit: price },
  l1_data_gas: { max_amount: 10_000n, max_price_per_unit: price },
  l2_gas: { max_amount: 200_000_000n, max_price_per_unit: price },
};
/** Without a tip, starknet.js would read whole blocks to find one. */
export const DETAILS = { tip: 0n, resourceBounds: BOUNDS };
const SOON = { retryInterval: 50 };
const FAR = '2100-01-01T00:00:00Z';

/** A fresh opaque value of 31 bytes. */
export const fresh = () => `0x01${randomBytes(30).toString('hex')}`;

/** Reads through the gateway; signed transactions go to the relay, with the backend's token. */
export class RelayProvider extends RpcProvider {
  constructor(portcullis) {
    const baseFetch = async (url, options) => {
      const { method, params } = JSON.parse(options.body);
      if (!method.startsWith('starknet_add')) return fetch(portcullis.gateway, options);
      const { signature } = Object.values(params)[0];
      signature.forEach((felt) => portcullis.signatures.add(felt));
      const authorization = `Bearer ${portcullis.token}`;
      const headers = { ...options.headers, authorization };
      const answer = await fetch(`${portcullis.relay}/rpc`, { ...options, headers });
      const text = await answer.clone().text();
      portcullis.hears({ headers: answer.headers, text });
      return answer;
    };
    super({ nodeUrl: portcullis.gateway, baseFetch });
  }
}

/** The chain's state, read through the gateway. */
export class View {
  constructor(portcullis) {
    this.pins = portcullis.pins;
    this.portcullis = portcullis;
    this.provider = new RelayProvider(portcullis);
  }

  /** What a contract's view returns, as numbers. */
  async of(contract, entrypoint, ...calldata) {
    const contractAddress = this.pins[contract];
    const call = { contractAddress, entrypoint, calldata: CallData.compile(calldata) };
    return (await this.provider.callContract(call)).map(BigInt);
  }

  /** The same for a view that returns a u256. */
  async number(...view) {
    const [low, high] = await this.of(...view);
    return low + (high << 128n);
  }

  async address(...view) {
    const [address] = await this.of(...view);
    return `0x${address.toString(16)}`;
  }

  async isTrue(...view) {
    const [flag] = await this.of(...view);
    return flag === 1n;
  }

  balance(address) {
    return this.number('token', 'balance_of', address);
  }

  async nonce(address) {
    return BigInt(await this.provider.getNonceForAddress(address));
  }

  /** The nonces of the relay's signers. */
  signers() {
    const { owner, verifier, faucet } = this.pins;
    return Promise.all([owner, verifier, faucet].map((address) => this.nonce(address)));
  }

  async attestation(account) {
    const [id, address, type, level, , expiresAt, revoked] = await this.of(
      'registry',
      'attestation_of',
      account,
    );
    const assurance = shortString.decodeShortString(`0x${type.toString(16)}`);
    return { id, address, assurance, level, expiresAt, revoked: revoked === 1n };
  }

  receipt(transactionHash) {
    return this.provider.waitForTransaction(transactionHash, SOON);
  }

  /** Fails unless the transaction is in a block and succeeded. */
  async succeeded(transactionHash) {
    const receipt = await this.receipt(transactionHash);
    assert.equal(receipt.execution_status, 'SUCCEEDED', receipt.revert_reason);
    assert.equal(receipt.finality_status, 'ACCEPTED_ON_L2');
    return receipt;
  }

  /** How often a transaction is in the blocks. */
  async timesOnChain(transactionHash) {
    const newest = await this.provider.getBlockNumber();
    let times = 0;
    for (let number = 0; number <= newest; number += 1) {
      const { transactions } = await this.provider.getBlockWithTxHashes(number);
      times += transactions.filter((one) => BigInt(one) === BigInt(transactionHash)).length;
    }
    return times;
  }
}

/** A key pair, and the account address that follows from it. */
export class User {
  constructor(portcullis) {
    this.portcullis = portcullis;
    this.view = new View(portcullis);
    this.identity = fresh();
    const signer = stark.randomAddress();
    const { account_class: classHash } = portcullis.pins;
    this.publicKey = ec.starkCurve.getStarkKey(signer);
    const constructorCalldata = [this.publicKey];
    const salt = this.publicKey;
    this.address = hash.calculateContractAddressFromHash(salt, classHash, constructorCalldata, 0);
    this.payload = { classHash, constructorCalldata, addressSalt: salt };
    this.account = this.signedBy(signer, this.view.provider);
    this.signer = signer;
  }

  signedBy(signer, provider) {
    return new Account({ provider, address: this.address, signer, cairoVersion: '1' });
  }

  /** Pays for its own deployment from the faucet's drip. */
  async deployed() {
    await this.operate('/faucet-drip', this.asRecipient());
    await this.view.succeeded((await this.deploy()).transaction_hash);
    return this;
  }

  async registered() {
    await this.deployed();
    await this.operate('/register', this.asRegistered());
    return this;
  }

  /** Bound to its identity, and attested. */
  async verified() {
    await this.registered();
    await this.operate('/verification-attest', this.attestation());
    return this;
  }

  deploy() {
    return this.account.deployAccount(this.payload, DETAILS);
  }

  /** Signs calls and submits them. */
  execute(calls, details = {}) {
    return this.account.execute(calls, { ...DETAILS, ...details });
  }

  /** The same, and waits for their success on the chain. */
  async does(...calls) {
    const { transaction_hash: transactionHash } = await this.execute(calls);
    return this.view.succeeded(transactionHash);
  }

  /** The JSON-RPC request of signed calls, without sending it. */
  signed(calls, details = {}) {
    return this.captured((account) => account.execute(calls, { ...DETAILS, ...details }));
  }

  /** The same for the account's deployment. */
  signedDeployment(details = {}) {
    return this.captured((account) =>
      account.deployAccount(this.payload, { ...DETAILS, ...details }),
    );
  }

  /** What `act` would have submitted. */
  async captured(act) {
    let request;
    const baseFetch = async (_, options) => {
      const { method } = JSON.parse(options.body);
      if (!method.startsWith('starknet_add')) return fetch(this.portcullis.gateway, options);
      request = options.body;
      const result = { transaction_hash: '0x0', contract_address: '0x0' };
      return Response.json({ jsonrpc: '2.0', id: 0, result });
    };
    const provider = new RpcProvider({ nodeUrl: this.portcullis.gateway, baseFetch });
    await act(this.signedBy(this.signer, provider));
    return request;
  }

  /** An operation that must succeed. */
  async operate(path, body) {
    const { status, json, text } = await this.portcullis.post(path, body);
    assert.equal(status, 200, `${path}: ${text}`);
    assert.equal(json.ok, true);
    return json;
  }

  asRecipient() {
    const { identity, address: recipient, publicKey: public_key } = this;
    return { identity, recipient, public_key };
  }

  asRegistered() {
    const { identity, address: account, publicKey: public_key } = this;
    return { identity, account, public_key };
  }

  /** A proposal to recover `identity` to this account. */
  asRecovered(identity) {
    return { identity, new_account: this.address, new_public_key: this.publicKey };
  }

  attestation(other = {}) {
    const attested = { assurance_type: 'age_over_18', assurance_level: 1, expires_at: FAR };
    return { account: this.address, attestation_id: fresh(), ...attested, ...other };
  }
}

/** The calls that users make, on the contracts of `pins`. */
export function calls(pins) {
  const call = (contract, entrypoint, ...calldata) => ({
    contractAddress: pins[contract],
    entrypoint,
    calldata: CallData.compile(calldata),
  });
  const u256 = cairo.uint256;
  return {
    call,
    approve: (spender, amount) => call('token', 'approve', pins[spender], u256(amount)),
    registerValidator: (commission, stake) =>
      call('staking', 'register_validator', commission, u256(stake)),
    increaseSelfStake: (amount) => call('staking', 'increase_self_stake', u256(amount)),
    delegate: (to, amount) => call('staking', 'delegate', to, u256(amount)),
    undelegate: (from, amount) => call('staking', 'request_undelegate', from, u256(amount)),
    withdraw: () => call('staking', 'withdraw'),
    exitValidator: () => call('staking', 'exit_validator'),
    bridgeOutToken: (to, amount) => call('bridge', 'bridge_out_token', to, u256(amount)),
    bridgeOutCard: (to, card) => call('bridge', 'bridge_out_card', to, u256(card)),
    transfer: (to, card) => call('card', 'transfer', to, u256(card)),
    burn: (card) => call('card', 'burn', u256(card)),
  };
}
