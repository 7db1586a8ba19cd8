//! Identical writes at once: one is carried out, and all get its outcome.

use super::outcome::Outcome;
use crate::io::shared::{Aborted, Shared};
use portcullis_filters::verdict::Reason;
use std::time::Duration;

/// The writes in flight, by the digest of an operation or the hash of a transaction.
pub(super) struct WritesInFlight(Shared<[u8; 32], Outcome>);

impl WritesInFlight {
    pub(super) fn new() -> Self {
        Self(Shared::new(0, |_| 0))
    }

    /// Carries `write` out in a task of its own, unless an identical write is in flight. Later
    /// repeats find it in the journal.
    pub(super) async fn join(
        &self,
        digest: [u8; 32],
        write: impl Future<Output = Result<Outcome, Outcome>> + Send + 'static,
    ) -> Outcome {
        let write = async { (Outcome::merge(write.await), Duration::ZERO) };
        self.0.get(digest, write).await.unwrap_or_else(|Aborted| {
            let message = "the write was interrupted: repeat the request, it is not sent twice";
            Outcome::refused(Reason::OutcomeUnknown, message)
        })
    }
}
