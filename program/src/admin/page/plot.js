// A plot of the last minutes, with a time axis and a cursor that shows the values at a time.
import { clock, el, narrow, setText, svg, utc } from './dom.js';

/** Minutes of a plot, and between marks of its axis. The first range with all points is used. */
const RANGES = [[5, 2], [15, 5], [30, 10]];
const MINUTE = 60_000;
const WIDTH = 600;
const HEIGHT = 48;

/** The smallest of 1, 2, 5, 10, 20, … that covers `value`, so that the scale rarely changes. */
function scale(value) {
  if (!(value > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * ten).find((top) => top >= value) ?? value;
}

/** The line through points without a gap; a single one is a dot. */
const line = (run) => `M${run.map(([x, y]) => `${x} ${y}`).join('L')}${run.length > 1 ? '' : 'h0'}`;
/** The area below it. */
const area = (run) => `${line(run)}L${run.at(-1)[0]} ${HEIGHT}L${run[0][0]} ${HEIGHT}Z`;

/** All plots: their cursors move together. */
const plots = new Set();

/** A plot of one to three lines with the same scale. */
export class Plot {
  /** `lines` are `[name, kind, series]`; the first may be filled. `unit` formats a value. */
  constructor(title, lines, unit, { filled = false, most = null } = {}) {
    Object.assign(this, { title, lines, unit, most, at: null, from: 0 });
    this.past = { points: [], interval: 0, end: 0 };
    this.paths = lines.map(([, kind]) => svg('path', { class: kind }));
    this.area = filled ? svg('path', { class: 'area' }) : null;
    this.grid = svg('path', { class: 'grid' });
    this.mark = svg('path', { class: 'mark' });
    this.top = el('span');
    this.axis = el('div', { class: 'axis', 'aria-hidden': 'true' });
    this.tip = el('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
    this.slider = el('div', {
      class: 'plot', role: 'slider', tabindex: '0', 'aria-valuemin': 0, 'aria-valuemax': 0,
      'aria-valuenow': 0,
    }, svg('svg', {
      'aria-hidden': 'true', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none',
    }, this.grid, this.area, ...this.paths, this.mark), this.tip);
    this.node = el('figure', {}, el('figcaption', {}, el('span', {}, title), this.top),
      this.slider, this.axis);
    this.listen();
    plots.add(this);
  }

  listen() {
    const follow = ({ clientX }) => {
      const { left, width } = this.slider.getBoundingClientRect();
      this.show(this.from + (clientX - left) / width * (this.past.end - this.from));
    };
    this.slider.addEventListener('pointerdown', follow);
    this.slider.addEventListener('pointermove', follow);
    this.slider.addEventListener('pointerleave', ({ pointerType }) => {
      // a lifted finger no longer covers the values
      if (pointerType !== 'touch') this.show(null);
    });
    this.slider.addEventListener('focus', () => this.show(this.past.end));
    this.slider.addEventListener('blur', () => this.show(null));
    this.slider.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    const { points, interval, end } = this.past;
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -12,
      PageUp: 12 }[event.key];
    const now = this.nearest(this.at ?? end);
    if (step) {
      const next = Math.max(0, Math.min(points.length - 1, points.indexOf(now) + step));
      this.show(points[next]?.at_ms);
    } else if (event.key === 'Home') this.show(points[0]?.at_ms);
    else if (event.key === 'End') this.show(end + interval);
    else if (event.key === 'Escape') this.show(null);
    else return;
    event.preventDefault();
  }

  /** The point that is nearest to a time. */
  nearest(at) {
    const { points } = this.past;
    const distance = (point) => Math.abs(point.at_ms - at);
    return points.reduce((best, one) => (distance(one) < distance(best) ? one : best), points[0]);
  }

  /** Moves the cursor of every plot to the point nearest to a time, and shows its values here. */
  show(at) {
    const point = (at ?? null) === null ? null : this.nearest(at);
    this.at = point?.at_ms ?? null;
    this.tip.hidden = !point;
    plots.forEach((plot) => plot.cross(this.at));
    if (!point) return;
    const share = 100 * this.across(point.at_ms) / WIDTH;
    const values = this.lines.map(([name, kind, series]) =>
      [name, kind, this.format(point.values[series])]);
    this.tip.replaceChildren(el('span', {}, utc(point.at_ms, this.past.end)),
      ...values.map(([name, kind, value]) =>
        el('span', {}, el('i', { class: `swatch ${kind}` }), `${name} ${value}`)));
    this.tip.style.setProperty('left', `${share}%`);
    // keeps the tip within the plot
    this.tip.style.setProperty('transform', `translateX(-${share}%)`);
    this.slider.setAttribute('aria-valuenow', this.past.points.indexOf(point));
    this.slider.setAttribute('aria-valuetext', `${utc(point.at_ms, this.past.end)}: `
      + values.map(([name, , value]) => `${name} ${value}`).join(', '));
  }

  format(value) {
    return value === null || value === undefined ? '–' : this.unit(value);
  }

  /** Draws the line of the cursor. */
  cross(at) {
    const x = at && at >= this.from ? this.across(at) : null;
    this.mark.setAttribute('d', x === null ? '' : `M${x} 0V${HEIGHT}`);
  }

  /** The x coordinate of a time. */
  across(at) {
    const share = 1 - (this.past.end - at) / (this.past.end - this.from);
    return Number((WIDTH * share).toFixed(1));
  }

  /** Draws its series. */
  draw(past) {
    this.past = past;
    const { points, end } = past;
    const length = end - (points[0]?.at_ms ?? end);
    const [minutes, step] = RANGES.find(([one]) => one * MINUTE >= length) ?? RANGES.at(-1);
    this.from = end - minutes * MINUTE;
    const series = this.lines.map(([, , name]) => points.map(({ values }) => values[name] ?? null));
    const all = series.flat().filter((value) => value !== null);
    const top = this.most ?? scale(Math.max(0, ...all));
    series.forEach((values, at) => {
      const runs = this.runs(values, top);
      // a line that is always zero is not drawn
      const draws = at === 0 || values.some((value) => value > 0);
      this.paths[at].setAttribute('d', draws ? runs.map(line).join('') : '');
      if (at === 0) this.area?.setAttribute('d', runs.map(area).join(''));
    });
    setText(this.top, this.unit(top));
    this.drawAxis(step);
    this.describe(series, minutes);
    // the cursor stays at its time
    if (!this.tip.hidden) this.show(this.at);
  }

  /** The points of a series, split where a value or a point is missing. */
  runs(values, top) {
    const { points, interval } = this.past;
    const runs = [];
    let last = null;
    values.forEach((value, at) => {
      const time = points[at].at_ms;
      if (value === null) {
        last = null;
        return;
      }
      if (last === null || time - last >= 2 * interval) runs.push([]);
      const y = HEIGHT - (HEIGHT - 2) * Math.min(1, value / top) - 1;
      runs.at(-1).push([this.across(time), y.toFixed(1)]);
      last = time;
    });
    return runs;
  }

  /** Marks full minutes. */
  drawAxis(step) {
    const first = Math.ceil(this.from / (step * MINUTE)) * step * MINUTE;
    const marks = [];
    for (let at = first; at <= this.past.end; at += step * MINUTE) marks.push(at);
    this.grid.setAttribute('d', marks.map((at) => `M${this.across(at)} 0V${HEIGHT}`).join(''));
    // a label at an edge would leave the plot
    const room = narrow.matches ? 0.1 : 0.05;
    const labels = marks.filter((at) => Math.abs(this.across(at) / WIDTH - 0.5) < 0.5 - room);
    const spans = labels.map((at) => el('span', {}, clock(at, at).slice(0, 5)));
    spans.forEach((span, at) =>
      span.style.setProperty('left', `${100 * this.across(labels[at]) / WIDTH}%`));
    this.axis.replaceChildren(...spans);
  }

  describe(series, minutes) {
    const words = this.lines.map(([name], at) => {
      const values = series[at].filter((value) => value !== null);
      if (values.length === 0) return `${name}: none yet`;
      const [now, most] = [values.at(-1), Math.max(...values)].map(this.unit);
      return `${name}: now ${now}, highest ${most}`;
    });
    this.slider.setAttribute('aria-label',
      `${this.title}, last ${minutes} minutes. ${words.join('; ')}.`);
    this.slider.setAttribute('aria-valuemax', Math.max(0, series[0].length - 1));
  }
}
