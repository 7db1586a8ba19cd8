//! The faucet's bindings: an identity has one recipient, and a recipient one identity, from the
//! first drip until the chain starts over, or until no drip holds them.
//!
//! Within a slot, the transaction on the chain decides. Without one, the newest holder does. The
//! older ones, which are in doubt, bind nobody within the slot; in every other one they do, since
//! the chain may still have them.

use super::FAUCET_DRIP;
use super::intent::{Intent, IntentId, NewIntent};
use crate::felt::Felt;
use alloc::vec::Vec;

/// Whether an identity and a recipient are bound to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Neither is bound to another one.
    Bound,
    /// The identity is bound to another recipient.
    IdentityElsewhere,
    /// The recipient is bound to another identity.
    RecipientElsewhere,
}

/// An identity and a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The identity.
    pub identity: Felt,
    /// The recipient.
    pub recipient: Felt,
}

impl Pair {
    /// Whether the two pairs cannot both be bound.
    fn excludes(self, other: Self) -> bool {
        self != other && (self.identity == other.identity || self.recipient == other.recipient)
    }

    /// Whether this pair is bound, or can be, next to the pairs in `bound`.
    pub fn binding(self, bound: impl IntoIterator<Item = Self>) -> Binding {
        let mut binding = Binding::Bound;
        for other in bound.into_iter().filter(|other| other.excludes(self)) {
            if other.identity == self.identity {
                return Binding::IdentityElsewhere;
            }
            binding = Binding::RecipientElsewhere;
        }
        binding
    }
}

/// A pair with a binding in force, or with a drip in doubt that may come back for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The identity and the recipient.
    pub pair: Pair,
    /// Whether its binding is in force.
    pub is_in_force: bool,
    /// Whether a drip of another slot than the one in question holds it.
    pub is_held: bool,
}

/// A change of the bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebinding {
    /// The pair is no longer bound.
    Release(Pair),
    /// The pair is bound.
    Bind(Pair),
}

/// The bindings that a new intent makes.
///
/// # Errors
/// Returns which of its identity and its subject is bound elsewhere.
pub(super) fn of_new(new: &NewIntent<'_>, bound: &[Bound]) -> Result<Vec<Rebinding>, Binding> {
    let Some((identity, recipient)) = new.identity.zip(new.subject) else {
        return Ok(Vec::new());
    };
    let pair = Pair {
        identity,
        recipient,
    };
    let held = bound
        .iter()
        .filter(|bound| bound.is_held)
        .map(|bound| bound.pair);
    match pair.binding(held) {
        Binding::Bound => {}
        elsewhere => return Err(elsewhere),
    }
    let mut changes = released(bound, |other| other.excludes(pair));
    if !in_force(bound).any(|bound| bound == pair) {
        changes.push(Rebinding::Bind(pair));
    }
    Ok(changes)
}

fn in_force(bound: &[Bound]) -> impl Iterator<Item = Pair> {
    let in_force = bound.iter().filter(|bound| bound.is_in_force);
    in_force.map(|bound| bound.pair)
}

fn released(bound: &[Bound], is_released: impl Fn(Pair) -> bool) -> Vec<Rebinding> {
    in_force(bound)
        .filter(|pair| is_released(*pair))
        .map(Rebinding::Release)
        .collect()
}

/// The changes of bindings when these are the intents of a slot. A pair stays bound while one of
/// them, or a drip of another slot, holds it; an intent that is on the chain comes first.
pub(super) fn of_slot(slot: &[Intent], bound: &[Bound]) -> Vec<Rebinding> {
    let mut claims: Vec<&Intent> = slot.iter().filter(|intent| is_drip(intent)).collect();
    claims.sort_by_key(|intent| (!intent.state.occupies(), core::cmp::Reverse(intent.id)));
    let kept = bound.iter().filter(|it| it.is_in_force && it.is_held);
    let mut kept: Vec<Pair> = kept.map(|it| it.pair).collect();
    for pair in claims.into_iter().filter_map(|it| pair_of(it, bound)) {
        let mut kept_before = kept.iter();
        if !kept_before.any(|other| *other == pair || other.excludes(pair)) {
            kept.push(pair);
        }
    }
    debug_assert!(
        kept.iter()
            .all(|pair| !kept.iter().any(|other| other.excludes(*pair))),
        "an identity has one recipient, and a recipient one identity"
    );
    let mut changes = released(bound, |pair| !kept.contains(&pair));
    let is_new = |pair: &Pair| !in_force(bound).any(|bound| bound == *pair);
    changes.extend(kept.into_iter().filter(is_new).map(Rebinding::Bind));
    changes
}

/// The identity and the recipient that an intent binds. An intent of an earlier version has only
/// the recipient: its identity is looked up in `bound`.
fn pair_of(intent: &Intent, bound: &[Bound]) -> Option<Pair> {
    let recipient = intent.subject?;
    match intent.identity {
        Some(identity) => Some(Pair {
            identity,
            recipient,
        }),
        None => in_force(bound).find(|pair| pair.recipient == recipient),
    }
}

fn is_drip(intent: &Intent) -> bool {
    intent.state.holds() && intent.operation == FAUCET_DRIP
}

/// The identities and recipients whose bindings may differ between `before` and `after`, the
/// intents of a slot. Empty if no binding changes.
pub(super) fn of_interest(before: &[Intent], after: &[Intent]) -> Vec<(Option<Felt>, Felt)> {
    let holders = |slot: &[Intent]| -> Vec<(IntentId, bool)> {
        let drips = slot.iter().filter(|intent| is_drip(intent));
        drips
            .map(|intent| (intent.id, intent.state.occupies()))
            .collect()
    };
    let are_same = match (holders(before).as_slice(), holders(after).as_slice()) {
        // a lone drip holds its binding whether or not it has its nonce
        ([(before, _)], [(after, _)]) => before == after,
        (before, after) => before == after,
    };
    if are_same {
        return Vec::new();
    }
    let drips = after
        .iter()
        .filter(|intent| intent.operation == FAUCET_DRIP);
    drips
        .filter_map(|intent| Some((intent.identity, intent.subject?)))
        .collect()
}
