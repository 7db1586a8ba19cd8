// Creates and updates elements. Every text is a text node: nothing is ever parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes and children; a child that is text becomes a text node. */
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets a text, unless it is the same: that would clear the selection of the user. */
export function setText(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

/** Sets the class, unless it is the same. */
export function setClass(node, classes) {
  if (node.getAttribute('class') !== classes) node.setAttribute('class', classes);
}

/** One child per item, in order; existing children are updated in place. */
export function each(parent, items, key, make, change) {
  const old = new Map();
  for (const child of [...parent.children]) {
    // the steps that were expanded below a row
    if (child.dataset.key === undefined) child.remove();
    else old.set(child.dataset.key, child);
  }
  let last = null;
  for (const item of items) {
    const name = String(key(item));
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    change(child, item);
    const next = last ? last.nextElementSibling : parent.firstElementChild;
    if (next !== child) parent.insertBefore(child, next);
    last = child;
  }
  for (const child of old.values()) child.remove();
}

/** Matches a phone, as the style does. */
export const narrow = matchMedia('(max-width: 44rem)');

/**
 * A table: columns are `[title, class]`; a row is filled by `cells`. More rows than `fold`, on a wide
 * screen and on a phone, are shown on demand.
 */
export class Table {
  constructor(caption, columns, fold = [Infinity, Infinity]) {
    Object.assign(this, { columns, fold, isOpen: false });
    const heads = columns.map(([title, kind]) => el('th', { scope: 'col', class: kind }, title));
    this.body = el('tbody', { role: 'rowgroup' });
    this.more = el('button', {
      class: 'plain', type: 'button', 'aria-expanded': 'false', onclick: () => this.toggle(),
    });
    this.node = el('div', { class: 'rows' }, el('table', { role: 'table', 'aria-label': caption },
      el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...heads)), this.body),
    this.more);
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.show(...this.shown);
  }

  /** A row of empty cells, each labelled for narrow screens, which hide the header. */
  row() {
    const cells = this.columns.map(([title, kind]) =>
      el('td', { role: 'cell', class: kind, 'data-label': title }));
    return el('tr', { role: 'row' }, ...cells);
  }

  /** One row per item; `cells` returns a text or an element for each column. */
  show(items, key, cells, kind = () => '') {
    this.shown = [items, key, cells, kind];
    const limit = this.fold[narrow.matches ? 1 : 0];
    this.more.hidden = items.length <= limit;
    this.more.setAttribute('aria-expanded', String(this.isOpen));
    setText(this.more, this.isOpen ? 'Show fewer' : `Show all ${items.length}`);
    const rows = this.isOpen ? items : items.slice(0, limit);
    each(this.body, rows, key, () => this.row(), (row, item) => {
      setClass(row, kind(item));
      cells(item, row).forEach((value, at) => fill(row.children[at], value));
    });
  }
}

function fill(cell, value) {
  if (value instanceof Node) {
    if (cell.firstChild !== value) cell.replaceChildren(value);
  } else {
    setText(cell, value);
  }
}

/** A bar that is filled to a share. The row keeps it for updates. */
export function bar(row, share, kind = '') {
  row.bar ??= el('span', { class: 'bar', 'aria-hidden': 'true' }, el('i'));
  setClass(row.bar, `bar ${kind}`);
  row.bar.firstChild.style.setProperty('width', `${Math.round(100 * Math.min(1, share))}%`);
  return row.bar;
}

/** A word on a coloured background. The row keeps it for updates. */
export function pill(row, word, kind) {
  row.pill ??= el('span');
  setClass(row.pill, `pill ${kind}`);
  setText(row.pill, word);
  return row.pill;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export const count = (number) => whole.format(number);

/** A condition in words: what is wrong, and why. */
export const reason = ({ message, subject, cause }) =>
  `${message}${subject && ` (${subject})`}: ${cause}`;

/** A large number in thousands. */
export const brief = (number) =>
  (number >= 10_000 ? `${short.format(number / 1000)} k` : count(number));

/** A rate per second, without its unit. */
export const perSecond = (rate) => (rate >= 100 ? whole : short).format(rate);

/** A share in per cent. */
export const percent = (share) => `${short.format(100 * share)} %`;

/** Seconds in a readable unit. */
export function seconds(time) {
  if (time === null) return '–';
  if (time < 1e-3) return `${whole.format(time * 1e6)} µs`;
  if (time < 1) return `${short.format(time * 1e3)} ms`;
  return `${short.format(time)} s`;
}

/** Bytes in a readable unit. */
export function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let rest = number;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${short.format(rest)} ${units[unit]}`;
}

/** A duration in its two largest units. */
export function span(ms) {
  const all = Math.max(0, Math.floor(ms / 1000));
  const [days, hours] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24];
  const [minutes, rest] = [Math.floor(all / 60) % 60, all % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${rest} s` : `${rest} s`;
}

/** A time of day in UTC, as in the log, with the date if it is not today. */
export function clock(ms, now = Date.now()) {
  const [date, time] = new Date(ms).toISOString().split(/[T.]/);
  return new Date(now).toISOString().startsWith(date) ? time : `${date} ${time}`;
}

/** A time of day with its zone, for text. */
export const utc = (ms, now) => `${clock(ms, now)} UTC`;

/** A `<time>` with the full timestamp as its title. */
export function instant(ms) {
  const whole = new Date(ms).toISOString();
  return el('time', { datetime: whole, title: whole }, clock(ms));
}
