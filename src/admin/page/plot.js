// A small SVG plot of the last minutes.
import { el, setText, svg } from './dom.js';

/** Seconds that a plot shows at most; it starts with a shorter range. */
export const LENGTH = 180;
const RANGES = [45, 90, LENGTH];
const WIDTH = 600;
const HEIGHT = 48;

/** The smallest of 1, 2, 5, 10, 20, … that covers `value`, so that the scale rarely changes. */
function scale(value) {
  if (!(value > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * ten).find((top) => top >= value) ?? value;
}

/** The x coordinate of a value; the newest is at the right edge. */
function across(values, at) {
  const length = RANGES.find((one) => one >= values.length);
  return (WIDTH * (length - values.length + at + 1) / length).toFixed(1);
}

/** The line through the values; `null` is a gap. */
function path(values, top) {
  let line = '';
  let draws = false;
  values.forEach((value, at) => {
    if (value === null) {
      draws = false;
      return;
    }
    const y = HEIGHT - (HEIGHT - 2) * Math.min(1, value / top) - 1;
    line += `${draws ? 'L' : 'M'}${across(values, at)} ${y.toFixed(1)}`;
    draws = true;
  });
  return line;
}

/** The area below the line. */
function area(values, top) {
  const first = values.findIndex((value) => value !== null);
  if (first < 0) return '';
  const floor = values.map((value, at) => (at < first ? null : value ?? 0));
  return `${path(floor, top)}L${WIDTH} ${HEIGHT}L${across(values, first)} ${HEIGHT}Z`;
}

/** A plot of one to three lines with the same scale. */
export class Plot {
  /** `lines` are `[name, kind]`; the first may be filled. `unit` formats a value. */
  constructor(title, lines, unit, { filled = false, most = null } = {}) {
    Object.assign(this, { title, lines, unit, most });
    this.paths = lines.map(([, kind]) => svg('path', { class: kind }));
    this.area = filled ? svg('path', { class: 'area' }) : null;
    this.top = el('span');
    this.svg = svg('svg', {
      class: 'plot', role: 'img', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none',
    }, this.area, ...this.paths);
    this.node = el('figure', {}, el('figcaption', {}, el('span', {}, title), this.top), this.svg);
  }

  /** Draws these series, one for each line. */
  draw(series) {
    const all = series.flat().filter((value) => value !== null);
    const highest = all.length > 0 ? Math.max(...all) : 0;
    const top = this.most ?? scale(highest);
    series.forEach((values, at) => {
      // a line that is always zero is not drawn
      const draws = at === 0 || values.some((value) => value > 0);
      this.paths[at].setAttribute('d', draws ? path(values, top) : '');
    });
    this.area?.setAttribute('d', area(series[0], top));
    setText(this.top, `to ${this.unit(top)}`);
    const words = this.lines.map(([name], at) => {
      const values = series[at].filter((value) => value !== null);
      if (values.length === 0) return `${name}: none yet`;
      const [now, most] = [values.at(-1), Math.max(...values)].map(this.unit);
      return `${name}: now ${now}, highest ${most}`;
    });
    this.svg.setAttribute('aria-label', `${this.title}, last minutes. ${words.join('; ')}.`);
  }
}
