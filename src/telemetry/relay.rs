//! The relay's metrics: requests, writes, pins, signers, journal.
//!
//! Label sets are closed: operations, outcomes, reasons, the three roles, the states of an intent.

use super::metrics::Maker;
use super::requests::Requests;
use crate::store::IntentState;
use portcullis_filters::operation::OperationKind;
use portcullis_filters::verdict::Reason;
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec};
use std::time::{Duration, SystemTime};

/// What is counted beside the operations: users' transactions.
const TRANSACTIONS: [&str; 2] = ["invoke", "deploy-account"];
/// What can come of a write.
const OUTCOMES: [&str; 6] = ["written", "idempotent", "pending", "reverted", "refused", "failed"];

/// The relay's metrics.
#[derive(Debug)]
pub struct RelayMetrics {
    requests: Requests,
    writes: IntCounterVec,
    pins_ready: IntGauge,
    pins_unproven: IntGauge,
    pins_checked: IntGauge,
    nonces: IntGaugeVec,
    queues: IntGaugeVec,
    balances: GaugeVec,
    minimum_balance: Gauge,
    journal: [IntGauge; IntentState::ALL.len()],
    oldest_open: Gauge,
    looked_after: Gauge,
}

/// How a proof of the pins came out.
#[derive(Clone, Copy, Debug)]
pub struct PinState {
    /// All of them hold.
    pub ready: bool,
    /// How many do not.
    pub unproven: usize,
    /// When it was made.
    pub at: SystemTime,
}

impl RelayMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        let journal = make.gauges(
            "portcullis_relay_journal_intents",
            "Intents in the journal by state.",
            "state",
        );
        Self {
            requests: Requests::new(
                make,
                ["portcullis_relay_requests_total", "Relay requests by what came of them and why."],
                [
                    "portcullis_relay_request_duration_seconds",
                    "From the whole head of a relay request to the last byte of its answer.",
                ],
            ),
            writes: writes(make),
            pins_ready: make.gauge("portcullis_relay_pins_ready", "1 while all pins are proven."),
            pins_unproven: make.gauge(
                "portcullis_relay_pins_unproven",
                "Pins that the last proof did not find as they must be.",
            ),
            pins_checked: make.gauge(
                "portcullis_relay_pins_checked_timestamp_seconds",
                "When the pins were last read.",
            ),
            nonces: make.gauges(
                "portcullis_relay_signer_nonce",
                "The last nonce that an account wrote with.",
                "account",
            ),
            queues: make.gauges(
                "portcullis_relay_signer_queue",
                "Operations that wait for an account's turn.",
                "account",
            ),
            balances: make.floats(
                "portcullis_relay_balance_strk",
                "What a signing account holds, as the last proof read it.",
                "account",
            ),
            minimum_balance: make.float(
                "portcullis_relay_minimum_balance_strk",
                "What each signing account must hold at least.",
            ),
            journal: IntentState::ALL.map(|state| journal.with_label_values(&[state.name()])),
            oldest_open: make.float(
                "portcullis_relay_oldest_open_intent_timestamp_seconds",
                "When the oldest intent was made whose end is not known; 0 while there is none.",
            ),
            looked_after: make.float(
                "portcullis_relay_reconciled_timestamp_seconds",
                "When all intents whose end was not known were last looked at.",
            ),
        }
    }

    /// Counts a request that is over.
    pub fn request(&self, reason: Option<Reason>, total: Duration) {
        self.requests.count(reason, total);
    }

    /// Counts a write that passed the policy. Both names come from closed lists.
    pub fn write(&self, operation: &str, outcome: &str) {
        self.writes.with_label_values(&[operation, outcome]).inc();
    }

    /// A proof was made.
    pub fn proved(&self, state: &PinState) {
        self.pins_ready.set(i64::from(state.ready));
        self.pins_unproven.set(i64::try_from(state.unproven).unwrap_or(i64::MAX));
        let at = state.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.pins_checked.set(i64::try_from(at.as_secs()).unwrap_or(i64::MAX));
    }

    /// An account writes with this nonce.
    pub fn nonce(&self, role: &str, nonce: u64) {
        self.nonces.with_label_values(&[role]).set(i64::try_from(nonce).unwrap_or(i64::MAX));
    }

    /// So many operations wait for an account.
    pub fn queue(&self, role: &str, waiting: usize) {
        self.queues.with_label_values(&[role]).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// An account holds so many fri.
    pub fn balance(&self, role: &str, fri: u128) {
        self.balances.with_label_values(&[role]).set(fri as f64 / 1e18);
    }

    /// Each signing account must hold so many fri.
    pub fn minimum_balance(&self, fri: u128) {
        self.minimum_balance.set(fri as f64 / 1e18);
    }

    /// The journal has so many intents in a state.
    pub fn journal(&self, state: IntentState, intents: i64) {
        self.journal[state as usize].set(intents);
    }

    /// All that is open was looked at, and `oldest` is when the oldest that stays so was intended.
    /// Both in microseconds since 1970.
    pub fn looked_after(&self, now_us: i64, oldest: Option<i64>) {
        self.looked_after.set(now_us as f64 / 1e6);
        self.oldest_open.set(oldest.unwrap_or_default() as f64 / 1e6);
    }
}

/// A series for each operation and outcome.
fn writes(make: &Maker) -> IntCounterVec {
    let writes = make.counters(
        "portcullis_relay_writes_total",
        "Writes that passed the policy, by operation and outcome.",
        &["operation", "outcome"],
    );
    for operation in OperationKind::ALL.map(OperationKind::name).into_iter().chain(TRANSACTIONS) {
        for outcome in OUTCOMES {
            writes.with_label_values(&[operation, outcome]);
        }
    }
    writes
}
