//! The relay's metrics: requests, writes, pins, signers, journal.

use super::registry::{Registry, as_gauge, metrics};
use super::requests::{Calls, Requests};
use portcullis_filters::events::{Backlog, EventOutcome};
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::TransactionKind;
use portcullis_filters::txm::outcome::OutcomeKind;
use portcullis_filters::verdict::Api;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::time::SystemTime;

/// The label of intents in doubt or lost that were never in a block.
pub const UNPLACED: &str = "unplaced";

metrics! {
    /// The relay's metrics.
    pub struct RelayMetrics(registry, states: &[&str]) {
        pins_ready: IntGauge = gauge("portcullis_relay_pins_ready", "1 while all pins match.");
        pins_unproven: IntGauge = gauge("portcullis_relay_pins_unproven",
            "Pins that did not match the chain at the last check.");
        pins_checked: IntGauge = gauge("portcullis_relay_pins_checked_timestamp_seconds",
            "When the pins were last checked, in seconds since 1970.");
        pub nonces: IntGaugeVec = gauges("portcullis_relay_signer_nonce",
            "The last nonce that a signing account used.", "account", &[]);
        pub balances: GaugeVec = floats("portcullis_relay_balance_strk",
            "Balance of a signing account at the last check of the pins, in STRK.", "account");
        minimum_balance: Gauge = float("portcullis_relay_minimum_balance_strk",
            "Balance that each signing account needs, in STRK.");
        drip: Gauge = float("portcullis_relay_drip_strk",
            "Balance that the faucet's own account needs for one drip, in STRK; 0 without one.");
        pub budget_used: GaugeVec = floats("portcullis_relay_budget_used_ratio",
            "Part of a budget that all relays of the store used within 24 hours; 0 without a \
             budget.", "budget");
        pub journal: IntGaugeVec = gauges("portcullis_relay_journal_intents",
            "Intents in the journal by state; unplaced are in doubt or lost, and were never in a \
             block.", "state", states);
        pub entries: IntGauge = gauge("portcullis_relay_journal_entries",
            "Entries of the journal: state changes of writes, and refusals.");
        oldest_open: Gauge = float("portcullis_relay_oldest_open_intent_timestamp_seconds",
            "When the oldest unfinished intent was created, in seconds since 1970; 0 without one.");
        reconciled: Gauge = float("portcullis_relay_reconciled_timestamp_seconds",
            "When all unfinished intents were last checked, in seconds since 1970.");
        pub double_drips: IntCounter = counter("portcullis_relay_double_drips_total",
            "Drips that were paid after a rollback although their recipient was paid meanwhile.");
        events: [IntCounter; EventOutcome::ALL.len()] =
            counter_array("portcullis_relay_events_total",
                "Attempts to send an event about a write to the backend, by outcome.",
                "outcome", EventOutcome::ALL.map(EventOutcome::name));
        events_waiting: IntGauge = gauge("portcullis_relay_events_waiting",
            "Events about writes that the backend has not got yet.");
        events_oldest: Gauge = float("portcullis_relay_events_oldest_timestamp_seconds",
            "When the oldest event that waits was recorded, in seconds since 1970; 0 without one.");
        pub reconciles: IntGauge = gauge("portcullis_relay_reconciles",
            "1 while this process settles unfinished intents for all that share its store.");
    }
    with {
        /// The relay's requests.
        pub requests: Requests = Requests::new(
            registry,
            ["portcullis_relay_requests_total", "Relay requests by verdict and reason."],
            ["portcullis_relay_request_duration_seconds",
             "Seconds from the complete head of a relay request to the last byte of its response."],
            Api::Relay,
            Calls::new(
                registry,
                ["portcullis_relay_call_duration_seconds",
                 "Seconds of a relay request whose operation is known, by operation."],
                ["portcullis_relay_calls_failed_total",
                 "Relay requests that failed, by operation."],
                "operation",
                operations(),
            ),
        );
        /// The relay's writes by operation and outcome.
        pub writes: IntCounterVec = writes(registry);
    }
}

/// The result of a check of the pins.
#[derive(Clone, Copy, Debug)]
pub struct PinState {
    /// Whether all pins match.
    pub ready: bool,
    /// How many pins do not match.
    pub unproven: usize,
    /// When the check was made.
    pub at: SystemTime,
}

impl RelayMetrics {
    /// Counts a write that passed the policy, of an operation or a kind of transaction.
    pub fn write(&self, operation: &str, outcome: OutcomeKind) {
        let labels = [operation, outcome.name()];
        self.writes.with_label_values(&labels).inc();
    }

    /// Sets the result of a check of the pins.
    pub fn proved(&self, state: &PinState) {
        self.pins_ready.set(i64::from(state.ready));
        self.pins_unproven.set(as_gauge(state.unproven));
        let at = state
            .at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.pins_checked.set(as_gauge(at.as_secs()));
    }

    /// Sets the nonce that an account uses.
    pub fn nonce(&self, role: &str, nonce: u64) {
        self.nonces.with_label_values(&[role]).set(as_gauge(nonce));
    }

    /// Sets the balance of an account.
    pub fn balance(&self, role: &str, fri: u128) {
        self.balances
            .with_label_values(&[role])
            .set(fri as f64 / 1e18);
    }

    /// Sets the balance that each signing account needs.
    pub fn minimum_balance(&self, fri: u128) {
        self.minimum_balance.set(fri as f64 / 1e18);
    }

    /// Sets the balance that the faucet's own account needs for one drip.
    pub fn drip(&self, fri: u128) {
        self.drip.set(fri as f64 / 1e18);
    }

    /// Sets the part of a budget that was used within 24 hours.
    pub fn budget_used(&self, budget: &str, used: f64) {
        self.budget_used.with_label_values(&[budget]).set(used);
    }

    /// Sets the number of intents in a state.
    pub fn journal(&self, state: &str, intents: i64) {
        self.journal.with_label_values(&[state]).set(intents);
    }

    /// Counts an attempt to send an event.
    pub fn event(&self, outcome: EventOutcome) {
        self.events[outcome as usize].inc();
    }

    /// Sets the events that wait.
    pub fn events_backlog(&self, backlog: &Backlog) {
        let waiting = i64::try_from(backlog.waiting).unwrap_or(i64::MAX);
        self.events_waiting.set(waiting);
        let oldest_us = backlog.oldest_us.unwrap_or_default();
        self.events_oldest.set(oldest_us as f64 / 1e6);
    }

    /// Sets when all unfinished intents were last checked, and when the oldest of those still
    /// unfinished was created, both in microseconds since 1970.
    pub fn reconciled(&self, now_us: i64, oldest: Option<i64>) {
        self.reconciled.set(now_us as f64 / 1e6);
        self.oldest_open
            .set(oldest.unwrap_or_default() as f64 / 1e6);
    }
}

/// The operations, and the transactions of users.
fn operations() -> impl Iterator<Item = &'static str> {
    let operations = OperationKind::ALL.map(OperationKind::name);
    let transactions = TransactionKind::ALL.map(TransactionKind::name);
    operations.into_iter().chain(transactions)
}

/// A series for each operation and outcome.
fn writes(registry: &Registry) -> IntCounterVec {
    let writes = registry.counters(
        "portcullis_relay_writes_total",
        "Writes that passed the policy, by operation and outcome.",
        &["operation", "outcome"],
    );
    for operation in operations() {
        for outcome in OutcomeKind::ALL {
            writes.with_label_values(&[operation, outcome.name()]);
        }
    }
    writes
}
