// Disturbs requests of one kind in every way, and judges each: nothing acknowledged is lost or
// doubled, every answer was true, and the next request succeeds.
import assert from 'node:assert/strict';
import { heal } from './heal.mjs';
import { sample } from './sample.mjs';

/** Requests before the first that is counted: connections are open and statements prepared then. */
const WARM_UP = 8;
/** Clean requests that are counted; a fault within the smallest count must happen. */
const COUNTED = 5;
/** Requests in which a fault may happen: the calls of one differ a little from another's. */
const ATTEMPTS = 8;
/** So many failures of a kind are enough to read. */
const ENOUGH = 5;

/** The smallest count of each call over clean requests, and the largest. */
async function counted(kind, source, service) {
  const all = [];
  for (let at = 0; at < WARM_UP; at += 1) await heal(service, () => kind.next());
  for (let failures = 0; all.length < COUNTED; ) {
    const request = await kind.fresh();
    const { counts, answer } = await source.count(() => kind.send(request));
    const failed = kind.failed(answer);
    failures += failed ? 1 : 0;
    assert.ok(failures < COUNTED, `a request without a fault succeeds: ${failed}`);
    await kind.settle(request, answer);
    if (!failed) all.push(counts);
  }
  const places = [...new Set(all.flatMap(Object.keys))];
  const of = (choose) =>
    Object.fromEntries(places.map((at) => [at, choose(...all.map((counts) => counts[at] ?? 0))]));
  return { least: of(Math.min), most: of(Math.max) };
}

export class Sweep {
  constructor({ service, store, tally, isWhole }) {
    Object.assign(this, { service, store, tally, isWhole });
  }

  /** All faults of one kind of request at one source. */
  async run(kind, source) {
    let count = await this.#counted(kind, source);
    const cases = source.cases(this.isWhole ? count.most : count.least);
    const failures = this.tally.failures.length;
    for (const one of this.isWhole ? cases : sample(cases)) {
      const step = `${one.name} at ${source.name} ${one.place} ${one.k}`;
      const must = ({ least }) => one.k <= least[one.place] && source.isCertain(one);
      try {
        const played = await this.#play(kind, one, must(count) ? ATTEMPTS : 1);
        const isHit = played === 'hit';
        // on a busy machine requests make other calls than those that were counted before
        if (played === 'missed' && must(count)) count = await this.#counted(kind, source);
        const isMissed = played === 'missed' && must(count);
        if (isHit || isMissed) this.tally.add(kind.name, this.store, one.fault, isHit);
        assert.ok(!isMissed, 'the fault never happened');
      } catch (error) {
        this.tally.fail(`${kind.name} on ${this.store}: ${step}`, error);
        await this.service.restart();
        if (this.tally.failures.length - failures >= ENOUGH) return;
      }
    }
  }

  #counted(kind, source) {
    return counted(kind, source, this.service);
  }

  /** Plays a case until the fault happens; returns how that ended. */
  async #play(kind, one, attempts) {
    for (let attempt = 1; attempt <= attempts; attempt += 1) {
      const request = await kind.fresh();
      const send = () => kind.send(request);
      const { isHit, isImpossible, answer } = await one.source.inject(one, send);
      if (isImpossible) {
        await this.service.restart();
        return 'impossible';
      }
      if (!isHit && answer.lost) throw new Error(`no answer without a fault: ${answer.why}`);
      if (isHit && one.fault === 'kill') await this.service.start();
      kind.isTrue(answer);
      this.tally.healed(await heal(this.service, () => kind.next()));
      await kind.settle(request, answer);
      if (isHit) return 'hit';
    }
    return 'missed';
  }
}
