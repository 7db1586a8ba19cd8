// A readers-writer lock: many that need a stable world, or one that changes it.

export class Lock {
  constructor() {
    this.still = 0;
    this.changing = false;
    /** Waiting changes: no new reader gets the lock before them. */
    this.waiting = [];
  }

  /** Whether a reader can get the lock now. */
  get isStill() {
    return !this.changing && !this.waiting.length;
  }

  /** Runs `work` while nothing changes; only when `isStill`. */
  async whileStill(work) {
    this.still += 1;
    try {
      return await work();
    } finally {
      this.still -= 1;
      this.#wake();
    }
  }

  /** Runs `work` when no reader holds the lock. */
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
