// The sections of the page: each is a function that shows a snapshot.
import { cards } from './cards.js';
import {
  Table, bar, count, each, el, instant, percent, perSecond, pill, setClass, setText, span, utc,
} from './dom.js';
import { totalOf } from './rates.js';

/** The text of a panel before the first snapshot. */
const LOADING = 'Loading.';

const byId = (id) => document.getElementById(id);

/** Every section but the journal. */
export function panels() {
  return [
    cards(byId('surface-cards')),
    refusals(byId('refusals-panel')),
    webhooks(byId('webhooks-panel')),
    clients(byId('client-cards')),
    pins(byId('pins-panel')),
    signers(byId('signers-panel')),
    errors(byId('errors-panel')),
    configuration(byId('configuration-panel')),
  ];
}

/** The reasons for refusals and failures, most frequent first. */
function refusals(place) {
  const none = el('p', { class: 'note' }, LOADING);
  const table = new Table('Refusals and failures by reason', [
    ['Reason', 'code'], ['Surface', 'bare'], ['Kind', ''], ['Per second', 'number'],
    ['Total', 'number'], ['Share', ''],
  ], [5, 5]);
  place.append(none, table.node);
  return (snapshot, history) => {
    const rows = snapshot.surfaces.flatMap((surface) => ['refused', 'failed'].flatMap((kind) =>
      surface[kind].map(({ name, total }) => ({ surface: surface.name, kind, name, total }))));
    for (const row of rows) {
      row.rate = history.rate((one) => {
        const surface = one.surfaces.find(({ name }) => name === row.surface);
        return totalOf(surface?.[row.kind], row.name);
      });
    }
    rows.sort((a, b) => b.total - a.total || a.name.localeCompare(b.name));
    const most = Math.max(1, ...rows.map(({ total }) => total));
    setText(none, 'No refusals or failures.');
    none.hidden = rows.length > 0;
    table.node.hidden = rows.length === 0;
    table.show(rows, (row) => `${row.surface} ${row.kind} ${row.name}`, (one, row) => [
      one.name, one.surface, pill(row, one.kind, one.kind === 'failed' ? 'bad' : 'warn'),
      one.rate === null ? '–' : `${perSecond(one.rate)}/s`, count(one.total),
      bar(row, one.total / most, one.kind === 'failed' ? 'bad' : 'warn'),
    ]);
  };
}

/** The refused events of the age verifier, the most recent first. */
function webhooks(place) {
  const table = new Table('Refused webhooks of the age verifier', [
    ['Reason', 'code'], ['Total', 'number'], ['Last (UTC)', ''],
  ], [5, 5]);
  place.append(el('h3', {}, 'Refused webhooks of the age verifier'), table.node);
  return ({ sidecar }) => {
    const refused = sidecar?.refused_webhooks ?? [];
    place.hidden = refused.length === 0;
    table.show(refused, ({ reason }) => reason, ({ reason, total, last_ms: last }) => [
      reason, count(total), instant(last),
    ]);
  };
}

/** The limits per client of each surface, and its busiest clients. */
function clients(place) {
  return (snapshot) => {
    each(place, snapshot.surfaces, ({ name }) => name, ({ name }) => {
      const part = el('div', { class: 'part' }, el('h3', {}, name));
      part.rules = el('p', { class: 'note' });
      part.table = new Table(`Busiest clients of the ${name}`, [
        ['Network', 'code'], ['Clients', 'number'], ['Last minute', 'number'], ['Limit used', ''],
      ], [10, 3]);
      part.append(part.rules, part.table.node);
      return part;
    }, (part, { limits, connections }) => {
      const evicted = limits.forgotten > 0 ? `, ${count(limits.forgotten)} evicted` : '';
      const refused = connections.turned_away;
      const turned = refused > 0 ? ` ${count(refused)} connections refused.` : '';
      setText(part.rules, `${count(limits.per_minute)} requests per minute and`
        + ` ${count(limits.at_a_time)} in flight per client;`
        + ` ${count(limits.clients)} tracked${evicted}.${turned}`);
      part.table.node.hidden = limits.busiest.length === 0;
      part.table.show(limits.busiest, ({ network }) => network, (busy, row) => {
        // of a network, the client that is nearest to its limit
        const share = busy.most / busy.limit;
        const kind = share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : '';
        return [busy.network, count(busy.clients), count(busy.requests), bar(row, share, kind)];
      });
    });
  };
}

/** The pins: one line while all match, otherwise the failing ones, too. */
function pins(place) {
  const columns = [['Pin', 'name'], ['State', ''], ['Expected', 'code'], ['Found', 'code']];
  const failing = new Table('Pins that fail', columns, [8, 3]);
  const holding = new Table('Pins that hold', columns);
  const state = el('span');
  const when = el('span', { class: 'note' });
  const title = el('summary');
  place.append(el('p', { class: 'line' }, state, ' ', when), failing.node,
    el('details', {}, title, holding.node));
  const fill = (table, all) => {
    table.node.hidden = all.length === 0;
    table.show(all, ({ name }) => name, (pin, row) => [
      pin.name, pin.ok ? pill(row, 'proven', 'good') : pill(row, 'not proven', 'bad'),
      pin.expected, pin.actual === pin.expected ? 'same' : pin.actual,
    ]);
  };
  return (snapshot) => {
    if (!snapshot.relay) return;
    const { proof } = snapshot.relay;
    const lost = proof?.pins.filter(({ ok }) => !ok) ?? [];
    // one row for the cause, instead of one for each pin
    const isSilent = lost.length > 0 && lost.every(({ actual }) => actual === 'unreadable');
    const since = snapshot.seen.proven_ms;
    const held = proof?.pins.filter(({ ok }) => ok) ?? [];
    const all = proof?.pins.length;
    const [word, kind] = !proof ? ['not checked yet', 'quiet']
      : proof.ready ? [`all ${all} proven`, 'good']
        : isSilent ? ['the node is silent', 'bad']
        : [`${lost.length || 'some'} of ${all} not proven: writes are refused`, 'bad'];
    setText(state, word);
    setClass(state, `pill ${kind}`);
    title.parentElement.hidden = held.length === 0;
    setText(title, lost.length > 0 ? `Pins that hold: ${held.length}` : 'Pins');
    fill(failing, isSilent ? [] : lost);
    fill(holding, held);
    if (!proof) return;
    const proven = since === null ? 'never proven since start' : `last proven at ${utc(since)}`;
    setText(when, (isSilent ? 'No pin is readable, and writes are refused: ' : '')
      + `checked ${span(snapshot.at_ms - proof.checked_ms)} ago`
      + (proof.ready ? '' : `, ${proven}`));
    when.title = utc(proof.checked_ms, snapshot.at_ms);
  };
}

/** The signing accounts, and the limits of the faucet. */
function signers(place) {
  const table = new Table('Signers', [
    ['Role', 'name'], ['Address', 'code hash'], ['Balance', 'number'], ['Nonce', 'number'],
    ['Queued', 'number'],
  ]);
  const faucet = el('p', { class: 'note' });
  place.append(table.node, faucet);
  const strk = new Intl.NumberFormat('en', { maximumFractionDigits: 4 });
  return (snapshot) => {
    if (!snapshot.relay) return;
    const { relay, surfaces: all } = snapshot;
    table.show(relay.signers, ({ role }) => role, (signer) => [
      signer.role, signer.address,
      signer.balance === null ? '–' : `${strk.format(signer.balance)} STRK`,
      signer.nonce === null ? '–' : count(signer.nonce), count(signer.waiting),
    ]);
    const { faucet: { amount, cooldown }, budgets } = relay;
    const used = budgets.map((budget) => `${budget.name} ${percent(budget.used)}`).join(', ');
    const calls = all.find(({ name }) => name === 'relay')?.calls;
    const drips = count(totalOf(calls, 'faucet-drip'));
    setText(faucet, `The faucet sends ${strk.format(amount)} STRK to a recipient once per `
      + `${span(cooldown * 1000)}; ${drips} requests since start.`
      + (used ? ` Used of the budgets of a day: ${used}.` : ''));
  };
}

/** Fetches JSON. */
async function fetchJson(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** Fetches and shows `path` whenever its mark changes; a failed fetch is retried. */
function following(path, mark, show) {
  let seen = null;
  return (snapshot) => {
    const now = `${snapshot.started_ms} ${mark(snapshot)}`;
    if (seen === now) return;
    seen = now;
    fetchJson(path).then((what) => show(what, snapshot)).catch(() => {
      seen = null;
    });
  };
}

/** Merges equal lines, with the time of the newest. */
function folded(lines) {
  const rows = new Map();
  for (const { at_ms: at, level, text } of lines) {
    const key = `${level} ${text}`;
    const row = rows.get(key) ?? { key, at, level, text: readable(text), times: 0 };
    rows.set(key, { ...row, times: row.times + 1, first: at });
  }
  return [...rows.values()];
}

/** Words a line about a condition as the banners do, at its end with its duration. */
function readable(text) {
  const found = text.match(/^(.*?) condition=\S+ subject=(.*?) cause=(.*?)(?: lasted=(.*))?$/);
  if (!found) return text;
  const [, message, subject, cause, lasted] = found;
  const of = subject && ` (${subject})`;
  return lasted ? `${message}${of}, after ${lasted} (${cause})` : `${message}${of}: ${cause}`;
}

/** The most recent warnings and errors of the log, and the ends of conditions. */
function errors(place) {
  const none = el('p', { class: 'note' }, LOADING);
  const table = new Table('Recent warnings and errors', [
    ['Time (UTC)', ''], ['Level', ''], ['Times', 'number'], ['Text', 'code bare'],
  ], [10, 3]);
  place.append(none, table.node);
  return following('/errors', ({ errors: number }) => number, (lines) => {
    setText(none, 'None since start.');
    none.hidden = lines.length > 0;
    table.node.hidden = lines.length === 0;
    table.show(folded(lines), ({ key }) => key, ({ at, level, text, times, first }, row) => [
      instant(at), pill(row, level, { error: 'bad', warn: 'warn' }[level] ?? 'good'), count(times),
      times > 1 ? `${text} (first at ${utc(first)})` : text,
    ]);
  });
}

/** The keys whose values differ from those at the start. */
function configuration(place) {
  const words = el('p', { class: 'note' });
  const table = new Table('Changed keys', [
    ['Key', 'code'], ['At start', 'code'], ['In the file', 'code'], ['Active', ''],
  ]);
  place.append(words, table.node);
  const mark = ({ reloads }) => reloads;
  return following('/config', mark, ({ reloaded_ms: at, mistaken, changes }) => {
    const reloaded = at === null ? 'Not reloaded since start (send SIGHUP to reload).'
      : mistaken ? `Reload failed at ${utc(at)}, nothing changed: see the errors.`
        : `Reloaded at ${utc(at)}.`;
    const same = changes.length === 0 ? ' No key differs from the start.' : '';
    setText(words, reloaded + (at === null ? '' : same));
    table.node.hidden = changes.length === 0;
    table.show(changes, ({ key }) => key, (change, row) => [
      change.key, change.from, change.to,
      change.live ? pill(row, 'now', 'good') : pill(row, 'after a restart', 'warn'),
    ]);
  });
}
