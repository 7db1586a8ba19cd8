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
use serde_json::json;
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
        self.metrics.sidecar.event(outcome.kind());
        reply(&outcome)
    }
}

/// The response to an event.
fn reply(outcome: &EventOutcome) -> Result<Reply, Refused> {
    let status = outcome.kind().name();
    let (reason, message) = match outcome {
        EventOutcome::Applied(state) => {
            let body = json!({ "status": status, "state": state.name() });
            return Ok(Reply::serialize(200, &body));
        }
        EventOutcome::Duplicate { outcome, state } => {
            let (outcome, state) = (outcome.name(), state.name());
            let body = json!({ "status": status, "outcome": outcome, "state": state });
            return Ok(Reply::serialize(200, &body));
        }
        EventOutcome::Stale => (Reason::StaleTransition, "the subject has a newer event"),
        EventOutcome::Invalid => (
            Reason::InvalidTransition,
            "the subject cannot change to this status",
        ),
        EventOutcome::Conflict => (
            Reason::EventConflict,
            "the event's id was used for another event",
        ),
        EventOutcome::UnknownSubject => (Reason::UnknownSubject, "no session has this subject_ref"),
    };
    Err(refused(reason, message))
}
