// Making and changing what is on the page. Every text is a text node: nothing is ever markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes and children; a child that is text becomes a text node. */
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same of SVG's vocabulary. */
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

/** Changes a text, unless it is so already: what somebody has selected stays selected. */
export function say(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

/** Sets the class, likewise. */
export function look(node, classes) {
  if (node.getAttribute('class') !== classes) node.setAttribute('class', classes);
}

/** One child for each item, in their order; those that stay are changed and not made anew. */
export function each(parent, items, key, make, change) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
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

/** A table: columns are `[title, class]`; a row is filled by `cells`. */
export class Table {
  constructor(caption, columns) {
    this.columns = columns;
    const heads = columns.map(([title, kind]) => el('th', { scope: 'col', class: kind }, title));
    this.body = el('tbody', { role: 'rowgroup' });
    this.node = el('table', { role: 'table', 'aria-label': caption },
      el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...heads)), this.body);
  }

  /** A row with empty cells, each of which knows its title for where the head is not seen. */
  row() {
    const cells = this.columns.map(([title, kind]) =>
      el('td', { role: 'cell', class: kind, 'data-label': title }));
    return el('tr', { role: 'row' }, ...cells);
  }

  /** One row for each item; `cells` gives a text or an element for each column. */
  show(items, key, cells, kind = () => '') {
    each(this.body, items, key, () => this.row(), (row, item) => {
      look(row, kind(item));
      cells(item, row).forEach((value, at) => fill(row.children[at], value));
    });
  }
}

function fill(cell, value) {
  if (value instanceof Node) {
    if (cell.firstChild !== value) cell.replaceChildren(value);
  } else {
    say(cell, value);
  }
}

/** A bar that is filled to a share; kept in its row, so that it is not made anew. */
export function bar(row, share, kind = '') {
  row.bar ??= el('span', { class: 'bar', 'aria-hidden': 'true' }, el('i'));
  look(row.bar, `bar ${kind}`);
  row.bar.firstChild.style.setProperty('width', `${Math.round(100 * Math.min(1, share))}%`);
  return row.bar;
}

/** A word on a coloured ground; kept in its row likewise. */
export function pill(row, word, kind) {
  row.pill ??= el('span');
  look(row.pill, `pill ${kind}`);
  say(row.pill, word);
  return row.pill;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** A count. */
export const count = (number) => whole.format(number);

/** A large number, briefly. */
export const brief = (number) =>
  (number >= 10_000 ? `${short.format(number / 1000)} k` : count(number));

/** Something per second. */
export const perSecond = (rate) => (rate >= 100 ? whole : short).format(rate);

/** A share as per cent. */
export const percent = (share) => `${short.format(100 * share)} %`;

/** Seconds with a unit that suits them. */
export function seconds(time) {
  if (time === null) return '–';
  if (time < 1e-3) return `${whole.format(time * 1e6)} µs`;
  if (time < 1) return `${short.format(time * 1e3)} ms`;
  return `${short.format(time)} s`;
}

/** Bytes with a unit that suits them. */
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

/** How long something has been, in its two largest units. */
export function span(ms) {
  const all = Math.max(0, Math.floor(ms / 1000));
  const [days, hours] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24];
  const [minutes, rest] = [Math.floor(all / 60) % 60, all % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${rest} s` : `${rest} s`;
}

/** An instant, for people: the day only when it is another one. */
export function clock(ms, now = Date.now()) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString('en-GB');
  const today = at.toDateString() === new Date(now).toDateString();
  return today ? time : `${at.toLocaleDateString('sv-SE')} ${time}`;
}

/** A `<time>` that also tells the whole instant. */
export function instant(ms) {
  const whole = new Date(ms).toISOString();
  return el('time', { datetime: whole, title: whole }, clock(ms));
}
