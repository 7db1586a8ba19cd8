//! The age verifier's reports: signed bytes in, a typed event out.
//!
//! [`WebhookPolicy::inspect`] judges size, signature, media type, and an event of exactly seven
//! fields: only the outcome of a verification is read, so that no date of birth, name or document
//! can be stored or logged. [`record`] decides what an event changes: its subject (by [`decide`]),
//! and the user behind the subject (by [`AgeReport::of_user`]). [`Opening`] limits the sessions
//! that events are about.

mod event;
mod record;
mod session;
mod signature;
mod state;
#[cfg(test)]
mod tests;
mod user;

pub use event::SignedEvent;
pub use record::{EventFacts, EventOutcome, EventOutcomeKind, Recording, StoredEvent, record};
pub use session::{AgeSession, AgeUser, Opening};
pub use signature::Signature;
pub use state::{AgeRecord, AgeStatus, Verdict, decide};
pub use user::{AgeClock, AgeReport};

use crate::head::{MediaType, not_json, within_size};
use crate::hmac::Secrets;
use crate::verdict::{Reason, Refusal};
use alloc::string::String;
use alloc::vec::Vec;

/// 16 KiB: an event has a few hundred bytes.
pub const MAX_WEBHOOK_BODY: usize = 16_384;

/// The parameters of the webhook's policy.
#[derive(Debug)]
pub struct WebhookPolicy {
    /// The verifier's secrets.
    pub secrets: Secrets,
    /// The age bands that an event may report.
    pub age_bands: Vec<String>,
}

impl WebhookPolicy {
    /// Judges the whole body of an event at `now_us`, in microseconds since 1970. `media_type` is
    /// judged after the signature: an unsigned request learns nothing else.
    ///
    /// # Errors
    /// Returns `body_too_large`, `bad_webhook_signature`, `unsupported_media_type`, `parse_error`
    /// or `invalid_request`.
    pub fn inspect(
        &self,
        signature: Signature,
        media_type: MediaType,
        body: &[u8],
        now_us: i64,
    ) -> Result<SignedEvent, Refusal> {
        within_size(body.len(), MAX_WEBHOOK_BODY)?;
        if !signature.signs(body, &self.secrets) {
            let message = "the signature is not the verifier's over this body";
            return Err(Refusal::new(Reason::BadWebhookSignature, message));
        }
        if media_type != MediaType::Json {
            return Err(not_json());
        }
        SignedEvent::parse(body, &self.age_bands, now_us)
    }
}
