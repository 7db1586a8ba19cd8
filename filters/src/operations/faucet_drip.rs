//! `POST /faucet-drip`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Operation, OperationKind, Required, Role};
use crate::felt::Felt;
use crate::ledger::{Binding, Intent, IntentState};
use crate::rpc::json::Json;
use crate::tx::{Call, selector};
use crate::txm::io::{Called, Io, Stored};
use crate::txm::node::{CallError, token_balance};
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use crate::window::Window;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::{join3, try_join3};

/// The most proposals of an identity that are read for one drip: more within a cooldown are no use.
const MAX_PROPOSALS: usize = 16;

/// `POST /faucet-drip`: pays a fixed amount to an identity's account, which may not exist yet.
///
/// The chain does not record drips, so the store has the binding and the cooldown, and decides on
/// them finally when the intent is stored. For an identity that the registry binds, the registry
/// decides. It also pays the new account of the identity's pending recovery, which has to be
/// deployed before the recovery is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaucetDrip {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The identity's account, deployed or not.
    pub recipient: Felt,
    /// The key that the recipient's address follows from.
    pub public_key: Felt,
}

impl Definition for FaucetDrip {
    const ROLE: Role = Role::Faucet;
    const REQUIRED: Required = Required::Drip;
    const IS_DRIP: bool = true;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [identity, recipient, public_key] =
            required_members(body, ["identity", "recipient", "public_key"])?;
        Ok(Self {
            identity: identity.not_zero()?,
            recipient: recipient.address()?,
            public_key: public_key.public_key()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("identity", Value::Felt(&self.identity)),
            ("recipient", Value::Felt(&self.recipient)),
            ("public_key", Value::Felt(&self.public_key)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        policy.belongs("recipient", self.recipient, self.public_key)
    }

    /// The recipient, which the cooldown is of.
    fn subject(&self) -> Option<Felt> {
        Some(self.recipient)
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let Self {
            identity,
            recipient,
            ..
        } = *self;
        let (io, settings) = (state.io, state.io.settings());
        let cooldown = i64::try_from(settings.faucet_cooldown.as_micros()).unwrap_or(i64::MAX);
        let cooldown = Window::new(state.now_us, cooldown);
        let last = last_drip(state, recipient, cooldown);
        let chain = try_join3(
            state.account_of(identity),
            state.identity_of(recipient),
            balance(state, *io.pins().accounts.of(Role::Faucet)),
        );
        let stored = io.binding(state.epoch, identity, recipient);
        let (chain, stored, last) = join3(chain, stored, last).await;
        let (registered, bound, balance) = chain?;
        let is_elsewhere = registered != Felt::ZERO && registered != recipient;
        let is_recovery = is_elsewhere && is_recovered_to(self, state).await?;
        let registry = Registry {
            account: registered,
            identity: bound,
            is_recovery,
        };
        // the store decides again when the intent is stored, where it is known whose nonce it takes
        match registry.binding(self) {
            Some(binding) => check_binding(binding)?,
            None if state.is_in_doubt => {}
            None => check_binding(stored?)?,
        }
        if !state.is_in_doubt {
            check_cooldown(last?, cooldown, state.now_us)?;
        }
        if is_recovery {
            let last = last_recovery_drip(identity, state, cooldown).await?;
            check_cooldown(last, cooldown, state.now_us)?;
        }
        if balance < settings.drip_cost() {
            return Err(NotSent::FaucetEmpty);
        }
        let amount = [Felt::from(settings.faucet_amount), Felt::ZERO];
        let args = [[recipient].as_slice(), &amount].concat();
        let call = Call {
            to: state.io.pins().contracts.token,
            selector: selector("transfer"),
            args,
        };
        // if the registry has bound them for good, the store need not; a recovery binds them later
        let is_registered = registered == recipient || is_recovery;
        let calls = vec![call];
        Ok(if is_registered {
            Decision::Write(calls)
        } else {
            Decision::Bind(identity, calls)
        })
    }

    /// Reads nothing: a drip only changes a balance, which may already be spent.
    async fn read_back(&self, _state: &State<'_, impl Io>) -> Result<Option<Details>, NotSent> {
        Ok(Some(Details::None))
    }
}

/// The entries of the registry for a drip.
struct Registry {
    /// The account of its identity, or zero.
    account: Felt,
    /// The identity of its recipient, or zero.
    identity: Felt,
    /// Whether a recovery of the identity to the recipient is pending.
    is_recovery: bool,
}

impl Registry {
    /// Whether it binds the identity and the recipient to each other; `None` if the store decides.
    fn binding(&self, drip: &FaucetDrip) -> Option<Binding> {
        let is_elsewhere = self.account != Felt::ZERO && self.account != drip.recipient;
        if self.account == drip.recipient {
            Some(Binding::Bound)
        } else if is_elsewhere && !self.is_recovery {
            Some(Binding::IdentityElsewhere)
        } else if self.identity == drip.identity {
            // registered since the first of the two reads, or at another node
            Some(Binding::Bound)
        } else if self.identity != Felt::ZERO {
            Some(Binding::RecipientElsewhere)
        } else if self.is_recovery {
            Some(Binding::Bound)
        } else {
            None
        }
    }
}

/// Whether a recovery of the identity to the recipient is pending.
async fn is_recovered_to(drip: &FaucetDrip, state: &State<'_, impl Io>) -> Called<bool> {
    let pending = state.recovery_of(drip.identity).await?;
    Ok(pending.is_some_and(|pending| pending.new_account == drip.recipient))
}

/// The newest drip to a recipient within its cooldown.
async fn last_drip(
    state: &State<'_, impl Io>,
    recipient: Felt,
    cooldown: Window,
) -> Stored<Option<Intent>> {
    let operation = OperationKind::FaucetDrip.name();
    let last = state
        .io
        .last_of(operation, recipient, state.epoch, cooldown);
    last.await
}

/// The newest drip, within the cooldown, to an account that was proposed for this identity. So an
/// identity with one proposal after the other is paid once, too. Only the faucet's next drip asks,
/// which holds its account: no other one is stored meanwhile. One in doubt is left out, since this
/// one may take its nonce.
async fn last_recovery_drip(
    identity: Felt,
    state: &State<'_, impl Io>,
    cooldown: Window,
) -> Result<Option<Intent>, NotSent> {
    let operation = OperationKind::RecoveryPropose.name();
    let mut proposed = cooldown;
    for _ in 0..MAX_PROPOSALS {
        let proposal = state
            .io
            .last_of(operation, identity, state.epoch, proposed)
            .await?;
        let Some(proposal) = proposal else {
            return Ok(None);
        };
        if let Some(account) = proposed_account(&proposal)
            && let Some(drip) = last_drip(state, account, cooldown).await?
            && !(state.is_in_doubt && drip.state == IntentState::Displaced)
        {
            return Ok(Some(drip));
        }
        proposed = Window::between(cooldown.after_us(), proposal.created_us.saturating_sub(1));
    }
    refuse(
        Reason::FaucetCooldown,
        "too many recoveries of the identity were proposed within the cooldown",
    )
}

/// The account that a journaled proposal names.
fn proposed_account(proposal: &Intent) -> Option<Felt> {
    let body = proposal.request.as_bytes();
    match Operation::parse(OperationKind::RecoveryPropose, body) {
        Ok(Operation::RecoveryPropose(propose)) => Some(propose.new_account),
        _ => None,
    }
}

/// Refuses a drip while the cooldown after an earlier one is not over.
fn check_cooldown(last: Option<Intent>, cooldown: Window, now_us: i64) -> Result<(), NotSent> {
    if let Some(earlier) = last
        && let Some(until_us) = cooldown.forbids_until_us(earlier.created_us)
    {
        return Err(NotSent::TooSoon {
            last: Box::new(earlier),
            until_us,
            now_us,
        });
    }
    Ok(())
}

/// The token balance of an account, in fri.
async fn balance(state: &State<'_, impl Io>, account: Felt) -> Result<u128, CallError> {
    let token = state.io.pins().contracts.token;
    let result = state
        .io
        .call(token, selector("balance_of"), &[account])
        .await?;
    token_balance(&result).ok_or(CallError::MalformedAnswer)
}

/// Refuses a drip whose identity or recipient is bound elsewhere.
pub(crate) fn check_binding(binding: Binding) -> Result<(), NotSent> {
    match binding {
        Binding::Bound => Ok(()),
        Binding::IdentityElsewhere => refuse(
            Reason::IdentityTaken,
            "the identity is bound to another recipient",
        ),
        Binding::RecipientElsewhere => refuse(
            Reason::AccountTaken,
            "the recipient is bound to another identity",
        ),
    }
}
