// Stalls of the machine, seen without Portcullis: this program, whose proxy leads to the node,
// got no time, or the node took long for a block that this program read directly.
import { STALL } from './table.mjs';

const EVERY_MS = 250;
/** A timer that is later than this, or a block that takes longer, is a stall. */
const LONGEST_MS = 1_000;

export class Stalls {
  constructor(windows) {
    Object.assign(this, { windows, last: Date.now(), reading: null });
  }

  /** Watches the timer, and `read`, which reads a block. */
  start(read) {
    this.last = Date.now();
    this.read = read;
    this.timer = setInterval(() => this.poll(Date.now()), EVERY_MS);
  }

  /** Notes a stall, if there was one up to now. */
  poll(now) {
    this.#note(this.last, now);
    this.last = now;
    if (this.reading) this.#note(this.reading.began, now);
    else if (this.read) this.#readBlock(now);
  }

  async #readBlock(began) {
    this.reading = { began };
    try {
      await this.read();
    } catch {
      // a fault took the node away, and explains what follows
    }
    this.#note(began, Date.now());
    this.reading = null;
  }

  /** A stall that goes on is one window. In a fault, the fault explains what happens. */
  #note(began, now) {
    if (now - began <= LONGEST_MS) return;
    const isStall = ({ name }) => name === STALL;
    const others = this.windows.all.filter((one) => !isStall(one));
    if (others.some((fault) => fault.began <= now && fault.ended >= began)) return;
    const last = this.windows.all.findLast(isStall);
    if (last && last.ended >= began) last.ended = Math.max(last.ended, now);
    else this.windows.begin(STALL, began)(now);
  }

  stop() {
    clearInterval(this.timer);
  }
}
