//! Finds the intent of the journal that a request is about.

use super::not_sent::NotSent;
use crate::ledger::{Intent, IntentState, Requested};

/// Since when an equal intent was written for a request that arrived at `arrived_us`. Another
/// process dates its intents by a clock that may be `error_us` behind, so the time is that much
/// earlier. This errs to the side that never pays twice: an intent that is slightly older than the
/// request answers it, and nothing is written. On the other side the request would be decided anew,
/// and a drip that was just paid for it would be refused as too soon.
#[must_use]
pub const fn since_us(arrived_us: i64, error_us: i64) -> i64 {
    arrived_us.saturating_sub(error_us)
}

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
/// since. The outcome of that one is then the answer, as if the repeat had a key. It may be in
/// doubt since the refusal was decided.
#[must_use]
pub fn is_done(refused: &NotSent, newest: &Intent, proposed: Option<&Intent>) -> bool {
    if !matches!(
        newest.state,
        IntentState::Succeeded | IntentState::Displaced
    ) {
        return false;
    }
    match refused {
        NotSent::TooSoon { last, .. } => last.transaction_hash == newest.transaction_hash,
        NotSent::RecoveryNotPending => proposed.is_none_or(|proposed| proposed.id < newest.id),
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
        let after = |transaction_hash| NotSent::TooSoon {
            last: Box::new(Intent {
                transaction_hash,
                ..Intent::empty()
            }),
            until_us: 1,
            now_us: 0,
        };
        let cooldown = after(Felt::ZERO);
        let other_drip = after(Felt::from(1_u64));
        let not_pending = NotSent::RecoveryNotPending;
        use IntentState::{Displaced, Reverted, Succeeded};
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
            (&cooldown, Displaced, None, true, "in doubt meanwhile"),
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
            (&NotSent::FaucetEmpty, Succeeded, None, false, "not done"),
        ] {
            let newest = intent(5, 7, state).expect("there is one");
            let proposed = proposed.and_then(|id| intent(id, 1, Succeeded));
            let found = is_done(refused, &newest, proposed.as_ref());
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn a_twin_dated_by_a_slower_clock_answers_too() {
        let twin = || intent(2, 7, IntentState::Succeeded);
        assert_eq!(found(None, twin(), since_us(150, 50)), Some(2));
        assert_eq!(found(None, twin(), since_us(150, 49)), None);
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
