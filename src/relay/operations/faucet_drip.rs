//! `POST /faucet-drip`: pays a fixed amount to an identity's account, which may not exist yet.
//!
//! The chain does not record drips, so the binding and the cooldown are in the store. If the
//! registry binds the identity, the registry decides.

use crate::relay::outcome::{Outcome, refuse};
use crate::relay::state::{Decision, State};
use crate::store::Binding;
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::{FaucetDrip, OperationKind};
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(drip: &FaucetDrip, state: &State<'_>) -> Result<Decision, Outcome> {
    let FaucetDrip { identity, recipient, .. } = *drip;
    let registered = state.account_of(identity).await?;
    let binding = if registered == recipient {
        Binding::Bound
    } else if registered != Felt::ZERO {
        Binding::IdentityElsewhere
    } else if state.identity_of(recipient).await? != Felt::ZERO {
        Binding::RecipientElsewhere
    } else {
        state.store.faucet().check(state.epoch, identity, recipient).await?
    };
    check(binding)?;
    let last = state
        .store
        .intents()
        .last_of(OperationKind::FaucetDrip.name(), recipient, state.epoch)
        .await?;
    if let Some(wait) = last.and_then(|last| wait(last, state)) {
        let refused = Outcome::refused(Reason::FaucetCooldown, "the recipient has had its drip");
        return Err(Outcome { retry_after: Some(wait), ..refused });
    }
    let amount = [Felt::from(state.rules.faucet_amount), Felt::ZERO];
    let args = [[recipient].as_slice(), &amount].concat();
    Ok(Decision::call(state.pins.config.token.address, "transfer", args))
}

fn check(binding: Binding) -> Result<(), Outcome> {
    match binding {
        Binding::Bound => Ok(()),
        Binding::IdentityElsewhere => {
            refuse(Reason::IdentityTaken, "the identity is bound to another recipient")
        }
        Binding::RecipientElsewhere => {
            refuse(Reason::AccountTaken, "the recipient is bound to another identity")
        }
    }
}

/// Binds identity and recipient, right before the first drip is sent.
pub(super) async fn bind(drip: &FaucetDrip, state: &State<'_>) -> Result<(), Outcome> {
    let FaucetDrip { identity, recipient, .. } = *drip;
    if state.account_of(identity).await? == recipient {
        // the registry has bound them for good
        return Ok(());
    }
    let bound = state.store.faucet().bind(state.epoch, identity, recipient, state.now_us).await?;
    check(bound)
}

/// Releases the binding of a drip that the node refused, unless an earlier one succeeded.
pub(super) async fn unbind(drip: &FaucetDrip, state: &State<'_>) -> Result<(), Outcome> {
    let operation = OperationKind::FaucetDrip.name();
    state.store.faucet().unbind(operation, state.epoch, drip.recipient).await?;
    Ok(())
}

/// Seconds until the cooldown is over, if any are left.
fn wait(last_us: i64, state: &State<'_>) -> Option<u32> {
    let cooldown = i64::try_from(state.rules.faucet_cooldown.as_micros()).unwrap_or(i64::MAX);
    let left = last_us.saturating_add(cooldown).saturating_sub(state.now_us);
    u32::try_from(left.saturating_add(999_999) / 1_000_000).ok().filter(|seconds| *seconds > 0)
}
