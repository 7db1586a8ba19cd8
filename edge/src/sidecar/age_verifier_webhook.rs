//! `age-verifier-webhook`: records the verifier's findings.
//!
//! An event that passed the policy is recorded in one transaction, durable before the response. The
//! transaction completes even if the verifier disconnects: a repeated event gets the same outcome.

use super::query::invalid;
use super::{Refused, Settings, refused};
use crate::reply::Reply;
use portcullis_base::io::clock::micros;
use portcullis_base::telemetry::Metrics;
use portcullis_filters::policy::RequestParts;
use portcullis_filters::verdict::Reason;
use portcullis_store::{AGE_EVENTS_KEPT, EventOutcome, Store};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Records events.
pub(super) struct Recorder<'a> {
    pub(super) store: &'a Arc<Store>,
    pub(super) metrics: &'a Metrics,
    pub(super) runtime: &'a Handle,
}

impl Recorder<'_> {
    pub(super) async fn answer(
        &self,
        settings: &Settings,
        request: &RequestParts,
        body: &[u8],
    ) -> Result<Reply, Refused> {
        let not_configured = || refused(Reason::NotConfigured, "no secret is configured");
        let policy = settings
            .policy
            .webhook
            .as_ref()
            .ok_or_else(not_configured)?;
        let clock = settings.age_clock();
        let now = clock.now_us;
        let event = policy.inspect(request.signature, request.media_type, body, now)?;
        // the ledger no longer holds such events: a repeated one would look new
        if event.occurred_us() < now.saturating_sub(micros(AGE_EVENTS_KEPT)) {
            return Err(invalid("occurred_at is too long ago"));
        }
        let store = Arc::clone(self.store);
        let recording = async move { store.ages().record_event(&event, clock).await };
        let outcome = self.runtime.spawn(recording).await.map_err(|_| {
            log::error!("the recording of an event was aborted");
            refused(
                Reason::StoreUnavailable,
                "the event was not recorded: send it again",
            )
        })??;
        let (label, reply) = described(&outcome);
        self.metrics.sidecar.event(label);
        reply
    }
}

/// The outcome's label in metrics, and the response.
fn described(outcome: &EventOutcome) -> (&'static str, Result<Reply, Refused>) {
    let done = |body: &Value| Ok(Reply::serialize(200, body));
    let refuse = |reason, message| Err(refused(reason, message));
    match outcome {
        EventOutcome::Applied(state) => (
            "applied",
            done(&json!({ "status": "applied", "state": state.name() })),
        ),
        EventOutcome::Duplicate { outcome, state } => {
            let (outcome, state) = (outcome.name(), state.name());
            let body = json!({ "status": "duplicate", "outcome": outcome, "state": state });
            ("duplicate", done(&body))
        }
        EventOutcome::Stale => (
            "stale",
            refuse(Reason::StaleTransition, "the subject has a newer event"),
        ),
        EventOutcome::Invalid => {
            let message = "the subject cannot change to this status";
            ("invalid", refuse(Reason::InvalidTransition, message))
        }
        EventOutcome::Conflict => (
            "conflict",
            refuse(
                Reason::EventConflict,
                "the event's id was used for another event",
            ),
        ),
        EventOutcome::UnknownSubject => (
            "unknown",
            refuse(Reason::UnknownSubject, "no session has this subject_ref"),
        ),
    }
}
