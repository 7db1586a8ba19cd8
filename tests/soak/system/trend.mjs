// Whether a quantity grows: a line through its samples, and how certain its slope is.

/** Two-sided 95 % of the normal distribution: there are hundreds of samples. */
const QUANTILE = 1.96;
/** With fewer samples a slope means nothing. */
const FEWEST = 20;

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Correlation of each residual with the next one: samples of memory follow each other closely, so
 * that they say less than as many independent ones. */
function correlation(residuals) {
  const squares = residuals.reduce((sum, one) => sum + one * one, 0);
  if (squares === 0) return 0;
  const products = residuals.slice(1).reduce((sum, one, at) => sum + one * residuals[at], 0);
  return Math.min(Math.max(products / squares, 0), 0.999);
}

/** The common slope of segments, each a list of `[time, value]`, with its error at 95 %. A segment
 * is one process: each begins at a level of its own. Null when there are too few samples. */
export function trend(segments) {
  const parts = segments.filter((points) => points.length >= FEWEST);
  let [sxx, sxy] = [0, 0];
  const centred = parts.map((points) => {
    const [at, level] = [0, 1].map((place) => mean(points.map((point) => point[place])));
    return points.map(([time, value]) => [time - at, value - level]);
  });
  for (const [time, value] of centred.flat()) {
    sxx += time * time;
    sxy += time * value;
  }
  const count = centred.flat().length;
  if (count === 0 || sxx === 0) return null;
  const slope = sxy / sxx;
  const residuals = centred.map((points) => points.map(([time, value]) => value - slope * time));
  const squares = residuals.flat().reduce((sum, one) => sum + one * one, 0);
  const rho = Math.max(...residuals.map(correlation));
  const variance = squares / Math.max(1, count - parts.length - 1) / sxx;
  const error = QUANTILE * Math.sqrt((variance * (1 + rho)) / (1 - rho));
  const seconds = parts.reduce((sum, points) => sum + points.at(-1)[0] - points[0][0], 0);
  return { slope, error, count, seconds };
}

/** Bounds of growth. `perDay` is what may be added each day; `fill` is what bounded memory may
 * still take after the warm-up of a run that is shorter than a day: caches, pools, histories. */
export const BOUNDS = {
  rss: { name: 'RSS', unit: 'MiB', perDay: 1, fill: 8 },
  files: { name: 'open files', unit: '', perDay: 24, fill: 24 },
  threads: { name: 'threads', unit: '', perDay: 1, fill: 4 },
};
export const DAY_S = 86_400;

/** The allowed growth per day when this many seconds were observed. */
export function allowed({ perDay, fill }, seconds) {
  return seconds < DAY_S ? perDay + fill * (DAY_S / seconds) : perDay;
}

/** Whether it grows. In a day or more the slope itself must be below the bound; in less, its lower
 * confidence bound. */
export function grows(found, bound) {
  if (found === null) return false;
  const { slope, error, seconds } = found;
  const least = seconds < DAY_S ? slope - error : slope;
  return least * DAY_S > allowed(bound, seconds);
}
