// The relay's journal as `portcullis journal export` prints it, and the invariants of every
// journal.
import assert from 'node:assert/strict';
import { journal } from './processes.mjs';

const OPEN = ['intended', 'sent', 'accepted'];
const DONE = ['succeeded', 'reverted'];
const NOTHING = ['rejected', 'lost'];
/** The states that may follow each. */
const NEXT = {
  intended: ['sent', 'accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost'],
  sent: ['accepted', 'succeeded', 'reverted', 'rejected', 'displaced', 'lost'],
  accepted: ['succeeded', 'reverted', 'displaced', 'lost'],
  succeeded: ['succeeded', 'reverted', 'displaced'],
  reverted: ['succeeded', 'reverted', 'displaced'],
  displaced: ['accepted', 'succeeded', 'reverted', 'lost'],
  lost: ['succeeded', 'reverted', 'displaced'],
  rejected: [],
};

export class Journal {
  static async read(folder, env) {
    const text = await journal(folder, env, 'export');
    const entries = text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
    return new Journal(entries);
  }

  constructor(entries) {
    this.entries = entries;
    this.intents = new Map();
    entries.forEach((entry, at) => {
      assert.equal(entry.seq, at + 1, 'the journal has no gap');
      if (entry.intent === null) return;
      if (entry.kind === 'intended') this.#begin(entry);
      else this.#move(entry);
    });
  }

  #begin({ intent, operation, detail }) {
    assert.ok(!this.intents.has(intent), `intent ${intent} begins once`);
    const { signer, nonce: text, transaction_hash: hash, epoch } = detail;
    const nonce = Number(text);
    const made = { intent, operation, signer, nonce, hash, epoch, state: 'intended' };
    this.intents.set(intent, { ...made, isRollback: false });
  }

  #move({ intent, kind, detail }) {
    const one = this.intents.get(intent);
    assert.ok(NEXT[one.state].includes(kind), `intent ${intent}: ${kind} after ${one.state}`);
    // the chain took the block back
    const isRollback = kind === 'displaced' && DONE.includes(one.state);
    Object.assign(one, { state: kind, detail: detail.detail });
    one.isRollback ||= isRollback;
  }

  all() {
    return [...this.intents.values()];
  }

  /** Intents whose outcome is not known, of the newest epoch: others are out of force. */
  open() {
    const newest = this.all().at(-1)?.epoch;
    return this.all().filter(({ state, epoch }) => OPEN.includes(state) && epoch === newest);
  }

  /** Intents that are on the chain. */
  done() {
    return this.all().filter(({ state }) => DONE.includes(state));
  }

  /** Intents without a transaction on the chain. */
  nothing() {
    return this.all().filter(({ state }) => NOTHING.includes(state));
  }

  /** Intents whose end the chain took back at least once. */
  rolledBack() {
    return this.all().filter(({ isRollback }) => isRollback);
  }

  /** How many intents are in each state. */
  counts() {
    const counts = {};
    for (const { state } of this.all()) counts[state] = (counts[state] ?? 0) + 1;
    return counts;
  }
}

/** Recomputes the hash chain: throws when it is broken. */
export const verify = (folder, env) => journal(folder, env, 'verify');
