//! Finds the intent of the journal that a request is about.

use super::outcome::Outcome;
use crate::ledger::{Intent, IntentState, Requested};
use crate::verdict::Reason;

/// The intent that a request is about, if there is one: that of its key, unless rejected or lost,
/// or else the newest of an equal request. If that one is included, it must have been written since
/// the request arrived, at `since_us`, or in the place of the key's intent.
#[must_use]
pub fn earlier(found: Requested, since_us: i64) -> Option<Intent> {
    let Requested { linked, newest } = found;
    if linked.as_ref().is_some_and(|linked| linked.state.holds()) {
        return linked;
    }
    newest.filter(|newest| {
        // the newest was in doubt, and what was signed in its place had no effect
        let is_replaced = linked.is_some_and(|linked| linked.slot() == newest.slot());
        !newest.state.is_included() || newest.created_us >= since_us || is_replaced
    })
}

/// Whether a repeat without a key was `refused` because the newest equal request has done what it
/// asks for: its drip started the cooldown, or it ended the recovery, and no other was `proposed`
/// since. The outcome of that one is then the answer, as if the repeat had a key.
#[must_use]
pub fn is_done(refused: &Outcome, newest: &Intent, proposed: Option<&Intent>) -> bool {
    if newest.state != IntentState::Succeeded {
        return false;
    }
    match refused.reason() {
        Some(Reason::FaucetCooldown) => refused.transaction_hash == Some(newest.transaction_hash),
        Some(Reason::RecoveryNotPending) => proposed.is_none_or(|proposed| proposed.id < newest.id),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::felt::Felt;
    use crate::ledger::IntentId;

    fn intent(id: i64, nonce: u64, state: IntentState) -> Option<Intent> {
        let created_us = 100;
        Some(Intent {
            id: IntentId(id),
            nonce,
            state,
            created_us,
            ..Intent::empty()
        })
    }

    fn found(linked: Option<Intent>, newest: Option<Intent>, since_us: i64) -> Option<i64> {
        earlier(Requested { linked, newest }, since_us).map(|intent| intent.id.0)
    }

    #[test]
    fn the_intent_of_its_key_comes_first_while_that_holds_anything() {
        for state in IntentState::ALL.iter().copied() {
            let expected = if state.holds() { 1 } else { 2 };
            let newest = intent(2, 8, IntentState::Sent);
            assert_eq!(
                found(intent(1, 7, state), newest, 200),
                Some(expected),
                "{state:?}"
            );
        }
    }

    #[test]
    fn an_equal_request_without_an_outcome_is_the_same_one() {
        for state in IntentState::ALL
            .iter()
            .copied()
            .filter(|state| state.holds())
        {
            let expected = (!state.is_included()).then_some(2);
            assert_eq!(found(None, intent(2, 7, state), 200), expected, "{state:?}");
        }
    }

    #[test]
    fn one_that_was_written_since_the_request_came_in_answers_it() {
        for (since_us, expected) in [(99, Some(2)), (100, Some(2)), (101, None)] {
            let newest = intent(2, 7, IntentState::Succeeded);
            assert_eq!(found(None, newest, since_us), expected, "{since_us}");
        }
    }

    #[test]
    fn a_repeat_is_answered_by_what_has_done_it() {
        let refused = |reason| Outcome {
            transaction_hash: Some(Felt::ZERO),
            ..Outcome::refused(reason, "")
        };
        let cooldown = refused(Reason::FaucetCooldown);
        let not_pending = refused(Reason::RecoveryNotPending);
        let other_drip = Outcome {
            transaction_hash: Some(Felt::from(1_u64)),
            ..cooldown.clone()
        };
        use IntentState::{Reverted, Succeeded};
        for (refused, state, proposed, expected, why) in [
            (&cooldown, Succeeded, None, true, "its own drip"),
            (
                &other_drip,
                Succeeded,
                None,
                false,
                "the drip of another request",
            ),
            (&cooldown, Reverted, None, false, "nothing was paid"),
            (
                &not_pending,
                Succeeded,
                None,
                true,
                "an earlier version proposed",
            ),
            (
                &not_pending,
                Succeeded,
                Some(4),
                true,
                "it ended that recovery",
            ),
            (&not_pending, Succeeded, Some(6), false, "proposed since"),
            (
                &not_pending,
                Reverted,
                Some(4),
                false,
                "another request ended it",
            ),
            (
                &refused(Reason::NotRegistered),
                Succeeded,
                None,
                false,
                "not done",
            ),
        ] {
            let newest = intent(5, 7, state).expect("there is one");
            let proposed = proposed.and_then(|id| intent(id, 1, Succeeded));
            let found = is_done(refused, &newest, proposed.as_ref());
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn one_that_returns_takes_its_key_back_from_what_was_signed_in_its_place() {
        let returned = || intent(1, 7, IntentState::Succeeded);
        let same_nonce = intent(2, 7, IntentState::Rejected);
        assert_eq!(found(same_nonce, returned(), 200), Some(1));
        let other_nonce = intent(2, 8, IntentState::Rejected);
        assert_eq!(found(other_nonce, returned(), 200), None);
    }
}
