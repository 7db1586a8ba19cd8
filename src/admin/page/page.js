// The operator's page: follows the server's snapshots and shows each.
import { each, el, setClass, setText, span, bytes, count } from './dom.js';
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
    this.events.onmessage = ({ data }) => {
      this.expect(PATIENCE);
      this.show(JSON.parse(data));
    };
    this.events.onerror = () => {
      this.status('not connected', 'bad');
      // the browser retries by itself, unless the server refused
      if (this.events.readyState === EventSource.CLOSED) this.expect(PAUSE);
    };
    this.expect(PATIENCE);
  }

  /** Reconnects unless a snapshot arrives first. */
  expect(within) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.status('not connected', 'bad');
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

  status(state, kind) {
    setText(byId('status'), state);
    setClass(byId('status'), `pill ${kind}`);
  }

  show(snapshot) {
    this.history.add(snapshot);
    if (snapshot.draining) this.status('draining', 'warn');
    else this.status('serving', 'good');
    document.title = snapshot.draining ? 'draining – Portcullis' : 'Portcullis';
    this.facts(snapshot);
    for (const part of document.querySelectorAll('[data-relay]')) part.hidden = !snapshot.relay;
    for (const panel of this.panels) panel(snapshot, this.history);
    this.journal.follow(snapshot);
  }

  facts(snapshot) {
    const facts = [
      ['Version', snapshot.version],
      ['Uptime', span(snapshot.at_ms - snapshot.started_ms)],
      ['In flight', count(snapshot.in_flight)],
      ['Response memory', `${bytes(snapshot.memory.taken)} of ${bytes(snapshot.memory.size)}`],
    ];
    if (snapshot.log_dropped > 0) facts.push(['Log lines dropped', count(snapshot.log_dropped)]);
    each(byId('facts'), facts, ([name]) => name,
      ([name]) => el('div', {}, el('dt', {}, name), el('dd')),
      (fact, [, value]) => setText(fact.lastChild, value));
  }
}

new Page();
