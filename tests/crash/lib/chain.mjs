// The chain as the node reports it, without the relay: the ground truth.
import assert from 'node:assert/strict';
import { STRK } from '../../clients/js/devnet.mjs';
import { hex, selector } from './stark.mjs';

const UNKNOWN_TRANSACTION = 29;

export class Chain {
  constructor(url) {
    this.url = url;
  }

  async ask(method, params) {
    const answer = await fetch(this.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
    return answer.json();
  }

  async read(method, params) {
    const { result, error } = await this.ask(method, params);
    assert.ok(result !== undefined, `${method}: ${JSON.stringify(error)}`);
    return result;
  }

  height() {
    return this.read('starknet_blockNumber', []);
  }

  async nonce(address) {
    const params = { block_id: 'latest', contract_address: address };
    return Number(await this.read('starknet_getNonce', params));
  }

  /** What a view returns, as numbers. */
  async view(address, name, ...args) {
    const request = {
      contract_address: address,
      entry_point_selector: selector(name),
      calldata: args.map(hex),
    };
    const felts = await this.read('starknet_call', { request, block_id: 'latest' });
    return felts.map(BigInt);
  }

  async balance(address) {
    const [low, high] = await this.view(STRK, 'balance_of', address);
    return low + (high << 128n);
  }

  /** Whether the chain has a transaction with this hash. */
  async has(transactionHash) {
    const params = { transaction_hash: transactionHash };
    const { error } = await this.ask('starknet_getTransactionStatus', params);
    assert.ok(!error || error.code === UNKNOWN_TRANSACTION, JSON.stringify(error));
    return !error;
  }
}

/** Everything that happened from one block on, read incrementally. */
export class History {
  constructor(chain, from) {
    this.chain = chain;
    this.next = from;
    /** Sender to its transactions: hash, nonce, whether it succeeded. */
    this.sent = new Map();
    /** `contract selector key …` to the number of such events. */
    this.events = new Map();
  }

  async read() {
    const height = await this.chain.height();
    for (; this.next <= height; this.next += 1) {
      const params = { block_id: { block_number: this.next } };
      const block = await this.chain.read('starknet_getBlockWithReceipts', params);
      block.transactions.forEach((one) => this.#add(one));
    }
  }

  #add({ transaction, receipt }) {
    const sender = hex(transaction.sender_address ?? receipt.contract_address ?? 0);
    const entry = {
      hash: hex(receipt.transaction_hash),
      nonce: Number(transaction.nonce ?? 0),
      succeeded: receipt.execution_status === 'SUCCEEDED',
    };
    this.sent.set(sender, [...(this.sent.get(sender) ?? []), entry]);
    for (const { from_address: from, keys } of receipt.events) {
      const name = [from, ...keys].map(hex).join(' ');
      this.events.set(name, (this.events.get(name) ?? 0) + 1);
    }
  }

  sentBy(address) {
    return this.sent.get(hex(address)) ?? [];
  }

  /** How often a contract emitted this event. */
  count(contract, name, ...keys) {
    return this.events.get([contract, selector(name), ...keys].map(hex).join(' ')) ?? 0;
  }
}
