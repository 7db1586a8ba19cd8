//! Identities: their accounts, and the recovery to another account.

use super::state::{Decision, State};
use crate::felt::Felt;
use crate::operation::{RecoveryCancel, RecoveryExecute, RecoveryPropose, Register};
use crate::txm::io::Io;
use crate::txm::node::CallError;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::Reason;
use alloc::string::ToString;
use alloc::vec;
use futures_util::future::{join, join3, try_join};

/// `POST /register`: binds an identity to an account.
pub(super) async fn register(
    register: &Register,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let Register {
        identity, account, ..
    } = *register;
    let bound = state.account_of(identity).await?;
    if bound == account {
        return Ok(Decision::Already(Details::None));
    }
    if bound != Felt::ZERO {
        return refuse(
            Reason::IdentityTaken,
            "the identity is bound to another account",
        );
    }
    let (elsewhere, checked) = join(state.identity_of(account), state.check_account(account)).await;
    let elsewhere = elsewhere?;
    if elsewhere == identity {
        // bound since the first of the two reads, or at another node
        return Ok(Decision::Already(Details::None));
    }
    if elsewhere != Felt::ZERO {
        return refuse(
            Reason::AccountTaken,
            "the account is bound to another identity",
        );
    }
    checked?;
    let registry = state.io.pins().contracts.registry;
    Ok(Decision::call(
        registry,
        "register_identity",
        vec![identity, account],
    ))
}

/// `POST /recovery-propose`: proposes another account for an identity, and starts the delay. The
/// account may be deployed until the recovery is executed: its address follows from its key.
pub(super) async fn propose(
    propose: &RecoveryPropose,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let RecoveryPropose {
        identity,
        new_account,
        ..
    } = *propose;
    if let Some(pending) = state.recovery_of(identity).await? {
        let details = pending.details();
        if pending.new_account == new_account {
            return Ok(Decision::Already(details));
        }
        let message = "another recovery of the identity is pending";
        return Err(NotSent::Denied {
            reason: Reason::RecoveryPending,
            message,
            details,
        });
    }
    let (account, elsewhere, checked) = join3(
        state.account_of(identity),
        state.identity_of(new_account),
        state.check_class(new_account),
    )
    .await;
    if account? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the identity is bound to no account");
    }
    if elsewhere? != Felt::ZERO {
        return refuse(
            Reason::AccountTaken,
            "the new account is bound to an identity",
        );
    }
    checked?;
    let registry = state.io.pins().contracts.registry;
    Ok(Decision::call(
        registry,
        "recovery_propose",
        vec![identity, new_account],
    ))
}

/// `POST /recovery-execute`: completes a recovery after its delay, to an account that is deployed.
pub(super) async fn execute(
    execute: &RecoveryExecute,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let identity = execute.identity;
    let pending = state.pending_recovery(identity).await?;
    let (now, elsewhere) = join(state.chain_time(), state.identity_of(pending.new_account)).await;
    if now? < pending.ready_at {
        return Err(NotSent::Denied {
            reason: Reason::RecoveryNotReady,
            message: "the recovery's delay is not over",
            details: pending.details(),
        });
    }
    let elsewhere = elsewhere?;
    if elsewhere == identity {
        // completed since the first of the two reads, or at another node
        return Err(NotSent::RecoveryNotPending);
    }
    if elsewhere != Felt::ZERO {
        return refuse(
            Reason::AccountTaken,
            "the new account was bound to an identity in the meantime",
        );
    }
    state.check_account(pending.new_account).await?;
    let registry = state.io.pins().contracts.registry;
    Ok(Decision::call(registry, "recovery_execute", vec![identity]))
}

/// The account that the identity is bound to; `None` until the recovery is gone.
pub(super) async fn executed(
    execute: &RecoveryExecute,
    state: &State<'_, impl Io>,
) -> Result<Option<Details>, NotSent> {
    let identity = execute.identity;
    let (pending, account) =
        try_join(state.recovery_of(identity), state.account_of(identity)).await?;
    let binding = Details::Binding {
        account: account.to_string(),
    };
    Ok(pending.is_none().then_some(binding))
}

/// `POST /recovery-cancel`: cancels a pending recovery, within the configured window.
pub(super) async fn cancel(
    cancel: &RecoveryCancel,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let identity = cancel.identity;
    let pending = state.pending_recovery(identity).await?;
    let ([delay], now) =
        try_join(state.registry("recovery_delay", &[]), state.chain_time()).await?;
    let proposed_at = pending
        .ready_at
        .saturating_sub(delay.to_u64().ok_or(CallError::MalformedAnswer)?);
    let window = state.io.settings().recovery_cancel_window.as_secs();
    if now > proposed_at.saturating_add(window) {
        return refuse(
            Reason::RecoveryNotCancellable,
            "the recovery was proposed too long ago to be cancelled",
        );
    }
    Ok(Decision::call(
        state.io.pins().contracts.registry,
        "recovery_cancel",
        vec![identity],
    ))
}

/// Empty details; `None` until the recovery is gone.
pub(super) async fn cancelled(
    cancel: &RecoveryCancel,
    state: &State<'_, impl Io>,
) -> Result<Option<Details>, NotSent> {
    Ok(state
        .recovery_of(cancel.identity)
        .await?
        .is_none()
        .then_some(Details::None))
}
