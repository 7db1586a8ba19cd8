// Whoever holds the world still, and whoever changes it: many of the first or one of the second.

export class Lock {
  constructor() {
    this.still = 0;
    this.changing = false;
    /** Changes that wait go first: else they would wait forever. */
    this.changes = [];
    this.stills = [];
  }

  /** Runs `work` while nothing changes. */
  async whileStill(work) {
    while (this.changing || this.changes.length) await queued(this.stills);
    this.still += 1;
    try {
      return await work();
    } finally {
      this.still -= 1;
      this.#wake();
    }
  }

  /** Runs `work` while nobody needs the world to be still. */
  async toChange(work) {
    while (this.changing || this.still) await queued(this.changes);
    this.changing = true;
    try {
      return await work();
    } finally {
      this.changing = false;
      this.#wake();
    }
  }

  #wake() {
    if (this.changing || this.still) return;
    if (this.changes.length) this.changes.shift()();
    else this.stills.splice(0).forEach((go) => go());
  }
}

const queued = (queue) => new Promise((resolve) => queue.push(resolve));
