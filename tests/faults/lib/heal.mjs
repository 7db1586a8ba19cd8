// After a fault the next request succeeds within ten seconds, without a restart; until then the
// probe says that something is wrong.
import { setTimeout as pause } from 'node:timers/promises';

const WITHIN_MS = 10_000;
/** The store is checked every five seconds, everything else every second. */
const SILENT_MS = 6_000;
const AGAIN_MS = 100;

/** Sends requests until one succeeds; how long that took. `next` returns nothing when it succeeds,
 * and the failed answer otherwise. */
export async function heal(service, next) {
  const began = Date.now();
  for (;;) {
    const failed = await next();
    const took = Date.now() - began;
    if (!failed && took <= WITHIN_MS + AGAIN_MS) return took;
    const verdict = await service.verdict();
    const what = `after ${took} ms: ${JSON.stringify(failed)}; the probe says ${verdict}`;
    if (took > WITHIN_MS) throw new Error(`not healed ${what}`);
    if (took > SILENT_MS && /verdict: ok/.test(verdict)) throw new Error(`silent ${what}`);
    await pause(AGAIN_MS);
  }
}

/** Waits until the probe says that all is well again. */
export async function wellAgain(service) {
  const end = Date.now() + 2 * WITHIN_MS;
  for (;;) {
    const verdict = await service.verdict();
    if (/verdict: ok/.test(verdict)) return;
    if (Date.now() > end) throw new Error(`requests succeed, and the probe says ${verdict}`);
    await pause(AGAIN_MS);
  }
}
