//! Which writes a proof permits, and the chain's epoch, which is checked again right before a write
//! is sent.

use super::io::Io;
use super::node::CallError;
use super::not_sent::NotSent;
use super::settings::Required;
use crate::chain::{Pin, Proof, UNREADABLE};
use alloc::string::String;
use core::future::Future;
use core::time::Duration;
use futures_util::future::join;

/// The oldest check that is valid when something is sent. Only a process that was suspended
/// meanwhile, or a node that is about to time out, takes longer.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The pin that `/require-v2` makes true.
pub const V2: &str = "verification_v2_required";
/// The pin of the account that pays drips.
pub const FAUCET: &str = "faucet_balance";

impl Required {
    /// The epoch of the chain, if the proof permits such a write.
    ///
    /// # Errors
    /// Returns why it does not.
    pub fn permit(self, proof: &Proof) -> Result<String, NotSent> {
        match &proof.epoch {
            Some(epoch) if proof.holds_without(|pin| self.is_optional(pin)) => Ok(epoch.clone()),
            _ if self == Self::Drip && proof.holds_without(is_money) => Err(NotSent::FaucetEmpty),
            _ => Err(NotSent::PinsUnproven),
        }
    }

    fn is_optional(self, pin: &Pin) -> bool {
        self == Self::AllButV2 && pin.name == V2
    }
}

/// Whether only the money of drips can be missing.
fn is_money(pin: &Pin) -> bool {
    pin.name == FAUCET && pin.actual != UNREADABLE
}

/// Why it is not confirmed that the chain is the proven one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EpochError {
    /// The chain started again.
    Restarted,
    /// The node is unavailable, or too slow. That proves nothing.
    Unavailable(NotSent),
}

impl From<EpochError> for NotSent {
    fn from(unconfirmed: EpochError) -> Self {
        match unconfirmed {
            EpochError::Restarted => Self::Restarted,
            EpochError::Unavailable(why) => why,
        }
    }
}

/// Refuses if the chain started again since it was proven, as a test network can within the seconds
/// for which a proof is valid. Called right before anything is sent.
///
/// # Errors
/// Returns an error if the chain started again, or the node is unavailable or twice too slow.
pub(super) async fn check_epoch(io: &impl Io, proven: &str) -> Result<(), EpochError> {
    for _ in 0..2 {
        let begun = io.now();
        let anchor = match io.anchor().await {
            Ok(anchor) => anchor,
            Err(error) => return Err(EpochError::Unavailable(error.into())),
        };
        if anchor != proven {
            // a proof of the chain that the node serves now permits the writes of others
            if io.epoch().await.ok() != Some(anchor) {
                io.forget_proof();
            }
            return Err(EpochError::Restarted);
        }
        if is_recent(io, begun) {
            return Ok(());
        }
    }
    Err(EpochError::Unavailable(NotSent::Overdue))
}

/// Runs [`check_epoch`] concurrently with `work`, and again if they take longer than [`MAX_AGE`].
pub(super) async fn check_epoch_during<T>(
    io: &impl Io,
    proven: &str,
    work: impl Future<Output = T>,
) -> (Result<(), EpochError>, T) {
    let begun = io.now();
    let (checked, done) = join(check_epoch(io, proven), work).await;
    match checked {
        Ok(()) if !is_recent(io, begun) => (check_epoch(io, proven).await, done),
        checked => (checked, done),
    }
}

fn is_recent(io: &impl Io, begun: Duration) -> bool {
    io.now().saturating_sub(begun) <= MAX_AGE
}

/// Whether the chain certainly started again. An unavailable node is no proof of that.
pub(super) async fn has_restarted(io: &impl Io, proven: &str) -> bool {
    check_epoch(io, proven).await == Err(EpochError::Restarted)
}

/// Explains why the chain refused a read or an estimate: pins no longer hold, as on a chain that
/// started again, or else `refused`.
pub(super) async fn explain(io: &impl Io, required: Required, refused: CallError) -> NotSent {
    io.forget_proof();
    let unproven = io.require(required).await.err();
    unproven.unwrap_or(NotSent::Node(refused))
}
