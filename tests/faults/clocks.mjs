// The wall clock of the program is wrong for a while. Once it is right again, so is everything
// else, and nobody is locked out for longer than the documentation says.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { SESSION, ask } from '../crash/lib/sidecar.mjs';
import { drip } from '../crash/lib/operations.mjs';
import { clockAhead, place } from '../crash/lib/processes.mjs';
import { heal, wellAgain } from './lib/heal.mjs';
import { KINDS, RelayService, USERS } from './relay.mjs';
import { Session, SidecarService, Verifier, Webhook } from './sidecar.mjs';

const HOUR = 3_600;
const seconds = (date) => Math.round((Date.parse(date) - Date.now()) / 1_000);
/** Wrong clocks, in seconds ahead. */
const STEPS = {
  'an hour ahead': () => HOUR,
  'an hour behind': () => -HOUR,
  'in 2039': () => seconds('2039-06-01T00:00:00Z'),
  'in 2001': () => seconds('2001-06-01T00:00:00Z'),
};
/** In seconds: five sessions in a minute, drips in a day. */
const MINUTE = 60;
const DAY = 24 * HOUR;
const SESSIONS = 5;
const DRIPS = 4;

class Clock {
  static async made() {
    const clock = new Clock();
    clock.env = await clockAhead(0);
    return clock;
  }

  set(seconds) {
    writeFileSync(this.env.CLOCK_OFFSET, new BigInt64Array([BigInt(seconds)]), { flag: 'r+' });
  }
}

/** Steps the clock under each kind of request, and back. `locked` requests while it is wrong what
 * the same client requests again when it is right. */
async function stepped({ service, kinds, label, clock, locked }, tally) {
  for (const [name, ahead] of Object.entries(STEPS)) {
    const asked = [];
    try {
      clock.set(ahead());
      const again = await locked();
      for (const kind of kinds) {
        const request = await kind.fresh();
        asked.push([kind, request, await kind.send(request)]);
      }
      clock.set(0);
      for (const kind of kinds) tally.healed(await heal(service, () => kind.next()));
      await again();
      for (const [kind, request, answer] of asked) await kind.settle(request, answer);
      await wellAgain(service);
      for (const kind of kinds) tally.add(kind.name, label, 'clock', true);
    } catch (error) {
      tally.fail(`${label}, clock ${name}`, error);
      clock.set(0);
      await service.restart();
    }
  }
}

/** A refusal names a time within the documented window. */
function isBounded({ status, headers, text }, success, window) {
  if (status === success) return;
  assert.equal(status, 429, text);
  const wait = Number(headers['retry-after']);
  assert.ok(wait >= 1 && wait <= window, `Retry-After: ${wait}, of a window of ${window} s`);
}

/** A user opens as many sessions as a minute permits. */
const opensSessions = ({ sidecar }) => async () => {
  const user = randomUUID();
  const open = () => {
    const headers = { authorization: `Bearer ${sidecar.token(user)}` };
    return ask(sidecar.url + SESSION, { method: 'POST', headers, agent: false });
  };
  for (let count = 0; count < SESSIONS; count += 1) await open();
  return async () => isBounded(await open(), 201, MINUTE);
};

/** A few drips; each recipient requests another one. */
const drips = (service) => async () => {
  const made = Array.from({ length: DRIPS }, () => drip());
  for (const one of made) await service.post(one);
  return async () => {
    for (const one of made) isBounded(await service.post(one), 200, DAY);
  };
};

const LABELS = { sqlite: 'SQLite', postgres: 'PostgreSQL' };
const urlOf = (database, name, { cluster }) =>
  database === 'sqlite' ? `sqlite:${place(name)}.db` : cluster.database(name);

export const sidecarClock = (database) => async (name, run) => {
  const clock = await Clock.made();
  const url = await urlOf(database, name, run);
  const service = await SidecarService.on(url, place(name), { env: clock.env });
  const verifier = new Verifier(service);
  await verifier.subject();
  const kinds = [new Session(verifier), new Webhook(verifier)];
  const locked = opensSessions(service);
  await stepped({ service, kinds, label: LABELS[database], clock, locked }, run.tally);
  await service.kill();
};

export const relayClock = (database) => async (name, run) => {
  const clock = await Clock.made();
  const url = await urlOf(database, name, run);
  const service = await RelayService.on(run.node, { url, env: clock.env });
  const kinds = Object.values(KINDS).map((make) => make(service));
  const locked = drips(service);
  await stepped({ service, kinds, label: LABELS[database], clock, locked }, run.tally);
  await service.close();
};

/** The budget of a day is used up in 2039, and counts from the moment at which the clock is right
 * again, for a day. PostgreSQL has its own clock. */
export async function budgetClock(name, { node, tally }) {
  const clock = await Clock.made();
  const env = { ...clock.env, PORTCULLIS__RELAY__FAUCET_PER_DAY: String(DRIPS + USERS) };
  const service = await RelayService.on(node, { env });
  clock.set(STEPS['in 2039']());
  let answer;
  for (let count = 0; answer?.reason !== 'budget_exceeded'; count += 1) {
    assert.ok(count <= DRIPS + USERS, 'a day has a budget');
    answer = await service.post(drip());
  }
  clock.set(0);
  try {
    answer = await service.post(drip());
    assert.equal(answer.reason, 'budget_exceeded');
    isBounded(answer, 200, DAY + MINUTE);
    tally.add('drip', 'SQLite', 'clock', true);
  } catch (error) {
    tally.fail('drip on SQLite: the budget used up in 2039', error);
  }
  await service.close();
}
