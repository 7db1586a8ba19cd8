// Reproducible randomness: the same seed gives the same numbers.

/** Numbers from 0 to 1 (mulberry32), and choices made from them. */
export class Chance {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** True with this probability. */
  happens(share) {
    return this.next() < share;
  }

  /** An integer, both ends included. */
  between(low, high) {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  one(list) {
    return list[Math.floor(this.next() * list.length)];
  }

  /** The same in another order. */
  shuffled(list) {
    const keyed = list.map((value) => [this.next(), value]);
    return keyed.sort(([one], [other]) => one - other).map(([, value]) => value);
  }

  /** One of `[weight, value]`. */
  weighted(table) {
    let left = this.next() * table.reduce((sum, [weight]) => sum + weight, 0);
    const [, value] = table.find(([weight]) => (left -= weight) < 0) ?? table.at(-1);
    return value;
  }
}
