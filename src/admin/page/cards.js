// The cards with plots: one per surface, the cache and the node.
import {
  Table, brief, bytes, count, each, el, setClass, percent, perSecond, pill, setText, seconds,
} from './dom.js';
import { Plot } from './plot.js';
import { failedOf, refusedOf, requestsOf, surfaceOf, totalOf } from './rates.js';

const total = (counts) => counts.reduce((sum, one) => sum + one.total, 0);
const rateText = (rate) => (rate === null ? '–' : `${perSecond(rate)}/s`);

/** A card with a header, numbers and plots. */
class Card {
  /** `numbers` are `[name, colour of the line]`. */
  constructor(title, numbers, plots) {
    this.state = el('span', { class: 'pill quiet' });
    this.where = el('span', { class: 'where' });
    this.values = numbers.map(() => el('dd'));
    this.plots = plots;
    const stats = numbers.map(([name, colour], at) => el('div', {},
      el('dt', {}, colour ? el('i', { class: `swatch ${colour}` }) : null, name),
      this.values[at]));
    this.node = el('article', { class: 'card', 'aria-label': title },
      el('header', {}, el('h3', {}, title), this.where, this.state),
      el('dl', { class: 'stats' }, ...stats), ...plots.map((plot) => plot.node));
  }

  show([word, kind], where, values, series) {
    setText(this.state, word);
    setClass(this.state, `pill ${kind}`);
    setText(this.where, where);
    values.forEach((value, at) => setText(this.values[at], value));
    this.plots.forEach((plot, at) => plot.draw(series[at]));
  }
}

/** The calls of a surface, most frequent first, collapsed. */
class Calls {
  constructor() {
    this.table = new Table('Calls', [['Call', 'name'], ['Total', 'number']]);
    this.node = el('details', {}, el('summary', {}, 'Calls'), this.table.node);
  }

  show(calls) {
    const asked = calls.filter((call) => call.total > 0).sort((a, b) => b.total - a.total);
    this.node.hidden = asked.length === 0;
    this.table.show(asked, (call) => call.name, (call) => [call.name, count(call.total)]);
  }
}

function surfaceCard(name) {
  const card = new Card(name, [
    ['Requests', 'main'], ['Refused', 'warn'], ['Failed', 'bad'],
    ['p50', 'main'], ['p99', 'warn'], ['Connections'],
  ], [
    new Plot('Requests per second', [['requests', 'main'], ['refused', 'warn'], ['failed', 'bad']],
      (rate) => `${perSecond(rate)}/s`, { filled: true }),
    new Plot('Latency', [['p50', 'main'], ['p99', 'warn']], seconds),
  ]);
  const calls = new Calls();
  card.node.append(calls.node);
  const of = (get) => (snapshot) => get(surfaceOf(snapshot, name));
  const show = (snapshot, history) => {
    const { connections, listen, calls: asked } = surfaceOf(snapshot, name);
    const rates = [requestsOf, refusedOf, failedOf].map((get) => history.rate(of(get)));
    const times = [0.5, 0.99].map((share) => history.quantile(share, of((one) => one.latency)));
    const kept = (values, kind) => values.map((value, at) =>
      history.keep(`${name} ${kind} ${at}`, value));
    const state = snapshot.draining ? ['draining', 'warn'] : ['serving', 'good'];
    const values = [...rates.map(rateText), ...times.map(seconds),
      `${count(connections.open)} of ${brief(connections.max)}`];
    card.show(state, listen, values, [kept(rates, 'rate'), kept(times, 'time')]);
    calls.show(asked);
  };
  return { node: card.node, show };
}

/** The surfaces, each with a card. */
export function surfaces(place) {
  const cards = new Map();
  return (snapshot, history) => {
    each(place, snapshot.surfaces, ({ name }) => name, ({ name }) => {
      cards.set(name, surfaceCard(name));
      return cards.get(name).node;
    }, (_, { name }) => cards.get(name).show(snapshot, history));
  };
}

/** The gateway's cache. */
export function cache(place) {
  const card = new Card('Cache', [
    ['Hits', 'main'], ['Shared'], ['Entries'],
    ['Memory'], ['Settled block'], ['Emptied'],
  ], [new Plot('Share of calls served without the node', [['hits', 'main']], percent,
    { filled: true, most: 1 })]);
  const used = (use) => (snapshot) => totalOf(snapshot.cache.uses, use);
  const all = (snapshot) => total(snapshot.cache.uses);
  const saved = (snapshot) => used('hit')(snapshot) + used('shared')(snapshot);
  return (snapshot, history) => {
    if (!snapshot.cache) return;
    if (!card.node.isConnected) place.prepend(card.node);
    const { entries, capacity, epoch, settled, suspended, emptied } = snapshot.cache;
    const state = suspended ? ['suspended', 'warn'] : ['active', 'good'];
    const shares = [used('hit'), used('shared')].map((of) => history.share(of, all));
    const shown = shares.map((share) => (share === null ? '–' : percent(share)));
    card.show(state, `epoch ${count(epoch)}`, [
      ...shown, count(entries), `${bytes(snapshot.cache.bytes)} of ${bytes(capacity)}`,
      settled === null ? '–' : count(settled), count(total(emptied)),
    ], [[history.keep('cache', history.share(saved, all))]]);
  };
}

/** The node and its URLs. */
export function node(place) {
  const card = new Card('Node', [
    ['Calls', 'main'], ['Errors', 'bad'], ['Retries'],
    ['p50', 'main'], ['p99', 'warn'], ['Errors in total'],
  ], [
    new Plot('Calls per second', [['calls', 'main'], ['errors', 'bad']],
      (rate) => `${perSecond(rate)}/s`, { filled: true }),
    new Plot('Latency', [['p50', 'main'], ['p99', 'warn']], seconds),
  ]);
  const urls = new Table('URLs of the node', [
    ['URL', 'code'], ['Used by', ''], ['Breaker', ''], ['Busy', 'number'], ['Idle', 'number'],
  ]);
  const errors = new Table('Errors of the node', [['Error', 'name'], ['Total', 'number']]);
  const title = el('summary', {}, 'URLs');
  card.node.append(el('details', { open: true }, title, urls.node, errors.node));
  place.append(card.node);
  const calls = (snapshot) => total(snapshot.node.calls);
  const failed = (snapshot) => calls(snapshot) - totalOf(snapshot.node.calls, 'ok');
  return (snapshot, history) => {
    const rates = [calls, failed].map((of) => history.rate(of));
    const latency = (one) => one.node.latency;
    const times = [0.5, 0.99].map((share) => history.quantile(share, latency));
    const broken = snapshot.node.urls.filter((url) => url.broken).length;
    const state = broken > 0 ? [`breakers open: ${broken}`, 'bad'] : ['reachable', 'good'];
    const kept = (values, kind) => values.map((value, at) =>
      history.keep(`node ${kind} ${at}`, value));
    card.show(state, '', [
      ...rates.map(rateText), count(snapshot.node.retries), ...times.map(seconds),
      count(failed(snapshot)),
    ], [kept(rates, 'rate'), kept(times, 'time')]);
    urls.show(snapshot.node.urls, ({ url, surface }) => `${surface} ${url}`, (one, row) => [
      one.url, one.surface, one.broken ? pill(row, 'open', 'bad') : pill(row, 'closed', 'good'),
      count(one.busy), count(one.idle),
    ]);
    const seen = snapshot.node.calls.filter(({ name, total: all }) => name !== 'ok' && all > 0);
    errors.node.hidden = seen.length === 0;
    errors.show(seen, ({ name }) => name, (one) => [one.name, count(one.total)]);
  };
}
