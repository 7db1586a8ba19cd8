// Where a request is disturbed: at its system calls, or at its messages. A source counts what a
// clean request makes, lists the faults of that, and plays one of them.
import { setTimeout as pause } from 'node:timers/promises';
import { CALLS, STALL_MS, acts } from './calls.mjs';
import { Trace } from './strace.mjs';

/** What is written after the response: the line of the log. */
const AFTERWARDS_MS = 100;

const upTo = (count) => Array.from({ length: count }, (_, at) => at + 1);

/** The system calls of a process on one kind of file. */
export class SystemCalls {
  constructor(name, service, { paths = () => undefined, before = async () => {} } = {}) {
    Object.assign(this, { name, service, paths, before });
  }

  async traced(calls, inject, act) {
    await this.before();
    const { pid } = this.service;
    const trace = await Trace.attach(pid, calls, { paths: this.paths(), inject });
    const answer = await act(trace);
    await trace.detach();
    return { trace, answer };
  }

  /** How often a clean request makes each call. */
  async count(request) {
    const calls = Object.keys(CALLS[this.name]);
    const whole = () => this.#whole(request);
    const { trace, answer } = await this.traced(calls, undefined, whole);
    const counts = trace.counts();
    trace.remove();
    return { counts, answer };
  }

  /** Waits for the end of a process that was killed; strace may not have seen it. */
  #isKilled(isHit) {
    const ended = this.service.gone.then(() => true);
    return isHit ? ended : Promise.race([ended, pause(AFTERWARDS_MS, false)]);
  }

  async #whole(request) {
    const answer = await request();
    if (this.name === 'log') await pause(AFTERWARDS_MS);
    return answer;
  }

  /** Whether a request makes this call for certain: the log may have another line, or not. */
  isCertain({ k }) {
    return this.name !== 'log' || k === 1;
  }

  /** Every fault of every call, up to these counts. */
  cases(counts) {
    return Object.entries(counts).flatMap(([call, count]) =>
      acts(this.name, call).flatMap((act) =>
        upTo(count).map((k) => ({ ...act, source: this, place: call, k })),
      ),
    );
  }

  /** Plays a fault during a request; whether it happened, and the answer. */
  async inject({ place, k, inject, fault }, request) {
    const how = `${place}:${inject}:when=${k}`;
    const { trace, answer } = await this.traced([place], how, async (trace) => {
      const answer = await this.#whole(request);
      if (fault === 'stall') await trace.delayed(STALL_MS + 1_000);
      // strace sees the end of the process a moment later than the client
      if (fault === 'kill' && answer.lost) await Promise.race([trace.gone, pause(AFTERWARDS_MS)]);
      return answer;
    });
    const made = { isHit: trace.isHit(), isImpossible: trace.isImpossible(), answer };
    trace.remove();
    if (fault === 'kill') made.isHit = await this.#isKilled(made.isHit);
    return made;
  }
}

const FAULTS = {
  cut: 'cut',
  drop: 'swallowed',
  hang: 'swallowed',
  stall: 'stall',
  refuse: 'error',
};

/** The messages on a way that counts them. */
export class Messages {
  constructor(name, way) {
    Object.assign(this, { name, way });
  }

  async count(request) {
    this.way.arm();
    const answer = await request();
    await this.way.disarm();
    return { counts: { message: this.way.types?.length ?? this.way.calls }, answer };
  }

  isCertain() {
    return true;
  }

  cases({ message }) {
    const at = { source: this, place: 'message' };
    return upTo(message).flatMap((k) =>
      this.way.acts(k).map((name) => ({ ...at, name, k, fault: FAULTS[name] })),
    );
  }

  async inject({ name, k }, request) {
    this.way.arm({ act: name, k });
    const answer = await request();
    return { isHit: await this.way.disarm(), answer };
  }
}

/** The system calls of a command from its start to its end. */
export class CommandCalls extends SystemCalls {
  constructor(name, kind, how) {
    super(name, undefined, how);
    this.kind = kind;
  }

  async traced(calls, inject, request) {
    await this.before();
    this.kind.under = { calls, inject, paths: this.paths() };
    const answer = await request();
    this.kind.under = undefined;
    return { trace: answer.trace, answer };
  }

  async inject({ place, k, inject }, request) {
    const { trace, answer } = await this.traced([place], `${place}:${inject}:when=${k}`, request);
    // a command that was killed ends its trace, too
    const isHit = trace.isHit() || answer.lost;
    const made = { isHit, isImpossible: trace.isImpossible(), answer };
    trace.remove();
    return made;
  }
}
