//! Operations that give something to an account: cards, usership results, drips.

use super::state::{Decision, State};
use crate::felt::Felt;
use crate::ledger::{Binding, Intent, IntentState};
use crate::operation::{FaucetDrip, MintCard, Operation, OperationKind, SubmitUsership};
use crate::tx::{Call, selector};
use crate::txm::io::{Called, Io, Stored};
use crate::txm::node::{CallError, token_balance};
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::txm::settings::Role;
use crate::verdict::Reason;
use crate::window::Window;
use alloc::boxed::Box;
use alloc::vec;
use futures_util::future::{join3, try_join, try_join3};

/// The most proposals of an identity that are read for one drip: more within a cooldown are no use.
const MAX_PROPOSALS: usize = 16;

/// `POST /mint-card`: mints a card, only once, to a verified account.
pub(super) async fn mint_card(
    mint: &MintCard,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let MintCard { recipient, card_id } = *mint;
    let card = state.io.pins().contracts.card;
    let id = card_id.felts();
    let ([first], [owner]) = try_join(
        state.view(card, "minted_to", &id),
        state.view(card, "owner_of", &id),
    )
    .await?;
    // true also of the first owner of a card that changed hands
    if recipient == first || recipient == owner {
        return Ok(Decision::Already(Details::None));
    }
    if first != Felt::ZERO {
        return refuse(
            Reason::AlreadyMinted,
            "the card was minted to another account",
        );
    }
    let [verified] = state.registry("is_verified", &[recipient]).await?;
    if verified == Felt::ZERO {
        return refuse(Reason::NotVerified, "the recipient is not verified");
    }
    let [low, high] = id;
    Ok(Decision::call(card, "mint", vec![recipient, low, high]))
}

/// `POST /submit-usership`: submits an account's result of an epoch, once.
pub(super) async fn submit_usership(
    submit: &SubmitUsership,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let usership = state.io.pins().contracts.usership;
    let of = [submit.account, Felt::from(submit.epoch)];
    let result = [Felt::from(submit.units), submit.evidence];
    let found: [Felt; 2] = state.view(usership, "usership_of", &of).await?;
    if found == result {
        return Ok(Decision::Already(Details::None));
    }
    if found != [Felt::ZERO; 2] {
        return refuse(
            Reason::UsershipConflict,
            "another result was submitted for the epoch",
        );
    }
    if state.identity_of(submit.account).await? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the account is bound to no identity");
    }
    Ok(Decision::call(
        usership,
        "submit_usership",
        [of, result].concat(),
    ))
}

/// `POST /faucet-drip`: pays a fixed amount to an identity's account, which may not exist yet.
///
/// The chain does not record drips, so the store has the binding and the cooldown, and decides on
/// them finally when the intent is stored. For an identity that the registry binds, the registry
/// decides. It also pays the new account of the identity's pending recovery, which has to be
/// deployed before the recovery is executed.
pub(super) async fn faucet_drip(
    drip: &FaucetDrip,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let FaucetDrip {
        identity,
        recipient,
        ..
    } = *drip;
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
    let is_recovery = is_elsewhere && is_recovered_to(drip, state).await?;
    let registry = Registry {
        account: registered,
        identity: bound,
        is_recovery,
    };
    // the store decides again when the intent is stored, where it is known whose nonce it takes
    match registry.binding(drip) {
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
pub(in crate::txm) fn check_binding(binding: Binding) -> Result<(), NotSent> {
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
