// What the verifier's events must result in, derived from the contract and not from the program.
//
// Events of one subject may be applied in any order that no client could observe to be wrong. The
// test need not know that order: applied events have increasing `occurred` instants, which order
// them, and each of the others must fit somewhere between two of them.
import assert from 'node:assert/strict';
import { randomInt, randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';

/** Which status may follow which, when it occurred later. */
const FOLLOWS = {
  pending: ['pending', 'verified', 'rejected', 'expired', 'revoked'],
  verified: ['verified', 'rejected', 'expired', 'revoked'],
  rejected: ['pending', 'verified', 'rejected', 'revoked'],
  expired: ['pending', 'verified', 'rejected', 'expired', 'revoked'],
  revoked: ['revoked'],
};
/** At the same instant, the later one in this list wins. */
const RANKS = ['pending', 'verified', 'rejected', 'expired', 'revoked'];
const BANDS = ['under_13', '13_15', '16_17', '18_plus'];
/** How often each status is reported: mostly those that allow a successor. */
const REPORTED = [
  ...Array(9).fill('verified'),
  ...Array(5).fill('pending'),
  ...Array(5).fill('rejected'),
  ...Array(4).fill('expired'),
  'revoked',
];
/** Events in a row about one user: this many are in flight at once. */
const RUN = 8;
const SECOND_MS = 1_000;
/** A verification in a test does not expire while it runs. */
const FAR_MS = 1_000_000 * SECOND_MS;
// The default of sidecar.age.validity.
const VALIDITY_MS = 365 * 86_400 * SECOND_MS;

/** The tables that must hold them, for `agrees`. */
export const TABLES = {
  ledger: `SELECT event_id, subject_ref, status, age_band, verified_us, expires_us, occurred_us,
    outcome, status_after FROM age_event`,
  sessions: 'SELECT subject_ref, user_id, status, last_occurred_us FROM age_session',
  users: `SELECT user_id, status, last_occurred_us, age_band, verified_us, expires_us
    FROM age_user`,
};

/** What a response acknowledges. */
export function acknowledgement({ status, json }) {
  const refusals = { StaleTransition: 'stale', InvalidTransition: 'invalid' };
  const answer = JSON.stringify([status, json]);
  if (status === 409) {
    assert.ok(refusals[json.error], answer);
    return { outcome: refusals[json.error] };
  }
  assert.equal(status, 200, answer);
  assert.match(json.status, /^(applied|duplicate)$/, answer);
  const again = json.status === 'duplicate';
  return { outcome: again ? json.outcome : 'applied', state: json.state, again };
}

/** What a response acknowledges, or undefined when the event must be reported again: `denials`
 * counts those that the store denied. */
export function acknowledged(answer, denials) {
  if (answer.status !== 503 || !denials) return acknowledgement(answer);
  const { headers, json } = answer;
  assert.equal(json.error, 'StoreUnavailable', JSON.stringify(json));
  assert.match(headers['retry-after'], /^[1-9]\d*$/, JSON.stringify(json));
  denials.count += 1;
  return undefined;
}

const pick = (list) => list[randomInt(list.length)];
const instant = (ms) => ms && new Date(ms).toISOString();
const micros = (ms) => ms && ms * 1_000;

/** An event at an instant, as it must be stored, and as it is sent. */
function event(subject, occurred) {
  const status = pick(REPORTED);
  const isVerified = status === 'verified';
  const hasEnd = (isVerified || status === 'expired') && randomInt(2);
  const verified = isVerified ? occurred - SECOND_MS : null;
  const expires = hasEnd ? occurred + FAR_MS : null;
  const age_band = isVerified ? pick(BANDS) : null;
  const event = { event_id: randomUUID(), subject_ref: subject, status, age_band };
  const body = JSON.stringify({
    ...event,
    verified_at: instant(verified),
    expires_at: instant(expires),
    occurred_at: instant(occurred),
  });
  return { ...event, verified, expires, occurred, body, answers: [] };
}

/** Events about subjects, which are lists per user. Time advances from run to run; within one,
 * instants are early, late, and equal. */
export function events(count, users) {
  const start = Date.now() - 2 * count * SECOND_MS;
  let user;
  return Array.from({ length: count }, (_, at) => {
    if (at % RUN === 0) user = pick(users);
    const late = (at - (at % RUN) + randomInt(2 * RUN)) * SECOND_MS;
    return event(pick(user), start - (start % SECOND_MS) + late);
  });
}

const later = (one, other) =>
  one.occurred - other.occurred || RANKS.indexOf(one.status) - RANKS.indexOf(other.status);

/** What the contract says of an event after those applied before. */
function judge(last, next) {
  if (last && later(next, last) <= 0) return 'stale';
  if (last?.occurred === next.occurred) return 'applied';
  return FOLLOWS[last?.status ?? 'pending'].includes(next.status) ? 'applied' : 'invalid';
}

/** Whether some client saw the end of one before the other began. */
const precedes = (one, other) => one.acknowledged < other.sent;

/** Each event's outcome is explained by its place in some order. Returns the applied events, in
 * order. */
function explained(taken) {
  const chain = taken.filter(({ outcome }) => outcome === 'applied').sort(later);
  chain.forEach((one, at) => {
    const what = `applied: ${JSON.stringify(one)}`;
    assert.equal(judge(chain[at - 1], one), 'applied', what);
    assert.equal(one.state, one.status, what);
    const early = chain.slice(at + 1).find((other) => precedes(other, one));
    assert.equal(early, undefined, `nothing later was seen before ${what}`);
  });
  for (const one of taken.filter(({ outcome }) => outcome !== 'applied')) {
    const first = chain.findLastIndex((other) => precedes(other, one)) + 1;
    const end = chain.findIndex((other) => precedes(one, other));
    const last = end < 0 ? chain.length : end;
    const fits = (count) => {
      const before = chain[count - 1];
      const state = before?.status ?? 'pending';
      return judge(before, one) === one.outcome && state === one.state;
    };
    const places = Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => first + at);
    assert.ok(places.some(fits), `${JSON.stringify(one)} fits in ${JSON.stringify(chain)}`);
  }
  return chain;
}

const UNTOUCHED = { status: 'pending', last_occurred_us: null };
const standing = ({ status, occurred }) => ({ status, last_occurred_us: micros(occurred) });
const proof = ({ age_band, verified, expires }) => ({
  age_band,
  verified_us: micros(verified),
  expires_us: micros(expires),
});

/** An event in the ledger was sent, and has the content that was sent. */
function fromLedger({ event_id, outcome, status_after, ...row }, sent) {
  const known = sent.get(event_id);
  assert.ok(known?.sent !== undefined, `${event_id} in the ledger was sent`);
  const { subject_ref, status, occurred } = known;
  const said = { subject_ref, status, ...proof(known), occurred_us: micros(occurred) };
  assert.deepEqual(row, said, `${event_id} is stored as it was sent`);
  return { ...known, outcome, state: status_after };
}

const grouped = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(item[key])) groups.set(item[key], []);
    groups.get(item[key]).push(item);
  }
  return groups;
};

/** Every acknowledged event is in the ledger as it was acknowledged, once. */
function everyAcknowledgedIsStored(taken, sent) {
  const ids = new Map(taken.map((one) => [one.event_id, one]));
  assert.equal(ids.size, taken.length, 'no event is in the ledger twice');
  for (const { event_id, answers } of sent.values()) {
    const news = answers.filter(({ again }) => !again);
    assert.ok(news.length <= 1, `${event_id} was new once: ${JSON.stringify(answers)}`);
    for (const answer of answers) {
      const { outcome, state } = ids.get(event_id) ?? {};
      const what = `${event_id} is in the ledger as it was acknowledged`;
      assert.equal(outcome, answer.outcome, what);
      // A refusal does not report the state.
      if (answer.state) assert.equal(state, answer.state, what);
    }
  }
}

/** A user has the verification of a subject that ends last, or else the status of the newest event
 * of all their subjects. `applied` has the last event of each. */
function counts({ user_id, ...found }, applied) {
  const end = ({ status, verified, expires }) =>
    status === 'verified' ? (expires ?? verified + VALIDITY_MS) : 0;
  const proofs = applied.filter((one) => end(one) > Date.now());
  const longest = (one, other) => end(one) - end(other) || later(one, other);
  const last = proofs.sort(longest).at(-1) ?? applied.sort(later).at(-1);
  // Of several equal events at the same instant, any may be the one applied.
  const equal = applied.filter((one) => later(one, last) === 0);
  const expected = equal.map((one) => ({ ...standing(one), ...proof(one) }));
  const what = `${user_id} is ${JSON.stringify(found)}, of ${JSON.stringify(expected)}`;
  assert.ok(expected.some((one) => isDeepStrictEqual(one, found)), what);
}

/** The three tables agree, and hold every acknowledged event. `sent` are events by id, `subjects`
 * maps each subject to its user. Returns how many events are in the ledger. */
export function agrees({ ledger, sessions, users }, sent, subjects) {
  const taken = ledger.map((row) => fromLedger(row, sent));
  everyAcknowledgedIsStored(taken, sent);
  const bySubject = new Map([...subjects.keys()].map((subject) => [subject, []]));
  for (const one of taken) bySubject.get(one.subject_ref).push(one);
  assert.equal(sessions.length, subjects.size, 'every session is there, and no other');
  const byUser = new Map();
  for (const { subject_ref, user_id, ...found } of sessions) {
    assert.equal(subjects.get(subject_ref), user_id, `whose ${subject_ref} is`);
    const chain = explained(bySubject.get(subject_ref));
    const expected = chain.length ? standing(chain.at(-1)) : UNTOUCHED;
    assert.deepEqual(found, expected, `the status of ${subject_ref}`);
    if (chain.length) byUser.set(user_id, [...(byUser.get(user_id) ?? []), chain.at(-1)]);
  }
  assert.equal(users.length, byUser.size, 'every user with an applied event has a status');
  for (const user of users) counts(user, byUser.get(user.user_id));
  return taken.length;
}
