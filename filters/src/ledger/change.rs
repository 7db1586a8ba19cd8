//! Changes of an intent, and the other changes that follow from each.

use super::binding::{self, Bound, Rebinding};
use super::budget::gfri;
use super::intent::{Inclusion, Intent, IntentId};
use super::state::IntentState;
use crate::felt::Felt;
use alloc::borrow::ToOwned;
use alloc::vec::Vec;

/// The detail of an intent whose slot another has taken on the chain.
const TAKEN: &str = "another transaction of its nonce was included";
/// The detail of a sent intent that is sent once more.
const AGAIN: &str = "it is sent again";
/// The detail of a lost intent that may return.
const UNWITNESSED: &str = "the transaction that took its nonce is displaced";

/// A change of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// The intent is about to be sent again. From now on its first sender cannot record it as not
    /// sent.
    SentAgain,
    /// The node accepted the intent's transaction.
    Accepted,
    /// The chain has the intent's transaction.
    Included {
        /// The result of its execution; the reason if it reverted.
        outcome: Result<(), Option<&'a str>>,
        /// Its fee in fri, if that is known.
        fee: Option<u128>,
        /// The accepted block that lists it.
        block: Option<Inclusion>,
    },
    /// Nothing was or will be sent, for this reason.
    Rejected(&'a str),
    /// The node refused it after it was sent, or has not shown it for long, for this reason. That
    /// is doubt and no proof: it may have been delivered twice.
    Doubted(&'a str),
    /// The chain no longer shows it, or never did.
    Displaced {
        /// The block that it is gone from. If another one was seen to list it since, nothing is
        /// known against that.
        from: Option<Inclusion>,
        /// The reason.
        why: &'a str,
    },
    /// A settled block has another transaction of its slot; which.
    Lost(&'a str),
}

impl Change<'_> {
    /// The state of the intent after the change.
    #[must_use]
    pub const fn state(&self) -> IntentState {
        match self {
            Self::SentAgain => IntentState::Sent,
            Self::Accepted => IntentState::Accepted,
            Self::Included {
                outcome: Ok(()), ..
            } => IntentState::Succeeded,
            Self::Included {
                outcome: Err(_), ..
            } => IntentState::Reverted,
            Self::Rejected(_) => IntentState::Rejected,
            Self::Doubted(_) | Self::Displaced { .. } => IntentState::Displaced,
            Self::Lost(_) => IntentState::Lost,
        }
    }

    fn detail(&self) -> Option<&str> {
        match self {
            Self::SentAgain => Some(AGAIN),
            Self::Accepted
            | Self::Included {
                outcome: Ok(()), ..
            } => None,
            Self::Included {
                outcome: Err(reason),
                ..
            } => *reason,
            Self::Rejected(why)
            | Self::Doubted(why)
            | Self::Displaced { why, .. }
            | Self::Lost(why) => Some(why),
        }
    }
}

/// An intent after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedIntent {
    /// The intent.
    pub intent: Intent,
    /// Whether the answers that were stored under its keys no longer hold.
    pub withdraws: bool,
}

/// The changes of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// The changes in the order to write them, so that no two intents ever have the nonce.
    pub steps: Vec<ChangedIntent>,
    before: Vec<Intent>,
    after: Vec<Intent>,
}

impl Steps {
    /// The identities and recipients whose bindings may change; mostly none.
    #[must_use]
    pub fn of_interest(&self) -> Vec<(Option<Felt>, Felt)> {
        binding::of_interest(&self.before, &self.after)
    }

    /// How the bindings change.
    #[must_use]
    pub fn rebind(&self, bound: &[Bound]) -> Vec<Rebinding> {
        binding::of_slot(&self.after, bound)
    }
}

/// Computes the effects of a change of an intent. `intents` are those of its slot, and all that
/// have the digest of one of these. `None` if the intent's state does not allow the change.
#[must_use]
pub fn change(id: IntentId, change: &Change<'_>, intents: &[Intent], now_us: i64) -> Option<Steps> {
    let intent = intents.iter().find(|intent| intent.id == id)?;
    if !is_allowed(intent, change, intents) {
        return None;
    }
    let moved = |intent: &Intent, state, detail: Option<&str>| {
        let detail = detail.map(ToOwned::to_owned);
        ChangedIntent::of(
            intent,
            Intent {
                state,
                detail,
                updated_us: now_us,
                ..intent.clone()
            },
        )
    };
    let mut step = moved(intent, change.state(), change.detail());
    let mut steps = Vec::new();
    let others = || {
        intents
            .iter()
            .filter(|it| it.id != id && it.slot() == intent.slot())
    };
    if let Change::Included { fee, block, .. } = change {
        let is_costly = intent.fee_gfri > 0;
        let fee = fee.filter(|_| is_costly).map(gfri);
        step.intent.fee_gfri = fee.unwrap_or(intent.fee_gfri);
        step.intent.included = block.or(intent.included);
        // a chain has one transaction of a slot
        let others = others().filter(|other| other.state.occupies());
        steps.extend(others.map(|other| moved(other, IntentState::Displaced, Some(TAKEN))));
    }
    steps.push(step);
    if matches!(change, Change::Displaced { .. }) {
        let lost = others().filter(|other| other.state == IntentState::Lost);
        let mut lost: Vec<_> = lost
            .filter(|lost| !is_written_anew(lost, intents))
            .collect();
        // one intent represents a transaction: this one, or else the newest
        lost.sort_by_key(|it| core::cmp::Reverse(it.id));
        for it in lost {
            let mut standing = steps.iter().map(|step| step.intent.transaction_hash);
            if !standing.any(|hash| hash == it.transaction_hash) {
                steps.push(moved(it, IntentState::Displaced, Some(UNWITNESSED)));
            }
        }
    }
    let slot = |it: &&Intent| it.slot() == intent.slot();
    let before: Vec<Intent> = intents.iter().filter(slot).cloned().collect();
    let last = |it: &Intent| steps.iter().find(|step| step.intent.id == it.id);
    let after = before
        .iter()
        .map(|it| last(it).map_or(it, |step| &step.intent).clone())
        .collect();
    Some(of_slot(steps, before, after))
}

/// The changes of a slot, with its intents before and after them.
fn of_slot(steps: Vec<ChangedIntent>, before: Vec<Intent>, after: Vec<Intent>) -> Steps {
    let occupants = |slot: &[Intent]| slot.iter().filter(|it| it.state.occupies()).count();
    debug_assert!(
        occupants(&after) <= occupants(&before).max(1),
        "a chain has one transaction of a slot"
    );
    Steps {
        steps,
        before,
        after,
    }
}

impl ChangedIntent {
    /// Whether the journal gets an entry: sending a transaction again changes no state, and adds
    /// none.
    #[must_use]
    pub fn has_entry(&self) -> bool {
        !self.intent.is_sent_again()
    }

    fn of(before: &Intent, intent: Intent) -> Self {
        debug_assert_eq!(before.slot(), intent.slot(), "a change moves no intent");
        debug_assert!(
            before.state.may_become(intent.state),
            "{:?} becomes {:?}",
            before.state,
            intent.state
        );
        // an answer outlives a doubt, which may end as it began, but no other end
        let is_doubt = matches!(intent.state, IntentState::Displaced);
        let is_other = !before.state.is_unresolved() && before.state != intent.state;
        let withdraws = !intent.state.holds() || (is_other && !is_doubt);
        Self { intent, withdraws }
    }
}

fn is_allowed(intent: &Intent, change: &Change<'_>, intents: &[Intent]) -> bool {
    let next = change.state();
    if !intent.state.may_become(next) {
        return false;
    }
    let mut others = intents
        .iter()
        .filter(|it| it.id != intent.id && it.epoch == intent.epoch);
    match change {
        Change::Included { block, .. } if intent.state == next => {
            block.is_some_and(|block| intent.included != Some(block))
        }
        // the same transaction was stored again: the newer intent represents it
        _ if !intent.state.holds() && next.holds() => {
            !others.any(|it| it.state.holds() && it.transaction_hash == intent.transaction_hash)
        }
        Change::Displaced {
            from: Some(from), ..
        } => intent.included == Some(*from),
        // a block that lists it outweighs any refusal
        Change::Doubted(_) => intent.state.is_unresolved(),
        // whichever of the two comes first is applied, and only once
        Change::SentAgain | Change::Rejected(_) => !intent.is_sent_again(),
        // another intent may have its slot or its request by now
        Change::Accepted => !others.any(|it| {
            let is_open_equal = it.state.is_unresolved() && it.digest == intent.digest;
            is_open_equal || (it.state.occupies() && it.slot() == intent.slot())
        }),
        _ => true,
    }
}

/// Whether a lost intent is only watched: its request has a newer intent in another slot, or a
/// newer intent represents the same transaction.
fn is_written_anew(lost: &Intent, intents: &[Intent]) -> bool {
    let mut newer = intents
        .iter()
        .filter(|it| it.id > lost.id && it.state.holds());
    newer.any(|it| {
        let is_anew =
            it.epoch == lost.epoch && it.digest == lost.digest && it.slot() != lost.slot();
        is_anew || it.transaction_hash == lost.transaction_hash
    })
}
