// Whoever holds the world still, and whoever changes it: many of the first or one of the second.

export class Lock {
  constructor() {
    this.still = 0;
    this.changing = false;
    /** Changes that wait: nobody holds the world still before them. */
    this.waiting = [];
  }

  /** Whether the world can be held still now. */
  get isStill() {
    return !this.changing && !this.waiting.length;
  }

  /** Runs `work` while nothing changes; only when the world can be held still. */
  async whileStill(work) {
    this.still += 1;
    try {
      return await work();
    } finally {
      this.still -= 1;
      this.#wake();
    }
  }

  /** Runs `work` when nobody needs the world to be still. */
  async toChange(work) {
    while (this.changing || this.still) {
      await new Promise((resolve) => this.waiting.push(resolve));
    }
    this.changing = true;
    try {
      return await work();
    } finally {
      this.changing = false;
      this.#wake();
    }
  }

  #wake() {
    if (!this.changing && !this.still) this.waiting.shift()?.();
  }
}
