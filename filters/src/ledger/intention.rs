//! Decides whether a signed transaction is stored.

use super::binding::{self, Binding, Bound, Rebinding};
use super::budget::{self, OverBudget};
use super::intent::{Intent, IntentId, NewIntent};
use super::key::{self, Key};
use super::state::IntentState;
use crate::window::{self, Window};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The outcome of an attempt to store an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intended {
    /// Stored as sent: the transaction may be sent now. If it is not, the intent must be rejected.
    New(IntentId),
    /// The transaction is stored already, or an equal request has one: send nothing.
    Known(Box<Intent>),
    /// The key belongs to another request: send nothing.
    KeyConflict,
    /// This transaction of the signer has the nonce: read the nonce again and sign again.
    NonceTaken(Box<Intent>),
    /// The subject or its identity is bound elsewhere: send nothing.
    Elsewhere(Binding),
    /// The relays of the store write to another chain.
    OtherChain,
    /// The intent exceeds a budget, together with what was spent within 24 hours.
    OverBudget(OverBudget),
    /// The subject's cooldown is not over.
    TooSoon {
        /// The intent that started the cooldown.
        last: Box<Intent>,
        /// When the cooldown is over, in microseconds since 1970.
        until_us: i64,
    },
}

/// Facts of the journal that a new intent may conflict with. A displaced intent of the new one's
/// slot is left out of `last` and `drip_us`, and holds no binding here.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The epoch in force.
    pub epoch: Option<String>,
    /// The new intent's key.
    pub key: Option<Key>,
    /// The intents with its hash, its slot or its digest, the one that its key is linked to, and
    /// `last`.
    pub intents: Vec<Intent>,
    /// The newest intent within the cooldown that has its operation and its subject, leaving out
    /// rejected, lost and reverted ones.
    pub last: Option<Intent>,
    /// The bindings of its identity and its subject, and the pairs with one of them that drips in
    /// doubt may bind again.
    pub bound: Vec<Bound>,
    /// When the n-th newest drip of a day was stored, where n is the budget; `None` with fewer.
    pub drip_us: Option<i64>,
    /// The sum of a day's fees, in gfri.
    pub fees_gfri: i64,
    /// The fees of a day by minute, in gfri; read only if they are over the budget.
    pub minutes: Vec<(i64, i64)>,
    /// The date of the newest intent. One that [`ahead_after_us`] excludes is dated anew first.
    pub newest_us: Option<i64>,
}

impl Facts {
    /// Whether they are about this intent: each of the others has its hash, its slot, its digest or
    /// its key, or started its cooldown, which is of one operation and one subject.
    #[must_use]
    pub fn are_of(&self, new: &NewIntent<'_>) -> bool {
        let linked = self.key.as_ref().and_then(|key| key.intent);
        let last = self.last.as_ref();
        let are_related = self.intents.iter().all(|it| {
            it.transaction_hash == new.transaction_hash
                || it.slot() == new.slot()
                || it.digest == new.digest
                || linked == Some(it.id)
                || last.is_some_and(|last| last.id == it.id)
        });
        are_related
            && last.is_none_or(|it| it.operation == new.operation && it.subject == new.subject)
    }

    /// Whether the fees by minute are needed.
    #[must_use]
    pub fn need_minutes(&self, new: &NewIntent<'_>, now_us: i64) -> bool {
        budget::is_over_fees(new, self, now_us)
    }

    /// The displaced intents of the new one's slot, which do not bind it.
    pub(super) fn yielding(&self, new: &NewIntent<'_>) -> impl Iterator<Item = &Intent> {
        let slot = new.slot();
        let yields = move |it: &&Intent| it.state == IntentState::Displaced && it.slot() == slot;
        self.intents.iter().filter(yields)
    }
}

/// The instant after which intents have to be dated anew, if the newest is dated after it. Each
/// decision dates them first, so that no older one is dated ahead if the newest is not.
#[must_use]
pub fn ahead_after_us(newest_us: Option<i64>, now_us: i64) -> Option<i64> {
    let after_us = window::ahead_after_us(now_us)?;
    newest_us.filter(|newest| *newest > after_us)?;
    Some(after_us)
}

/// The changes that an attempt to store an intent makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intention {
    /// The intent is stored as sent, with these bindings, and its key names it.
    Insert(Vec<Rebinding>),
    /// The intent is not stored. At most its key is linked to an earlier one.
    Refuse {
        /// The reply.
        reply: Intended,
        /// The intent that its key names from now on.
        link: Option<IntentId>,
    },
}

impl Intention {
    fn refuse(reply: Intended) -> Self {
        Self::Refuse { reply, link: None }
    }
}

/// Decides whether a new intent is stored. The first rule that forbids it gives the reply.
#[must_use]
pub fn intention(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Intention {
    if facts.epoch.as_ref().is_some_and(|epoch| epoch != new.epoch) {
        return Intention::refuse(Intended::OtherChain);
    }
    if facts
        .key
        .as_ref()
        .is_some_and(|key| !key.is_of(new.operation, &new.digest))
    {
        return Intention::refuse(Intended::KeyConflict);
    }
    if let Some(known) = answering(new, facts) {
        let may_link = known.operation == new.operation && key::may_link(linked(facts), known);
        let link = new.idempotency_key.filter(|_| may_link).map(|_| known.id);
        return Intention::Refuse {
            reply: Intended::Known(Box::new(known.clone())),
            link,
        };
    }
    if let Some(taken) = occupant(new, facts) {
        return Intention::refuse(Intended::NonceTaken(Box::new(taken.clone())));
    }
    let bindings = match binding::of_new(new, &facts.bound) {
        Ok(bindings) => bindings,
        Err(elsewhere) => return Intention::refuse(Intended::Elsewhere(elsewhere)),
    };
    if let Some(too_soon) = too_soon(new, facts, now_us) {
        return Intention::refuse(too_soon);
    }
    if let Some(over) = budget::over(new, facts, now_us) {
        return Intention::refuse(Intended::OverBudget(over));
    }
    Intention::Insert(bindings)
}

/// The stored intent whose outcome is also that of the new one: the one that the key names, else
/// the same transaction of an equal request, else the newest open or doubtful one of an equal
/// request. Never the one that the new one replaces.
fn answering<'f>(new: &NewIntent<'_>, facts: &'f Facts) -> Option<&'f Intent> {
    let holding = || facts.intents.iter().filter(|intent| intent.state.holds());
    let equal = || holding().filter(|it| it.epoch == new.epoch && it.digest == new.digest);
    let linked = linked(facts).filter(|it| it.state.holds() && !is_replaced(it, new));
    // two drips to one recipient make the same calls: the outcome of another body is not this one's
    let of_hash = || equal().find(|it| it.transaction_hash == new.transaction_hash);
    let open = || {
        let open = equal().filter(|it| !it.state.is_included() && !is_replaced(it, new));
        open.max_by_key(|intent| intent.id)
    };
    linked.or_else(of_hash).or_else(open)
}

/// The intent that the key names: it is of the key's own request, in its epoch.
fn linked(facts: &Facts) -> Option<&Intent> {
    let key = facts.key.as_ref()?;
    let id = key.intent?;
    let mut intents = facts.intents.iter();
    intents.find(|intent| intent.id == id && key.is_for(intent))
}

/// Whether the new intent replaces this one: it is still displaced, and the slot is the same.
fn is_replaced(intent: &Intent, new: &NewIntent<'_>) -> bool {
    new.replaces == Some(intent.id)
        && intent.state == IntentState::Displaced
        && intent.slot() == new.slot()
}

/// The intent that has the nonce, or this very transaction for another request.
fn occupant<'f>(new: &NewIntent<'_>, facts: &'f Facts) -> Option<&'f Intent> {
    let slot = new.slot();
    let occupies = |it: &&Intent| it.state.occupies() && it.slot() == slot;
    let is_same = |it: &&Intent| {
        it.state.holds() && it.epoch == new.epoch && it.transaction_hash == new.transaction_hash
    };
    let intents = || facts.intents.iter();
    intents().find(occupies).or_else(|| intents().find(is_same))
}

/// The refusal by the cooldown, if it is not over.
fn too_soon(new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Option<Intended> {
    let cooldown = new.cooldown.filter(|_| new.subject.is_some())?;
    let cooldown = Window::new(
        now_us,
        i64::try_from(cooldown.as_micros()).unwrap_or(i64::MAX),
    );
    let last = facts.last.as_ref()?;
    debug_assert!(
        last.state.holds() && last.state != IntentState::Reverted,
        "{:?} starts no cooldown",
        last.state
    );
    let until_us = cooldown.forbids_until_us(last.created_us)?;
    Some(Intended::TooSoon {
        last: Box::new(last.clone()),
        until_us,
    })
}
