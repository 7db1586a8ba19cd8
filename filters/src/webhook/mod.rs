//! What the age verifier reports: signed bytes in, a typed event out.
//!
//! [`WebhookPolicy::inspect`] judges size, signature, media type, and an event of exactly seven
//! fields: nothing but the outcome of a verification is read, so that no date of birth, no name and
//! no document can be kept or logged. [`decide`] says what the event does to its subject, and
//! [`moves_user`] to the user behind it.

mod event;
mod signature;
mod state;
#[cfg(test)]
mod tests;

pub use event::SignedEvent;
pub use signature::Signature;
pub use state::{AgeStatus, Standing, Verdict, decide, moves_user};

use crate::hmac::Secrets;
use crate::policy::{not_json, within_size};
use crate::verdict::{Reason, Refusal};
use alloc::string::String;
use alloc::vec::Vec;

/// 16 KiB: an event has a few hundred bytes.
pub const MAX_WEBHOOK_BODY: usize = 16_384;

/// Whose events are taken in, and what they may say.
#[derive(Debug)]
pub struct WebhookPolicy {
    /// The verifier's secrets.
    pub secrets: Secrets,
    /// The age bands that a verification can come to.
    pub age_bands: Vec<String>,
}

impl WebhookPolicy {
    /// Judges the whole body of an event that came at `now_us`, in microseconds since 1970.
    /// `is_json` is what its head says of it; that, too, is told only to who signed.
    ///
    /// # Errors
    /// `body_too_large`, `bad_webhook_signature`, `unsupported_media_type`, `parse_error` or
    /// `invalid_request`.
    pub fn inspect(
        &self,
        signature: Signature,
        is_json: bool,
        body: &[u8],
        now_us: i64,
    ) -> Result<SignedEvent, Refusal> {
        within_size(body.len(), MAX_WEBHOOK_BODY)?;
        if !signature.signs(body, &self.secrets) {
            let message = "the signature is not the verifier's over this body";
            return Err(Refusal::new(Reason::BadWebhookSignature, message));
        }
        if !is_json {
            return Err(not_json());
        }
        SignedEvent::parse(body, &self.age_bands, now_us)
    }
}
