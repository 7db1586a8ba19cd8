// Draws faults from the seed, and injects one after the other, with a calm time before each.
import { setTimeout as pause } from 'node:timers/promises';
import { ACTIONS } from './actions.mjs';
import { FAULTS, ROUND } from './table.mjs';

const SWAP = 'node killed, another chain';
/** No fault lasts into the last seconds of a run, so that failures of the last one end in it. */
export const QUIET_END_S = 60;

/** Bounds of the seconds before a fault: short runs are busy, in long ones processes grow old. */
export function gap(seconds) {
  const factor = Math.min(10, Math.max(1, seconds / 2_400));
  return [15 * factor, 35 * factor];
}

/** The faults of a seed, without end: each round has all of them. */
export function* drawn(chance) {
  for (;;) {
    for (const name of chance.shuffled(ROUND)) {
      const [least, most] = FAULTS[name].seconds;
      yield { name, seconds: least + chance.next() * (most - least) };
    }
  }
}

export class Faults {
  constructor({ system, windows, chance, seconds, log }) {
    Object.assign(this, { system, windows, chance, log, gap: gap(seconds) });
    this.draws = drawn(chance);
  }

  /** Injects faults until the time `end`. */
  async run(end) {
    for (;;) {
      const { name, seconds } = await this.#next();
      const [least, most] = this.gap;
      const calm = (least + this.chance.next() * (most - least)) * 1000;
      if (Date.now() + calm + seconds * 1000 > end - QUIET_END_S * 1000) return;
      await pause(calm);
      await this.#inject(name, seconds);
    }
  }

  /** A node whose chain became long is replaced first. */
  async #next() {
    const next = this.draws.next().value;
    return (await this.system.era.isLong()) ? { name: SWAP, seconds: 5 } : next;
  }

  async #inject(name, seconds) {
    const { before, act, after, targets } = ACTIONS[name];
    const server = targets && this.chance.one(targets(this.system));
    await before?.(this.system);
    const end = this.windows.begin(name, Date.now(), server?.name);
    const title = `${name}${server ? ` at ${server.name}` : ''}`;
    this.log(`${title}, ${seconds.toFixed(0)} s`);
    try {
      await act(this.system, seconds, this.chance, server);
    } catch (error) {
      this.log(`${title} has not healed: ${error.message}`);
      this.system.findings.push(`${title}: ${error.message}`);
    }
    end(Date.now());
    await after?.(this.system);
  }
}
