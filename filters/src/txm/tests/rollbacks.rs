//! Transactions after their receipts.

use super::script::Script;
use super::{hash, intent, receipt, run};
use crate::ledger::{Inclusion, Intent, IntentState};
use crate::txm::not_sent::NotSent;
use crate::txm::rollbacks::{Confirmed, Still, confirm, look_for, still_included};
use IntentState::{Accepted, Displaced, Lost, Succeeded};

/// A journal with these intents, of which the chain shows some.
pub(super) fn shown(intents: &[Intent], shown: &[i64]) -> Script {
    let script = Script::with(intents);
    script.state().receipts = shown.iter().map(|id| (hash(*id), receipt())).collect();
    script
}

#[test]
fn an_included_transaction_is_there_or_gone_or_unseen() {
    let included = intent(1, 7, Succeeded);
    let confirmed = |script: &Script| {
        let found = run(confirm(script, &included));
        let still = match run(still_included(script, &included)) {
            Ok(Still::Included(_)) => "included",
            Ok(Still::Displaced) => "displaced",
            Ok(Still::Unseen) => "unseen",
            Err(_) => "unavailable",
        };
        (found, still, script.state().later_us / 1_000)
    };
    let script = shown(core::slice::from_ref(&included), &[1]);
    assert_eq!(confirmed(&script), (Ok(Confirmed::Shown), "included", 0));
    assert!(
        !script.done().contains(&"notes 1 back".into()),
        "that is no news"
    );
    script.state().is_away = true;
    assert_eq!(
        confirmed(&script),
        (Ok(Confirmed::Unavailable), "included", 0)
    );
    let unseen = shown(core::slice::from_ref(&included), &[]);
    unseen.state().blocks.remove(&10);
    let expected = (Ok(Confirmed::Unknown), "unseen", 9_000);
    assert_eq!(
        confirmed(&unseen),
        expected,
        "4.5 s each: a poll more would take the whole 5 s"
    );
    let gone = shown(core::slice::from_ref(&included), &[]);
    assert_eq!(confirmed(&gone), (Ok(Confirmed::Displaced), "displaced", 0));
    assert_eq!(gone.state_of(1), Displaced);
    assert!(gone.done().contains(&"notes 1 displaced".into()));
}

#[test]
fn an_intent_of_another_chain_is_not_in_doubt() {
    let foreign = Intent {
        epoch: "another".into(),
        ..intent(1, 7, Succeeded)
    };
    let script = shown(core::slice::from_ref(&foreign), &[]);
    assert_eq!(run(confirm(&script, &foreign)), Err(NotSent::Restarted));
    assert_eq!(script.state_of(1), Succeeded);
}

#[test]
fn newer_evidence_of_the_journal_stands() {
    let read_before = intent(1, 7, Succeeded);
    for (state, expected) in [
        (Succeeded, Confirmed::Shown),
        (Displaced, Confirmed::Displaced),
        (Lost, Confirmed::Displaced),
        (Accepted, Confirmed::Unknown),
    ] {
        let now = Intent {
            included: Some(Inclusion {
                number: 11,
                fingerprint: [1; 32],
            }),
            ..intent(1, 7, state)
        };
        let script = shown(&[now], &[]);
        let found = run(look_for(&script, &read_before));
        assert_eq!(found, Ok(expected), "{state:?}");
        assert_eq!(script.state_of(1), state);
    }
}
