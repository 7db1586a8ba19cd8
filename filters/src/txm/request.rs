//! Finds the intent of the journal that a request is about.

use crate::ledger::{Intent, Requested};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{IntentId, IntentState};

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
    fn one_that_returns_takes_its_key_back_from_what_was_signed_in_its_place() {
        let returned = || intent(1, 7, IntentState::Succeeded);
        let same_nonce = intent(2, 7, IntentState::Rejected);
        assert_eq!(found(same_nonce, returned(), 200), Some(1));
        let other_nonce = intent(2, 8, IntentState::Rejected);
        assert_eq!(found(other_nonce, returned(), 200), None);
    }
}
