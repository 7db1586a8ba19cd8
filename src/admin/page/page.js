// The operator's page: follows the server's snapshots and shows each.
import { each, el, look, say, span, bytes, count } from './dom.js';
import { Journal } from './journal.js';
import { panels } from './panels.js';
import { History } from './rates.js';

/** Without a snapshot for so long, the connection is taken for dead. */
const PATIENCE = 6_000;
/** Until another try, when the server refused one. */
const PAUSE = 3_000;
/** A page that nobody sees lets its place go after this. */
const UNSEEN = 60_000;

const byId = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.history = new History();
    this.panels = panels();
    this.journal = new Journal();
    this.connect();
    document.addEventListener('visibilitychange', () => this.seen());
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
      this.tell('not connected', 'bad');
      // a refusal ends it, what else goes wrong is tried again by the browser
      if (this.events.readyState === EventSource.CLOSED) this.expect(PAUSE);
    };
    this.expect(PATIENCE);
  }

  /** Connects anew, unless something comes before. */
  expect(within) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.tell('not connected', 'bad');
      this.connect();
    }, within);
  }

  seen() {
    clearTimeout(this.unseen);
    if (document.hidden) {
      this.unseen = setTimeout(() => {
        this.events.close();
        clearTimeout(this.timer);
        this.isAway = true;
      }, UNSEEN);
    } else if (this.isAway) {
      this.isAway = false;
      this.connect();
    }
  }

  tell(state, kind) {
    say(byId('status'), state);
    look(byId('status'), `pill ${kind}`);
  }

  show(snapshot) {
    this.history.add(snapshot);
    if (snapshot.draining) this.tell('draining', 'warn');
    else this.tell('serving', 'good');
    document.title = snapshot.draining ? 'draining – Portcullis' : 'Portcullis';
    this.facts(snapshot);
    for (const part of document.querySelectorAll('[data-relay]')) part.hidden = !snapshot.relay;
    for (const panel of this.panels) panel(snapshot, this.history);
    this.journal.follow(snapshot);
  }

  facts(snapshot) {
    const facts = [
      ['Version', snapshot.version],
      ['Up', span(snapshot.at_ms - snapshot.started_ms)],
      ['In flight', count(snapshot.in_flight)],
      ['Answers', `${bytes(snapshot.memory.taken)} of ${bytes(snapshot.memory.size)}`],
    ];
    if (snapshot.log_dropped > 0) facts.push(['Log lines lost', count(snapshot.log_dropped)]);
    each(byId('facts'), facts, ([name]) => name,
      ([name]) => el('div', {}, el('dt', {}, name), el('dd')),
      (fact, [, value]) => say(fact.lastChild, value));
  }
}

new Page();
