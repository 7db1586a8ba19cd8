//! Groups: commands that wait for the end of the journal together share one transaction.
//!
//! The facts of all new intents of a group are read at once, then decided one after the other, and
//! written. After that, the same happens to the changes of intents. [`Decisions`] postpones a
//! command to the next group if an earlier decision changed its facts since they were read, so each
//! decision sees the effects of all those before it. The first command is never postponed.
//!
//! One commit ends all. [`replied`] says how its result answers each command.

use super::budget::{self, DAY_US, MINUTE_US, gfri};
use super::change::{self, Change, Steps};
use super::intent::{Intent, IntentId, NewIntent};
use super::intention::{self, Facts, Intention};
use super::{FAUCET_DRIP, minutes};
use crate::felt::Felt;
use crate::window::Window;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// A group has at most this many commands: a database commits them within a fraction of its
/// timeout, and their arguments take a few megabytes.
pub const MAX_COMMANDS: usize = 64;

/// The decisions about commands of one kind whose facts were read at once.
#[derive(Debug, Default)]
pub struct Decisions {
    touched: BTreeSet<Touched>,
    fees: Vec<Fee>,
    /// Whether a change concerns bindings, which are read and written after the decision.
    is_closed: bool,
}

/// A fee that a decision adds to the sums of its epoch.
#[derive(Debug)]
struct Fee {
    epoch: String,
    at_us: i64,
    gfri: i64,
}

/// A subject of facts, in a chain epoch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    Slot(String, Felt, u64),
    Hash(String, Felt),
    Digest(String, [u8; 32]),
    Key(String, String),
    Subject(String, Felt),
    Identity(String, Felt),
    Drips(String),
}

impl Decisions {
    /// Decides whether a new intent is stored, as [`ledger::intention`](super::intention()) does.
    /// `None` if its facts, which were read before the first decision, have changed since.
    pub fn intention(
        &mut self,
        new: &NewIntent<'_>,
        facts: &Facts,
        now_us: i64,
    ) -> Option<Intention> {
        if facts_of(new).any(|fact| self.touched.contains(&fact)) {
            return None;
        }
        let facts = self.with_fees(new, facts, now_us)?;
        let intention = intention::intention(new, &facts, now_us);
        match &intention {
            Intention::Insert(_) => {
                self.touched.extend(effects_of(new));
                self.fees.push(Fee {
                    epoch: new.epoch.to_owned(),
                    at_us: now_us,
                    gfri: gfri(new.max_fee),
                });
            }
            Intention::Refuse { link: Some(_), .. } => self.touched.extend(key_of(new)),
            Intention::Refuse { link: None, .. } => {}
        }
        Some(intention)
    }

    /// Decides about a change of an intent, as [`ledger::change`](super::change()) does.
    pub fn change(
        &mut self,
        id: IntentId,
        change: &Change<'_>,
        intents: &[Intent],
        now_us: i64,
    ) -> Changing {
        let Some(intent) = intents.iter().find(|intent| intent.id == id) else {
            return Changing::Refused;
        };
        let slot = intents.iter().filter(|it| it.slot() == intent.slot());
        let touched: Vec<Touched> = slot.flat_map(of_intent).collect();
        if touched.iter().any(|fact| self.touched.contains(fact)) {
            return Changing::Postponed;
        }
        let Some(steps) = change::change(id, change, intents, now_us) else {
            return Changing::Refused;
        };
        let is_about_bindings = !steps.of_interest().is_empty();
        if self.is_closed || is_about_bindings && !self.touched.is_empty() {
            return Changing::Postponed;
        }
        self.is_closed = is_about_bindings;
        self.touched.extend(touched);
        Changing::Steps(steps)
    }

    /// The facts with the fees of the intents that were decided since they were read. `None` if
    /// only these use up the budget: then the fees by minute were not read.
    fn with_fees(&self, new: &NewIntent<'_>, facts: &Facts, now_us: i64) -> Option<Facts> {
        let mut facts = facts.clone();
        let were_read = facts.need_minutes(new, now_us);
        let [first, last] = minutes(Window::new(now_us, DAY_US));
        for fee in self.fees.iter().filter(|fee| fee.epoch == new.epoch) {
            let minute = fee.at_us.div_euclid(MINUTE_US);
            if !(first..=last).contains(&minute) {
                continue;
            }
            facts.fees_gfri = facts.fees_gfri.saturating_add(fee.gfri);
            match facts.minutes.iter_mut().find(|(at, _)| *at == minute) {
                Some((_, sum)) => *sum = sum.saturating_add(fee.gfri),
                None => facts.minutes.push((minute, fee.gfri)),
            }
        }
        if budget::is_over_fees(new, &facts, now_us) && !were_read {
            return None;
        }
        Some(facts)
    }
}

/// The facts that a new intent adds to.
fn effects_of(new: &NewIntent<'_>) -> impl Iterator<Item = Touched> {
    let epoch = || new.epoch.to_owned();
    let drips = if new.operation == FAUCET_DRIP {
        Some(Touched::Drips(epoch()))
    } else {
        None
    };
    [
        Touched::Slot(epoch(), new.signer, new.nonce),
        Touched::Hash(epoch(), new.transaction_hash),
        Touched::Digest(epoch(), new.digest),
    ]
    .into_iter()
    .chain(key_of(new))
    .chain(new.subject.map(|felt| Touched::Subject(epoch(), felt)))
    .chain(new.identity.map(|felt| Touched::Identity(epoch(), felt)))
    .chain(drips)
}

/// The facts that a new intent is decided by, without the fees, which are added up.
fn facts_of(new: &NewIntent<'_>) -> impl Iterator<Item = Touched> {
    let counts_subject = new.cooldown.is_some() || new.identity.is_some();
    let counts_drips = new.budgets.drips.is_some();
    effects_of(new).filter(move |fact| match fact {
        Touched::Subject(..) => counts_subject,
        Touched::Drips(_) => counts_drips,
        _ => true,
    })
}

fn key_of(new: &NewIntent<'_>) -> Option<Touched> {
    let key = new.idempotency_key?;
    Some(Touched::Key(new.epoch.to_owned(), key.to_owned()))
}

/// The facts that a changed intent is part of.
fn of_intent(intent: &Intent) -> [Touched; 2] {
    let epoch = || intent.epoch.clone();
    [
        Touched::Slot(epoch(), intent.signer, intent.nonce),
        Touched::Digest(epoch(), intent.digest),
    ]
}

/// The decision about a change of an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changing {
    /// It changes these intents.
    Steps(Steps),
    /// The state of the intent does not allow the change.
    Refused,
    /// An earlier decision changed its facts: a later group decides.
    Postponed,
}

/// The effect of a command on the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed.
    Nothing,
    /// A row changed.
    Changed,
    /// A transaction is stored as sent.
    Stored,
}

/// How the transaction of a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its commit was confirmed.
    Committed,
    /// Nothing of it is stored.
    RolledBack,
    /// Its commit was not answered: all of it is stored, or nothing.
    Unknown,
}

/// Why a command of a group has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    /// Repeating it is safe, and nothing may be sent.
    Failed,
    /// A transaction may be stored as sent.
    Unconfirmed,
}

/// The reply to a command with this effect, after the transaction of its group ended.
///
/// # Errors
/// The commit was not confirmed. Then each command of the group is as if it were alone.
pub fn replied(effect: Effect, ended: Ended) -> Result<(), NoReply> {
    match (ended, effect) {
        (Ended::Committed, _) => Ok(()),
        (Ended::Unknown, Effect::Stored) => Err(NoReply::Unconfirmed),
        (Ended::Unknown | Ended::RolledBack, _) => Err(NoReply::Failed),
    }
}
