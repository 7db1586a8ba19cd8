// The cards: the node, each surface, the cache, and the fleet.
import {
  Table, brief, bytes, count, each, el, percent, perSecond, pill, reason, seconds, setClass,
  setText, span,
} from './dom.js';
import { Plot } from './plot.js';
import { failedOf, refusedOf, requestsOf, surfaceOf, totalOf } from './rates.js';

const total = (counts) => counts.reduce((sum, one) => sum + one.total, 0);
const rateText = (rate) => (rate === null ? '–' : `${perSecond(rate)}/s`);
const rateUnit = (rate) => `${perSecond(rate)}/s`;

/** The plots of rates and of latency; `part` is the prefix of the series' names. */
const rates = (title, part, lines) => new Plot(title,
  lines.map(([name, kind]) => [name, kind, `${part}.${name}`]), rateUnit, { filled: true });
const latency = (part) => new Plot('Latency',
  [['p50', 'time', `${part}.p50`], ['p99', 'time far', `${part}.p99`]], seconds);

/** A card with a header, numbers and plots. */
class Card {
  /** `numbers` are `[name, colour of the line, class]`. */
  constructor(title, numbers, plots) {
    this.state = el('span', { class: 'pill quiet' });
    this.where = el('span', { class: 'where' });
    this.why = el('p', { class: 'why' });
    this.values = numbers.map(() => el('dd'));
    this.plots = plots;
    const stats = numbers.map(([name, colour, kind], at) => el('div', { class: kind },
      el('dt', {}, colour ? el('i', { class: `swatch ${colour}` }) : null, name),
      this.values[at]));
    this.node = el('article', { class: 'card', 'aria-label': title },
      el('header', {}, el('h3', {}, title), this.where, this.state), this.why,
      el('dl', { class: 'stats' }, ...stats),
      el('div', { class: 'plots' }, ...plots.map((plot) => plot.node)));
  }

  /** Shows a state and its causes, `troubles`. A value may be `[value, what it is part of]`. */
  show([word, kind], troubles, values, past) {
    setText(this.state, word);
    setClass(this.state, `pill ${kind}`);
    each(this.why, troubles, ({ condition, subject }) => `${condition} ${subject}`,
      () => el('span', {}, el('span'), ' ', el('a')), (part, trouble) => {
        setText(part.firstChild, `${reason(trouble)}.`);
        setText(part.lastChild, 'Runbook');
        part.lastChild.setAttribute('href', `/runbook#${trouble.runbook}`);
        part.lastChild.setAttribute('aria-label', `Runbook: ${trouble.message}`);
      });
    setClass(this.why, `why ${kind}`);
    this.why.hidden = troubles.length === 0;
    values.forEach((value, at) => {
      const [main, of] = [value].flat();
      each(this.values[at], of ? [['', main], ['small', of]] : [['', main]], ([name]) => name,
        ([name]) => el('span', { class: name }), (part, [, text]) => setText(part, text));
    });
    this.plots.forEach((plot) => plot.draw(past));
  }
}

/** The calls of a surface, most frequent first, collapsed. */
class Calls {
  constructor() {
    this.table = new Table('Calls', [['Call', 'name'], ['Total', 'number']]);
    this.node = el('details', {}, el('summary', {}, 'Calls'), this.table.node);
  }

  show(calls) {
    const made = calls.filter((call) => call.total > 0).sort((a, b) => b.total - a.total);
    this.node.hidden = made.length === 0;
    this.table.show(made, (call) => call.name, (call) => [call.name, count(call.total)]);
  }
}

/** The state that the header shows: that of the worst condition. */
function stateOf(troubles) {
  if (troubles.length === 0) return ['ok', 'good'];
  return troubles.some(({ failing }) => failing) ? ['failing', 'bad'] : ['degraded', 'warn'];
}

function surface(name) {
  const card = new Card(name, [
    ['Requests', 'main'], ['Refused', 'warn'], ['Failed', 'bad'],
    ['p50', 'time'], ['p99', 'time far'], ['Connections'],
  ], [
    rates('Requests per second', name,
      [['requests', 'main'], ['refused', 'warn'], ['failed', 'bad']]),
    latency(name),
  ]);
  const calls = new Calls();
  card.node.append(calls.node);
  const of = (get) => (snapshot) => get(surfaceOf(snapshot, name));
  const show = (snapshot, history) => {
    const { connections, listen, calls: made } = surfaceOf(snapshot, name);
    const all = snapshot.verdict.troubles.filter(({ surfaces }) => surfaces.includes(name));
    // causes only, without their effects
    const troubles = all.filter(({ follows }) => !follows);
    const state = snapshot.draining ? ['draining', 'warn'] : stateOf(troubles);
    const now = [requestsOf, refusedOf, failedOf].map((get) => history.rate(of(get)));
    const times = [0.5, 0.99].map((share) => history.quantile(share, of((one) => one.latency)));
    setText(card.where, listen);
    card.show(state, troubles, [...now.map(rateText), ...times.map(seconds),
      [count(connections.open), `of ${brief(connections.max)}`]], history.past);
    calls.show(made);
  };
  return { node: card.node, show };
}

/** The gateway's cache. */
function cache() {
  const card = new Card('Cache', [
    ['Hits'], ['Shared'], ['Entries'],
    ['Memory', null, 'wide'], ['Flushes'],
  ], [new Plot('Calls served without the node', [['served', 'main', 'cache.served']], percent,
    { filled: true, most: 1 })]);
  const flushes = card.values.at(-1).parentElement;
  const used = (use) => (snapshot) => totalOf(snapshot.cache.uses, use);
  const all = (snapshot) => total(snapshot.cache.uses);
  const show = (snapshot, history) => {
    const { enabled, entries, capacity, epoch, settled, suspended, emptied } = snapshot.cache;
    const state = !enabled ? ['off', 'quiet']
      : suspended ? ['bypassed', 'warn'] : ['in use', 'good'];
    const troubles = snapshot.verdict.troubles.filter(({ condition }) => condition === 'cache');
    const shares = [used('hit'), used('shared')].map((of) => history.share(of, all));
    flushes.title = `Chain epoch ${count(epoch)}`;
    setText(card.where, settled === null ? '' : `settled block ${count(settled)}`);
    card.show(state, troubles, [
      ...shares.map((share) => (share === null ? '–' : percent(share))), count(entries),
      [bytes(snapshot.cache.bytes), `of ${bytes(capacity)}`],
      count(total(emptied)),
    ], history.past);
  };
  return { node: card.node, show };
}

/** The node and its URLs. */
function node() {
  const card = new Card('Node', [
    ['Calls', 'main'], ['Errors', 'bad'], ['Retries'],
    ['p50', 'time'], ['p99', 'time far'], ['Errors in total'],
  ], [rates('Calls per second', 'node', [['calls', 'main'], ['errors', 'bad']]), latency('node')]);
  const urls = new Table('URLs of the node', [
    ['URL', 'code'], ['Used by', ''], ['State', ''], ['Head', 'number'], ['Busy', 'number'],
    ['Idle', 'number'],
  ]);
  urls.node.classList.add('stacked');
  const errors = new Table('Errors of the node', [['Error', 'name'], ['Total', 'number']]);
  card.node.append(el('details', {}, el('summary', {}, 'URLs'),
    urls.node, errors.node));
  const calls = (snapshot) => total(snapshot.node.calls);
  const failed = (snapshot) => calls(snapshot) - totalOf(snapshot.node.calls, 'ok');
  const show = (snapshot, history) => {
    const now = [calls, failed].map((of) => history.rate(of));
    const times = [0.5, 0.99].map((share) => history.quantile(share, (one) => one.node.latency));
    const troubles = snapshot.verdict.troubles.filter(({ condition }) => condition === 'node_url');
    const broken = snapshot.node.urls.filter((url) => url.broken).length;
    const [, kind] = stateOf(troubles);
    const state = broken > 0 ? [`breaker open (${broken})`, kind === 'good' ? 'warn' : kind]
      : kind === 'good' ? ['healthy', 'good'] : stateOf(troubles);
    const { block, block_ms: since } = snapshot.seen;
    setText(card.where, block === null ? ''
      : `block ${count(block)}, new ${span(snapshot.at_ms - since)} ago`);
    card.show(state, troubles, [
      ...now.map(rateText), count(snapshot.node.retries), ...times.map(seconds),
      count(failed(snapshot)),
    ], history.past);
    urls.show(snapshot.node.urls, ({ url, surface: of }) => `${of} ${url}`, (one, row) => [
      one.url, one.surface,
      one.broken ? pill(row, 'breaker open', 'bad')
        : one.left_out ? pill(row, one.left_out.replace('_', ' '), 'warn')
          : troubles.some(({ subject }) => subject === one.url) ? pill(row, 'no answer', 'bad')
            : pill(row, 'healthy', 'good'),
      one.head === null ? '–' : count(one.head), count(one.busy), count(one.idle),
    ]);
    const seen = snapshot.node.calls.filter(({ name, total: all }) => name !== 'ok' && all > 0);
    errors.node.hidden = seen.length === 0;
    errors.show(seen, ({ name }) => name, (one) => [one.name, count(one.total)]);
  };
  return { node: card.node, show };
}

/** The limits that this instance shares with others. */
function fleet() {
  const card = new Card('Fleet', [
    ['Instances'], ['Messages'], ['Without answer', null, 'wide'], ['Admitted alone', null, 'wide'],
  ], []);
  const unanswered = ({ fleet: { messages } }) =>
    ['timeout', 'failed', 'busy'].reduce((sum, name) => sum + totalOf(messages, name), 0);
  const show = (snapshot, history) => {
    const troubles = snapshot.verdict.troubles.filter(({ condition }) => condition === 'fleet');
    const state = troubles.length === 0 ? ['shared limits', 'good'] : stateOf(troubles);
    setText(card.where, snapshot.fleet.watches ? 'polls the chain for all' : '');
    card.show(state, troubles, [
      count(snapshot.fleet.instances),
      rateText(history.rate((one) => total(one.fleet.messages))),
      [rateText(history.rate(unanswered)), `${count(unanswered(snapshot))} in total`],
      [rateText(history.rate((one) => total(one.fleet.fallback))),
        `${count(total(snapshot.fleet.fallback))} in total`],
    ], history.past);
  };
  return { node: card.node, show };
}

/** All cards; the node is first, since most depends on it. */
export function cards(place) {
  const made = new Map();
  const make = (name) => ({ node, cache, fleet }[name]?.() ?? surface(name));
  return (snapshot, history) => {
    const surfaces = snapshot.surfaces.map(({ name }) => name);
    const names = ['node', ...surfaces, ...(snapshot.cache ? ['cache'] : []),
      ...(snapshot.fleet ? ['fleet'] : [])];
    each(place, names, (name) => name, (name) => {
      made.set(name, make(name));
      return made.get(name).node;
    }, (_, name) => made.get(name).show(snapshot, history));
  };
}
