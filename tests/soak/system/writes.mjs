// Users and backends that write through the relay: each operation is sent until it has an answer,
// to any of the servers that share the journal.
import { setTimeout as pause } from 'node:timers/promises';
import { approval, drip, mint, underKey, usership } from '../../crash/lib/operations.mjs';
import { User } from '../../crash/lib/stark.mjs';
import { naturalisation } from '../../crash/lib/world.mjs';
import { LOST } from './table.mjs';

/** How long an operation is repeated; only a failing run waits this long. */
const PATIENCE_MS = 150_000;
const AGAIN_MS = 500;
/** Each of these may happen: the same writer comes back later. */
const TRANSIENT = ['in_progress', LOST];
const COOLDOWN = 'faucet_cooldown';

const KINDS = [
  [3, (user) => mint(user)],
  [3, () => underKey(drip())],
  [2, (user) => underKey(usership(user))],
  [3, (user, world) => approval(user, world)],
];

/** An operation with what its client knows of it. */
class Sent {
  constructor(operation) {
    this.operation = operation;
    this.attempts = 0;
    /** The hash in a response of success. */
    this.acknowledged = null;
    /** Whether an attempt may have had an effect that no response reported. */
    this.isUnknown = false;
  }
}

export class Writer {
  /** `gap` bounds the milliseconds between two writes. */
  constructor({ world, servers, outcomes, chance, gap }) {
    Object.assign(this, { world, servers, outcomes, chance, gap });
  }

  /** Writes until the era closes. After each rollback, as another user: the blocks that made the
   * one before may be gone. */
  async run(era) {
    while (!era.isClosing) {
      const { generation } = era;
      const user = new User();
      let isWell = await this.#settle(user, era);
      while (isWell && !era.isClosing && era.generation === generation) {
        await pause(this.chance.between(...this.gap));
        isWell = await this.#send(this.chance.weighted(KINDS)(user, this.world), era);
      }
      await pause(AGAIN_MS);
    }
  }

  /** Whether a user has all that it needs to write. */
  async #settle(user, era) {
    era.users.add(user.address);
    for (const operation of naturalisation(user)) {
      if (!(await this.#send(operation, era))) return false;
    }
    return true;
  }

  /** Whether an operation was acknowledged. */
  async #send(operation, era) {
    const sent = new Sent(operation);
    era.sent.push(sent);
    const end = Date.now() + PATIENCE_MS;
    while (Date.now() < end) {
      const { isFinal } = await this.#attempt(sent);
      if (isFinal) return sent.acknowledged !== null;
      await pause(AGAIN_MS);
    }
    era.faults.push(`no answer to ${operation.path} in ${PATIENCE_MS / 1000} s`);
    return false;
  }

  async #attempt(sent) {
    const { operation } = sent;
    const server = this.chance.one(this.servers);
    const began = Date.now();
    const answer = await this.world.post(operation, { made: server.relay });
    const { status, hash } = answer;
    const isRefused = status >= 400 || answer.reason;
    const reason = answer.lost ? LOST : isRefused && (answer.reason ?? `status_${status}`);
    const isExpected = reason === COOLDOWN && sent.isUnknown;
    const facts = { began, ended: Date.now(), status, reason: reason || undefined, isExpected };
    this.outcomes.record({ surface: 'relay', instance: server.name, ...facts });
    sent.attempts += 1;
    if (!reason && status === 200) {
      sent.acknowledged = hash;
      return { isFinal: true };
    }
    const isTransient = !reason || status >= 500 || TRANSIENT.includes(reason);
    if (isTransient || hash) sent.isUnknown = true;
    return { isFinal: !isTransient };
  }
}
