// A part of all faults, always the same one on machines of one speed: a fixed stride through each kind
// of fault.

/** Faults of a kind that a sample has, per source. Some take seconds. */
const COUNT = { error: 16, kill: 3, stall: 1, cut: 3, swallowed: 1 };
/** The percentage of it that a slow machine plays. */
const SHARE = Number(process.env.PORTCULLIS_TEST_SHARE ?? 100);

export function sample(cases) {
  return [...grouped(cases)].flatMap(([fault, group]) => strided(group, Math.ceil((COUNT[fault] * SHARE) / 100)));
}

function grouped(cases) {
  const groups = new Map();
  for (const one of cases) groups.set(one.fault, [...(groups.get(one.fault) ?? []), one]);
  return groups;
}

function strided(group, count) {
  const stride = Math.ceil(group.length / count);
  // from the middle of a stride on, so that the last calls have their turn
  return group.filter((_, at) => at % stride === Math.floor(stride / 2));
}
