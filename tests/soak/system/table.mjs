// The faults that are drawn, and what each explains: reasons of failed requests and alerts, each
// with the seconds after the fault's end in which it may still be seen.

/** A request without an answer: its connection ended, or could not be opened. */
export const LOST = 'connection_lost';
/** A request without an answer within the 30 s that a client waits. */
export const LATE = 'no_answer';
/** Nothing got time on the machine: see stalls.mjs. */
export const STALL = 'machine stalled';
/** The health check reports that a dependency is unwell. */
export const UNHEALTHY = 'unhealthy';

/** A call that began in the fault has a deadline of 8 s; the breaker of a node rests for 1 s. */
const CALL = 10;
/** A proof of the pins is read again with a growing delay. */
const PROOF = 20;
/** An operation waits in the queue of its account, and for its receipt. */
const WRITE = 45;
/** Ranges of the rules, with their `for`: see conf/prometheus/rules. */
const [MINUTES, HOUR, HOURS] = [1_200, 4_000, 260_000];

/** The shares of failed and slow requests: the longest range is of three days. */
const BURNS = {
  PortcullisBudgetBurnsFast: HOURS,
  PortcullisBudgetBurnsSlowly: HOURS,
};
/** Responses to writes after one was cut off: that is settled first. */
const UNSETTLED = { outcome_unknown: WRITE, in_progress: WRITE };
const SLOW = { PortcullisGatewaySlow: HOUR, PortcullisSlow: MINUTES };
const NODE_REASONS = {
  upstream_unreachable: CALL,
  upstream_timeout: CALL,
  pins_unproven: PROOF,
  ...UNSETTLED,
};
const NODE_ALERTS = {
  ...BURNS,
  PortcullisNodeDown: 60,
  PortcullisNodeBreakerOpen: 120,
  PortcullisNodeUnreachable: MINUTES,
  PortcullisNodeTimeouts: MINUTES,
  PortcullisRelayPinsUnproven: 120,
  PortcullisRelayOutcomesUnknown: MINUTES,
  PortcullisRelayNotReconciling: MINUTES,
  PortcullisCacheSuspended: MINUTES,
};
/** A chain without blocks that users and their writes relied on. */
const ROLLED_BACK = {
  account_not_deployed: WRITE,
  account_already_deployed: WRITE,
  nonce_conflict: WRITE,
  not_registered: WRITE,
  not_verified: WRITE,
  not_attested: WRITE,
  sender_not_allowed: WRITE,
  rejected: WRITE,
  reverted: WRITE,
  refused_by_chain: WRITE,
};
const STORE_REASONS = {
  store_unavailable: CALL,
  pins_unproven: PROOF,
  ...UNSETTLED,
  // results of the health check are cached for 10 s
  [UNHEALTHY]: 15,
};
const STORE_ALERTS = {
  ...BURNS,
  PortcullisStoreUnavailable: 360,
  PortcullisComponentUnwell: MINUTES,
  PortcullisRelayOutcomesUnknown: MINUTES,
  PortcullisRelayNotReconciling: MINUTES,
};
const FLEET_ALERTS = {
  PortcullisFleetStoreUnavailable: 120,
  PortcullisFleetStateMissing: 120,
};
const RESTARTS = { PortcullisRestarting: HOUR };

/** `seconds` bounds how long it lasts; 0 is a moment. `fires` is an alert that must
 * follow, `hits` a reason for which some request must fail. */
export const FAULTS = {
  'blocks aborted': {
    seconds: [0, 0],
    reasons: { ...ROLLED_BACK, ...UNSETTLED, pins_unproven: PROOF },
    alerts: {
      ...BURNS,
      PortcullisChainRollbacks: HOUR,
      // what nobody repeats stays in doubt
      PortcullisRelayWritesDisplaced: HOURS,
      PortcullisRelayWritesLost: MINUTES,
      PortcullisRelayOutcomesUnknown: MINUTES,
      PortcullisRelayWritesReverting: MINUTES,
    },
  },
  'node unreachable': { seconds: [2, 30], reasons: NODE_REASONS, alerts: NODE_ALERTS },
  // long enough for the pager
  'node unreachable for a minute': {
    seconds: [50, 70],
    fires: 'PortcullisNodeDown',
    reasons: NODE_REASONS,
    // the leader of the watch has nothing to tell
    alerts: { ...NODE_ALERTS, PortcullisFleetStateMissing: 120 },
  },
  'node hangs': {
    seconds: [2, 30],
    reasons: { ...NODE_REASONS, overloaded: CALL },
    alerts: { ...NODE_ALERTS, ...SLOW },
  },
  'node killed, another chain': {
    seconds: [1, 15],
    reasons: { ...NODE_REASONS, ...ROLLED_BACK },
    alerts: {
      ...NODE_ALERTS,
      PortcullisChainReset: MINUTES,
      PortcullisCacheStandsStill: MINUTES,
    },
  },
  reload: { seconds: [0, 0], reasons: {}, alerts: {} },
  'reload of a mistake': { seconds: [3, 10], reasons: {}, alerts: {} },
  upgrade: { seconds: [0, 0], reasons: {}, alerts: RESTARTS },
  'instance killed': {
    seconds: [1, 5],
    reasons: { [LOST]: 2, ...UNSETTLED },
    alerts: { ...RESTARTS, PortcullisRelayOutcomesUnknown: MINUTES },
  },
  'PostgreSQL crashes': { seconds: [0, 0], reasons: STORE_REASONS, alerts: STORE_ALERTS },
  'PostgreSQL fails over': { seconds: [1, 10], reasons: STORE_REASONS, alerts: STORE_ALERTS },
  'fleet store killed': {
    seconds: [2, 60],
    reasons: {},
    alerts: FLEET_ALERTS,
  },
  'fleet store hangs': {
    seconds: [2, 60],
    reasons: {},
    alerts: FLEET_ALERTS,
  },
  // not drawn: it happens on a machine that is too busy
  [STALL]: {
    seconds: [0, 0],
    reasons: {
      ...NODE_REASONS,
      [LATE]: CALL,
      overloaded: CALL,
      store_unavailable: CALL,
      [UNHEALTHY]: 15,
    },
    alerts: { ...NODE_ALERTS, ...STORE_ALERTS, ...FLEET_ALERTS, ...SLOW, PortcullisDown: 120 },
  },
  'disk full': {
    seconds: [3, 20],
    hits: 'store_unavailable',
    reasons: { store_unavailable: CALL, [UNHEALTHY]: 15 },
    alerts: STORE_ALERTS,
  },
};

/** One round, shuffled before use. */
export const ROUND = [
  ...Array(3).fill('blocks aborted'),
  ...Array(2).fill('node unreachable'),
  'node unreachable for a minute',
  'node hangs',
  'node killed, another chain',
  ...Array(2).fill('reload'),
  'reload of a mistake',
  ...Array(2).fill('upgrade'),
  'instance killed',
  'PostgreSQL crashes',
  'PostgreSQL fails over',
  'fleet store killed',
  'fleet store hangs',
  'disk full',
];
