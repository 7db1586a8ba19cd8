// The write journal: search, pages, and the steps of each write.
import { Table, clock, count, each, el, instant, narrow, pill, setClass, setText } from './dom.js';
import { surfaceOf } from './rates.js';

const KINDS = {
  succeeded: 'good', reverted: 'bad', rejected: 'bad', displaced: 'warn', lost: 'bad',
  refused: 'warn',
};
const byId = (id) => document.getElementById(id);

/** The members of an entry that its row does not show. */
function rest(detail) {
  const shown = ['epoch', 'nonce', 'signer', 'subject', 'transaction_hash'];
  try {
    const members = Object.entries(JSON.parse(detail)).filter(([name]) => !shown.includes(name));
    return members.map(([name, value]) => `${name} ${value}`).join(', ');
  } catch {
    // a tampered row may contain anything
    return detail;
  }
}

export class Journal {
  constructor() {
    this.form = byId('journal-form');
    this.note = byId('journal-note');
    this.more = byId('journal-more');
    this.table = new Table('Writes', [
      ['Number', ''], ['When (UTC)', 'bare'], ['Operation', 'name bare'], ['State', ''],
      ['Transaction', 'code hash'], ['Subject', 'code hash'],
    ], [10, 3]);
    byId('journal-search').open = !narrow.matches;
    byId('journal-table').append(this.table.node);
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.search();
    });
    // the fields are cleared after this event
    this.form.addEventListener('reset', () => setTimeout(() => this.search()));
    for (const field of this.form.querySelectorAll('select')) {
      field.addEventListener('change', () => this.search());
    }
    this.more.addEventListener('click', () => this.older());
    this.writes = [];
  }

  /** Refreshes the newest writes, unless the user reads older ones or an expanded row. */
  follow(snapshot) {
    if (!snapshot.relay) return;
    this.counts(snapshot.relay.intents);
    this.operations(surfaceOf(snapshot, 'relay').calls);
    const refused = surfaceOf(snapshot, 'relay').refused;
    const mark = JSON.stringify([snapshot.started_ms, snapshot.relay.intents, refused]);
    const reads = this.pages > 1 || this.table.body.querySelector('.all');
    if (this.mark !== mark && !reads) {
      this.mark = mark;
      this.search();
    }
  }

  counts(intents) {
    const known = intents.filter(({ total }) => total > 0);
    each(byId('journal-counts'), known, ({ name }) => name, () => el('span'), (chip, one) => {
      setClass(chip, `pill ${KINDS[one.name] ?? 'quiet'}`);
      setText(chip, `${count(one.total)} ${one.name}`);
    });
  }

  operations(calls) {
    const select = this.form.elements.operation;
    const known = new Set([...select.options].map(({ value }) => value));
    for (const { name } of calls) {
      if (!known.has(name)) select.append(el('option', { value: name }, name));
    }
  }

  /** The queries to try: several if the text is ambiguous. */
  queries() {
    const { what, state, operation } = this.form.elements;
    const text = what.value.trim();
    const rest = { state: state.value, operation: operation.value };
    if (text === '') return [rest];
    if (/^\d+$/.test(text)) return [{ intent: text }];
    return [{ hash: text, ...rest }, { subject: text, ...rest }];
  }

  async search() {
    this.turn = (this.turn ?? 0) + 1;
    const turn = this.turn;
    let page;
    for (const query of this.queries()) {
      page = await this.fetchPage(query);
      // another search has started
      if (turn !== this.turn) return;
      this.query = query;
      if (!page || page.writes.length > 0) break;
    }
    this.pages = 1;
    this.show(page?.writes ?? [], page?.before ?? null);
    if (!page) return;
    const isAny = Object.values(this.query).every((value) => value === '');
    const none = isAny ? 'Nothing has been written yet.' : 'No matching writes.';
    setText(this.note, page.writes.length === 0 ? none : '');
  }

  async older() {
    const turn = this.turn;
    const page = await this.fetchPage({ ...this.query, before: this.before });
    if (!page || turn !== this.turn) return;
    this.pages += 1;
    this.table.isOpen = true;
    this.show([...this.writes, ...page.writes], page.before);
  }

  async fetchPage(query) {
    const given = Object.entries(query).filter(([, value]) => value !== '');
    const answer = await fetch(`/journal?${new URLSearchParams(given)}`).catch(() => null);
    if (answer?.ok) return answer.json();
    const mistake = answer?.status === 400 ? (await answer.json()).message : null;
    setText(this.note, mistake ?? 'The journal is unavailable: try again.');
    return null;
  }

  show(writes, before) {
    Object.assign(this, { writes, before });
    this.more.hidden = before === null;
    this.table.node.hidden = writes.length === 0;
    this.table.show(writes, ({ id, state }) => `${state === 'refused'} ${id}`, (write, row) => {
      row.button?.setAttribute('aria-expanded', 'false');
      return [
        this.number(write, row), clock(write.at_ms), write.operation,
        pill(row, write.state, KINDS[write.state] ?? 'quiet'),
        write.transaction_hash ?? '–', write.subject ?? '–',
      ];
    });
  }

  /** The number of a write: a button that expands its steps. */
  number(write, row) {
    row.write = write;
    row.button ??= el('button', {
      class: 'link', type: 'button', 'aria-expanded': 'false', onclick: () => this.expand(row),
    });
    setText(row.button, write.id);
    return row.button;
  }

  async expand(row) {
    const next = row.nextElementSibling;
    const isOpen = Boolean(next?.querySelector('.all'));
    row.button.setAttribute('aria-expanded', String(!isOpen));
    if (isOpen) {
      next.remove();
      return;
    }
    const cell = el('td', { class: 'all', colspan: 6, role: 'cell' });
    row.after(el('tr', { role: 'row' }, cell));
    cell.append(...await this.about(row.write));
  }

  async about(write) {
    const facts = [];
    if (write.signer) facts.push(`Signed by ${write.signer} with nonce ${write.nonce}.`);
    if (write.epoch) facts.push(`Chain ${write.epoch}.`);
    if (write.detail) facts.push(write.state === 'refused' ? rest(write.detail) : write.detail);
    const about = facts.map((fact) => el('p', { class: 'note code' }, fact));
    if (write.state === 'refused') return about;
    const answer = await fetch(`/journal/entries?intent=${write.id}`).catch(() => null);
    if (!answer?.ok) {
      return [...about, el('p', { class: 'note' }, 'Its entries are unavailable.')];
    }
    const steps = await answer.json();
    const items = steps.map(({ seq, at_ms: at, kind, detail }) => el('li', {},
      instant(at), ` entry ${seq}: `,
      el('span', { class: `pill ${KINDS[kind] ?? 'quiet'}` }, kind), ' ',
      el('span', { class: 'code' }, rest(detail))));
    return [...about, el('ol', { class: 'steps' }, ...items)];
  }
}
