//! Signs a transaction of one of our accounts, with bounds from an estimate.

use super::bounds;
use super::io::{Io, Purpose, SignedText};
use super::node::CallError;
use super::not_sent::NotSent;
use super::settings::Role;
use crate::felt::Felt;
use crate::tx::{Bounds, Call, Invoke};
use alloc::vec::Vec;

/// The result of [`sign`].
pub(super) enum Signing {
    /// The transaction is signed.
    Signed {
        /// The signed transaction.
        signed: SignedText,
        /// The highest fee by its bounds, in fri.
        max_fee: u128,
    },
    /// The account has used the nonce in the meantime.
    NonceMoved,
}

/// Signs a transaction that makes `calls`. `in_doubt` is the number of doubtful transactions with
/// the nonce, from which it must differ.
///
/// # Errors
/// Returns an error if the chain refuses the calls or is unavailable, or if the fee is over its
/// bound.
pub(super) async fn sign(
    io: &impl Io,
    role: Role,
    calls: Vec<Call>,
    nonce: u64,
    in_doubt: usize,
) -> Result<Signing, NotSent> {
    let sender = *io.pins().accounts.of(role);
    let mut invoke = Invoke {
        sender,
        calls,
        nonce: Felt::from(nonce),
        bounds: Bounds::ZERO,
    };
    let query = io.sign(role, invoke.clone(), Purpose::Estimate);
    let estimate = io.estimate(&query.text).await;
    if let Err(CallError::Returned(_)) = &estimate
        && io.nonce(sender).await? != nonce
    {
        return Ok(Signing::NonceMoved);
    }
    let (bounds, max_fee) = bounds::bounds(&estimate?, &io.settings(), in_doubt)?;
    invoke.bounds = bounds;
    let signed = io.sign(role, invoke, Purpose::Write);
    Ok(Signing::Signed { signed, max_fee })
}
