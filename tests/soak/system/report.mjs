// The report of a soak, for people.
import os from 'node:os';
import { BOUNDS, DAY_S, allowed } from './trend.mjs';

const number = (value, digits = 1) => (value === null ? '-' : value.toFixed(digits));

/** Columns as wide as their widest cell; the first one is aligned to the left. */
function table(head, rows) {
  const cells = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, at) => Math.max(...cells.map((row) => row[at].length)));
  const pad = (cell, at) => (at ? cell.padStart(widths[at]) : cell.padEnd(widths[at]));
  return cells.map((row) => `  ${row.map(pad).join('  ')}`).join('\n');
}

function faults({ windows, now }) {
  const explained = (name) =>
    [...windows.explained]
      .filter(([key]) => key.slice(key.indexOf(' ') + 1) === name)
      .map(([key, count]) => `${count} ${key.slice(0, key.indexOf(' '))}`)
      .join(', ');
  const rows = Object.entries(windows.summary(now));
  const cells = rows.map(([name, { count, seconds }]) => [name, count, number(seconds, 0)]);
  const lines = table(['fault', 'times', 'seconds'], cells).split('\n');
  return lines.map((line, at) => (at ? `${line}  ${explained(rows[at - 1][0])}` : line)).join('\n');
}

function requests({ outcomes }) {
  const head = ['surface', 'answered', 'refused', 'explained', 'unexplained', 'repeated'];
  const times = ['p50 first', 'p99 first', 'p50 last', 'p99 last'];
  const rows = [...outcomes.surfaces].sort().map(([surface, row]) => {
    const [first, , last] = row.durations;
    const quantiles = [first, last].flatMap((one) => [one.quantile(0.5), one.quantile(0.99)]);
    return [
      surface, row.answered, row.refused, row.explained, row.unexplained, row.repeated,
      ...quantiles.map((ms) => number(ms)),
    ];
  });
  return table([...head, ...times], rows);
}

function growth({ trends }) {
  const rows = trends.map(({ server, quantity, found, range, isBad }) => {
    const bound = BOUNDS[quantity];
    const perDay = found && [found.slope, found.error].map((value) => value * DAY_S);
    return [
      `${server} ${bound.name} ${bound.unit}`.trim(),
      number(range.first ?? null), number(range.last ?? null), number(range.highest),
      perDay ? `${number(perDay[0])} ± ${number(perDay[1])}` : 'too short',
      found ? number(allowed(bound, found.seconds)) : '-',
      isBad ? 'GROWS' : 'ok',
    ];
  });
  return table(['process', 'first', 'last', 'highest', 'per day', 'allowed', ''], rows);
}

function alerts({ alerts: seen, began }) {
  const at = (time) => `${((time - began) / 1000).toFixed(0)} s`;
  const rows = [...seen].map(({ alert, instance, first, last, faults: by, unexplained }) => {
    const why = unexplained ? 'NOT INJECTED' : [...by].join(', ');
    return [`${alert} ${instance}`, at(first), at(last), why];
  });
  return rows.length ? table(['alert', 'first', 'last', 'fault'], rows) : '  none';
}

/** The whole report. */
export function render(facts) {
  const { seed, seconds, calm, books, totals, findings, load } = facts;
  const stored = books.map(({ name, stored: count, sent }) => {
    return `${name}: ${count ?? '?'} of ${sent.size} events stored once, as acknowledged`;
  });
  return [
    `seed ${seed}, ${seconds} s, ${(100 * calm).toFixed(0)} % of them without a fault`,
    `load of the machine ${number(load.sum / load.count)}, at most ${number(load.highest)}, `
      + `on ${os.cpus().length} cores`,
    `\nfaults, and the failures that they explain\n${faults(facts)}`,
    `\nrequests; times in ms, of the first and the last third\n${requests(facts)}`,
    `\ngrowth after the warm-up, with the error at 95 %\n${growth(facts)}`,
    `\nalerts\n${alerts(facts)}`,
    `\n${totals.chains} chains, ${totals.operations} operations, ${totals.intents} intents`,
    ...stored,
    findings.length ? `\n${findings.map((one) => `FAILED  ${one}`).join('\n')}` : '',
    `verdict: ${findings.length ? `BAD, ${findings.length} findings` : 'good'}`,
  ].join('\n');
}
