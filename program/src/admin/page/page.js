// The operator's page: follows the server's snapshots and shows each.
import { bytes, count, each, el, reason, setClass, setText, span, utc } from './dom.js';
import { Journal } from './journal.js';
import { panels } from './panels.js';
import { History } from './rates.js';

/** Milliseconds without a snapshot after which the connection counts as lost. */
const PATIENCE = 6_000;
/** Milliseconds until the next attempt when the server refused one. */
const PAUSE = 3_000;
/** Milliseconds after which a hidden page disconnects. */
const HIDDEN = 60_000;

const byId = (id) => document.getElementById(id);

/** One trouble per cause, failing ones first. URLs that all fail are one, with their effects. */
function banners(troubles) {
  const urls = troubles.filter(({ condition, failing }) => condition === 'node_url' && failing);
  const follow = troubles.filter(({ follows }) => follows);
  const own = troubles.filter((one) => !follow.includes(one) && !urls.slice(1).includes(one))
    .sort((one, other) => Number(other.failing) - Number(one.failing));
  if (urls.length === 0) return own;
  const others = urls.length > 1 ? [`${urls.length - 1} more of its URLs`] : [];
  const also = [...others, ...follow.map(({ message }) => message)];
  const text = also.length > 0 ? `; also: ${also.join('; ')}` : '';
  return own.map((one) => (one === urls[0] ? { ...one, also: text } : one));
}

class Page {
  constructor() {
    this.history = new History();
    this.panels = panels();
    this.journal = new Journal();
    this.connect();
    document.addEventListener('visibilitychange', () => this.visibilityChanged());
  }

  connect() {
    this.events?.close();
    clearTimeout(this.timer);
    this.events = new EventSource('/events');
    // points may be missing
    this.events.onopen = () => { this.history.past.isLoaded = false; };
    this.events.onmessage = ({ data }) => {
      this.expect(PATIENCE);
      this.show(JSON.parse(data));
    };
    this.events.onerror = () => {
      this.lost();
      // the browser retries by itself, unless the server refused
      if (this.events.readyState === EventSource.CLOSED) this.expect(PAUSE);
    };
    this.expect(PATIENCE);
  }

  /** Reconnects unless a snapshot arrives first. */
  expect(within) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.lost();
      this.connect();
    }, within);
  }

  visibilityChanged() {
    clearTimeout(this.hideTimer);
    if (document.hidden) {
      this.hideTimer = setTimeout(() => {
        this.events.close();
        clearTimeout(this.timer);
        this.isPaused = true;
      }, HIDDEN);
    } else if (this.isPaused) {
      this.isPaused = false;
      this.connect();
    }
  }

  /** Marks the page as out of date. */
  lost() {
    const last = this.last ? `, last update ${utc(this.last.at_ms)}` : '';
    this.status('not connected', 'bad', `not connected${last}`);
    document.body.classList.add('stale');
  }

  /** The state in the header, in the title and in the icon. */
  status(state, kind, text = state) {
    setText(byId('status'), text);
    setClass(byId('status'), `pill ${kind}`);
    const host = this.last?.host;
    const words = [state === 'ok' ? '' : state, host, `Portcullis ${location.host}`];
    document.title = words.filter(Boolean).join(' – ');
    setText(byId('host'), host ?? '');
    const icon = { bad: '/icon-failing.svg', warn: '/icon-degraded.svg' }[kind] ?? '/icon.svg';
    if (byId('icon').getAttribute('href') !== icon) byId('icon').setAttribute('href', icon);
  }

  show(snapshot) {
    this.last = snapshot;
    document.body.classList.remove('stale');
    this.history.add(snapshot);
    const { state } = snapshot.verdict;
    if (snapshot.draining) this.status('draining', 'warn');
    else this.status(state, { ok: 'good', degraded: 'warn', failing: 'bad' }[state]);
    this.troubles(snapshot);
    this.facts(snapshot);
    for (const part of document.querySelectorAll('[data-relay]')) part.hidden = !snapshot.relay;
    for (const panel of this.panels) panel(snapshot, this.history);
    this.journal.follow(snapshot);
  }

  /** Shows a banner for each cause: what is wrong, since when, and what to do. */
  troubles({ at_ms: now, verdict }) {
    each(byId('troubles'), banners(verdict.troubles), ({ condition, subject }) =>
      `${condition} ${subject}`,
    () => el('li', {}, el('span'), ' ', el('a')), (line, { since_ms: since, ...trouble }) => {
      setClass(line, trouble.failing ? 'bad' : 'warn');
      const [text, link] = line.children;
      setText(text, `${reason(trouble)}, since ${utc(since, now)} (${span(now - since)})`
        + `${trouble.also ?? ''}.`);
      setText(link, 'Runbook');
      link.setAttribute('href', `/runbook#${trouble.runbook}`);
      link.setAttribute('aria-label', `Runbook: ${trouble.message}`);
    });
  }

  facts(snapshot) {
    const facts = [
      ['Version', snapshot.version + (snapshot.revision ? ` (${snapshot.revision.slice(0, 9)})` : '')],
      ['Uptime', span(snapshot.at_ms - snapshot.started_ms)],
      ['In flight', count(snapshot.in_flight)],
      ['Answer memory', `${bytes(snapshot.memory.taken)} of ${bytes(snapshot.memory.size)}`],
    ];
    if (snapshot.log_dropped > 0) facts.push(['Log lines dropped', count(snapshot.log_dropped)]);
    each(byId('facts'), facts, ([name]) => name,
      ([name]) => el('div', {}, el('dt', {}, name), el('dd')),
      (fact, [, value]) => setText(fact.lastChild, value));
  }
}

new Page();
