// Findings about a run: pure, from the facts that it collected.

/** Reads that were sent again because their pooled connection had just been closed. */
const REPEATED = 0.001;
/** A run in which more was injected explains too much. */
const LEAST_CALM = 0.3;
/** A machine that stalls for longer is too busy to judge anything. */
const MOST_STALLED = 0.02;

const percent = (part) => `${(100 * part).toFixed(0)} %`;

/** Findings, in words; a good run has none. */
export function judge(facts) {
  const { outcomes, alerts, missing, trends, calm, stalled, unwell, unscraped } = facts;
  const found = [...facts.findings];
  for (const [kind, { count, first }] of outcomes.unexplained) {
    found.push(`${kind}, ${count} times without a fault; the first was ${first}`);
  }
  for (const [surface, { answered, repeated }] of outcomes.surfaces) {
    if (repeated > 1 + REPEATED * answered) {
      found.push(`${surface}: ${repeated} connections ended under a request`);
    }
    if (!answered) found.push(`${surface}: no request succeeded`);
  }
  for (const { alert, instance, unexplained } of alerts) {
    if (unexplained) found.push(`${alert} fired for ${instance}, and was not injected`);
  }
  for (const name of facts.unhit) found.push(`${name}: it failed no request, and tested nothing`);
  for (const { name, alert } of missing) found.push(`${name}: ${alert} did not fire`);
  for (const { server, quantity, isBad } of trends) {
    if (isBad) found.push(`${server}: ${quantity} grows`);
  }
  for (const name of unscraped) found.push(`${name} was not scraped at the end`);
  for (const { name, text } of unwell) found.push(`${name} is not well at the end: ${text}`);
  if (stalled > MOST_STALLED) {
    found.push(`the machine is too busy: it stalled ${percent(stalled)} of the time`);
  }
  if (calm < LEAST_CALM) found.push(`only ${percent(calm)} of the run were calm`);
  return found;
}
