//! `age-verifier-webhook`: takes in what the verifier found.
//!
//! What the policy let through is recorded in one transaction, durable before the answer. It is
//! carried to its end even if the verifier hangs up: it would ask again, and hear the same.

use super::query::invalid;
use super::settings::Settings;
use super::{Refused, Sidecar, micros, now_us, refused};
use crate::reply::Reply;
use crate::store::{AGE_EVENTS_KEPT, EventOutcome, FirstOutcome};
use portcullis_filters::policy::Asked;
use portcullis_filters::verdict::Reason;
use serde_json::json;
use std::sync::Arc;

impl Sidecar {
    pub(super) async fn age_verifier_webhook(
        &self,
        settings: &Settings,
        asked: &Asked,
        body: &[u8],
    ) -> Result<Reply, Refused> {
        let not_configured = || refused(Reason::NotConfigured, "no secret is configured");
        let policy = settings.policy.webhook.as_ref().ok_or_else(not_configured)?;
        let now = now_us();
        let event = policy.inspect(asked.signature, asked.is_json, body, now)?;
        // what is pruned from the ledger can not be told from what is new
        if event.occurred_us() < now.saturating_sub(micros(AGE_EVENTS_KEPT)) {
            return Err(invalid("occurred_at is too long ago"));
        }
        let store = Arc::clone(&self.store);
        let recording = async move { store.record_age_event(&event, now).await };
        let outcome = self.runtime.spawn(recording).await.map_err(|_| {
            log::error!("the record of an event was cut short");
            refused(Reason::StoreUnavailable, "the event was not recorded: send it again")
        })??;
        self.metrics.sidecar.event(name(&outcome));
        answer(&outcome)
    }
}

/// The outcome in metrics.
fn name(outcome: &EventOutcome) -> &'static str {
    match outcome {
        EventOutcome::Applied(_) => "applied",
        EventOutcome::Duplicate { .. } => "duplicate",
        EventOutcome::Stale => "stale",
        EventOutcome::Invalid => "invalid",
        EventOutcome::Conflict => "conflict",
        EventOutcome::UnknownSubject => "unknown",
    }
}

fn answer(outcome: &EventOutcome) -> Result<Reply, Refused> {
    let body = match outcome {
        EventOutcome::Applied(state) => json!({ "status": "applied", "state": state.name() }),
        EventOutcome::Duplicate { outcome, state } => {
            let outcome = match outcome {
                FirstOutcome::Applied => "applied",
                FirstOutcome::Stale => "stale",
                FirstOutcome::Invalid => "invalid",
            };
            json!({ "status": "duplicate", "outcome": outcome, "state": state.name() })
        }
        EventOutcome::Stale => {
            let message = "the subject has a newer event";
            return Err(refused(Reason::StaleTransition, message));
        }
        EventOutcome::Invalid => {
            let message = "the subject's status does not go over to this one";
            return Err(refused(Reason::InvalidTransition, message));
        }
        EventOutcome::Conflict => {
            let message = "the event's id was used with another meaning";
            return Err(refused(Reason::EventConflict, message));
        }
        EventOutcome::UnknownSubject => {
            let message = "no session has this subject_ref";
            return Err(refused(Reason::UnknownSubject, message));
        }
    };
    Ok(Reply::json(200, body.to_string()))
}
