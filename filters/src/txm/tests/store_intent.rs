//! Intents that prevent a new one.

use super::script::Script;
use super::{hash, intent, new, receipt, run};
use crate::ledger::{Intended, Intent, IntentState};
use crate::txm::io::JournalError;
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::Outcome;
use crate::txm::store_intent::{Storing, store_intent};
use IntentState::{Displaced, Rejected, Sent, Succeeded};

/// The result of storing an intent with nonce 7 after this reply: its name, or why nothing is.
fn stored(script: &Script, reply: Result<Intended, JournalError>) -> Result<String, NotSent> {
    script.state().intended = [reply].into();
    match run(store_intent(script, &new(&intent(9, 7, Sent)))) {
        Ok(Storing::New(_)) => Ok("new".into()),
        Ok(Storing::NonceTaken) => Ok("nonce taken".into()),
        Ok(Storing::Displaced(earlier)) => Ok(format!("{} is displaced", earlier.id)),
        Ok(Storing::Known(known)) => Ok(Outcome::from(known).kind().name().into()),
        Ok(Storing::Rejected(..)) => Ok("rejected".into()),
        Ok(Storing::SentElsewhere(_)) => Ok("sent elsewhere".into()),
        Ok(Storing::Unconfirmed) => Ok("unconfirmed".into()),
        Err(why) => Err(why),
    }
}

#[test]
fn an_equal_intent_is_the_outcome_unless_it_has_none() {
    for (state, expected, why) in [
        (Succeeded, "written", "the chain has it"),
        (Displaced, "1 is displaced", "that is sent again"),
        (Rejected, "new", "it had no effect"),
    ] {
        let script = Script::with(&[intent(1, 7, state)]);
        script.state().receipts.insert(hash(1), receipt());
        let known = Intended::Known(Box::new(intent(1, 7, state)));
        assert_eq!(stored(&script, Ok(known)), Ok(expected.into()), "{why}");
    }
}

#[test]
fn a_nonce_is_taken_while_the_chain_may_have_its_transaction() {
    let taken = |state: IntentState| Ok(Intended::NonceTaken(Box::new(intent(1, 7, state))));
    let with = |state| Script::with(&[intent(1, 7, state)]);
    let open = with(Sent);
    assert_eq!(stored(&open, taken(Sent)), Ok("nonce taken".into()));
    assert_eq!(open.state().later_us, 0, "its end is nobody's concern here");
    let shown = with(Succeeded);
    shown.state().receipts.insert(hash(1), receipt());
    assert_eq!(stored(&shown, taken(Succeeded)), Ok("nonce taken".into()));
    let away = with(Succeeded);
    away.state().is_away = true;
    assert_eq!(stored(&away, taken(Succeeded)), Ok("nonce taken".into()));
    let gone = with(Succeeded);
    assert_eq!(
        stored(&gone, taken(Succeeded)),
        Ok("new".into()),
        "its block is rolled back"
    );
    let unseen = with(Succeeded);
    unseen.state().blocks.remove(&10);
    assert_eq!(stored(&unseen, taken(Succeeded)), Err(NotSent::InProgress));
}

#[test]
fn an_intent_that_no_node_has_shown_for_long_gives_its_nonce_up() {
    for (seconds, next, shown, expected, why) in [
        (30, 7, None, "new", "it is free, and nothing was shown"),
        (29, 7, None, "nonce taken", "not long enough"),
        (30, 8, None, "nonce taken", "it is used"),
        (30, 7, Some(receipt()), "nonce taken", "it was shown"),
    ] {
        let script = Script::with(&[intent(1, 7, Sent)]);
        script.state().later_us = seconds * 1_000_000;
        script.state().nonces = [Ok(next)].into();
        script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
        let taken = Intended::NonceTaken(Box::new(intent(1, 7, Sent)));
        assert_eq!(stored(&script, Ok(taken)), Ok(expected.into()), "{why}");
        let state = if expected == "new" { Displaced } else { Sent };
        assert_eq!(script.state_of(1), state, "{why}");
    }
}

#[test]
fn an_intent_that_is_not_confirmed_may_be_sent() {
    let script = Script::with(&[] as &[Intent]);
    let found = stored(&script, Err(JournalError::Unconfirmed));
    assert_eq!(found, Ok("unconfirmed".into()));
    assert!(
        script
            .done()
            .contains(&"wakes the reconciliation".to_owned())
    );
    let found = stored(&script, Err(JournalError::Failed));
    assert_eq!(found, Err(NotSent::Store));
}
