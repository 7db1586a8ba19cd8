//! The chain's epoch: what a write checks again right before it is sent.

use super::io::Io;
use super::outcome::Outcome;
use super::settings::Required;
use crate::verdict::Reason;

/// Refuses if the chain started again since it was proven: within the seconds for which a proof is
/// valid, a test network can do so. Called right before anything is sent.
pub(super) async fn check_epoch(io: &impl Io, proven: &str) -> Result<(), Outcome> {
    if io.anchor().await? == proven {
        return Ok(());
    }
    io.forget_proof();
    Err(Outcome::restarted())
}

/// Whether the chain certainly started again. An unavailable node does not say so.
pub(super) async fn has_restarted(io: &impl Io, proven: &str) -> bool {
    let checked = check_epoch(io, proven).await;
    checked.is_err_and(|outcome| outcome.reason() == Some(Reason::PinsUnproven))
}

/// The reason why the chain refused a read or an estimate: pins that no longer hold, as on a chain
/// that started again, or else `refused`.
pub(super) async fn explain(io: &impl Io, required: Required, refused: Outcome) -> Outcome {
    io.forget_proof();
    io.require(required).await.err().unwrap_or(refused)
}
