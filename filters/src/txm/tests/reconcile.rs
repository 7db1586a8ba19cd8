//! Intents whose end the journal does not know.

use super::script::Script;
use super::{EPOCH, START_US, hash, intent, receipt, returned, run};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId, IntentState};
use crate::txm::DEADLINE;
use crate::txm::io::Io as _;
use crate::txm::node::{Receipt, code};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{End, Outcome};
use crate::txm::reconcile::{blocked_roles, catch_up, free_account, give_up, known, permit};
use crate::txm::round::pass_all;
use crate::txm::settings::{Required, Role};
use IntentState::{Accepted, Displaced, Intended, Lost, Rejected, Reverted, Sent, Succeeded};
use alloc::sync::Arc;
use core::time::Duration;

/// An intent of a user's account.
fn of_user(id: i64, state: IntentState) -> Intent {
    Intent {
        signer: Felt::from(0xdd_u64),
        ..intent(id, 7, state)
    }
}

/// The label of a journaled intent's outcome, unless no URL shows what a block had.
fn outcome_of(script: &Script, intent: &Intent) -> Result<Option<&'static str>, NotSent> {
    let known = run(known(script, intent))?;
    Ok(known.map(|known| match known.end {
        End::Unseen => "unseen",
        _ => Outcome::from(known).kind().name(),
    }))
}

#[test]
fn an_account_catches_up_once_before_its_first_write() {
    let script = Script::with(&[intent(1, 7, Sent)]);
    script.state().is_exclusive = true;
    script.state().receipts.insert(hash(1), receipt());
    let deadline = script.now() + DEADLINE;
    let catch_up = || run(catch_up(&script, EPOCH, Role::Owner, deadline));
    assert_eq!(catch_up(), Ok(()));
    let done = script.done();
    assert_eq!(script.state_of(1), Succeeded);
    assert_eq!(done, ["locks owner", "1 is succeeded", "unlocks"]);
    assert_eq!(catch_up(), Ok(()));
    assert!(script.done().is_empty(), "once is enough");
}

#[test]
fn a_permit_holds_the_node_to_what_was_acknowledged() {
    let script = Script::new();
    let permit = || run(permit(&script, Required::All));
    assert_eq!(permit(), Ok(EPOCH.to_owned()));
    assert_eq!(script.done(), ["block 10 was shown"]);
    assert_eq!(permit(), Ok(EPOCH.to_owned()));
    assert!(script.done().is_empty(), "once is enough");
}

#[test]
fn an_account_with_an_undecided_intent_is_not_ready() {
    let script = Script::with(&[intent(1, 7, Sent), of_user(2, Sent)]);
    script.state().added = [returned(-32603)].into();
    let deadline = script.now() + DEADLINE;
    let unsettled = || -> Vec<Role> { run(blocked_roles(&script, EPOCH, deadline)).collect() };
    assert_eq!(unsettled(), [Role::Owner], "the user's gates nothing");
    script.state().receipts.insert(hash(1), receipt());
    assert_eq!(unsettled(), []);
}

#[test]
fn a_journaled_intent_is_answered_by_its_state() {
    for (state, expected) in [
        (Succeeded, Ok(Some("written"))),
        (Displaced, Ok(None)),
        (Rejected, Ok(None)),
        (Lost, Ok(None)),
    ] {
        let script = Script::with(&[intent(1, 7, state)]);
        script.state().receipts.insert(hash(1), receipt());
        assert_eq!(
            outcome_of(&script, &intent(1, 7, state)),
            expected,
            "{state:?}"
        );
        assert_eq!(script.state().later_us, 0, "{state:?}: nobody waits");
    }
    let gone = Script::with(&[intent(1, 7, Succeeded)]);
    assert_eq!(
        outcome_of(&gone, &intent(1, 7, Succeeded)),
        Ok(None),
        "rolled back"
    );
}

#[test]
fn a_request_waits_for_the_process_that_writes_its_intent() {
    let later =
        |seconds: u64, state| vec![(Duration::from_secs(1_000 + seconds), IntentId(1), state)];
    for (earlier, is_exclusive, others, expected, waited_ms, why) in [
        (
            intent(1, 7, Sent),
            false,
            vec![],
            "failed",
            10_000,
            "its answer may be on its way",
        ),
        (
            intent(1, 7, Intended),
            false,
            vec![],
            "refused",
            10_000,
            "likewise",
        ),
        (
            intent(1, 7, Sent),
            true,
            vec![],
            "failed",
            0,
            "nobody else writes",
        ),
        (
            intent(1, 7, Accepted),
            false,
            vec![],
            "pending",
            1_000,
            "its receipt may come",
        ),
        (
            of_user(1, Accepted),
            false,
            vec![],
            "pending",
            0,
            "nobody waits for that receipt",
        ),
        (
            of_user(1, Sent),
            false,
            vec![],
            "failed",
            10_000,
            "its answer may be on its way",
        ),
        (
            intent(1, 7, Sent),
            false,
            later(2, Accepted),
            "pending",
            2_000,
            "waited for longer",
        ),
        (
            intent(1, 7, Sent),
            false,
            later(9, Rejected),
            "none",
            9_000,
            "it has no effect",
        ),
    ] {
        let script = Script::with(core::slice::from_ref(&earlier));
        script.state().is_exclusive = is_exclusive;
        script.state().others = others;
        let found = outcome_of(&script, &earlier).map(|it| it.unwrap_or("none"));
        let waited = script.state().later_us / 1_000;
        assert_eq!(
            (found, waited),
            (Ok(expected), waited_ms),
            "{earlier:?}: {why}"
        );
    }
    let old = Intent {
        updated_us: START_US - 4_000_000,
        ..intent(1, 7, Sent)
    };
    let script = Script::with(core::slice::from_ref(&old));
    assert_eq!(outcome_of(&script, &old), Ok(Some("failed")));
    assert_eq!(script.state().later_us, 6_000_000, "four seconds are over");
}

#[test]
fn an_open_intent_of_another_chain_is_not_awaited() {
    let script = Script::with(&[intent(1, 7, Sent)]);
    script.state().anchor = Ok("another".into());
    assert_eq!(
        outcome_of(&script, &intent(1, 7, Sent)),
        Err(NotSent::Restarted)
    );
}

#[test]
fn a_receipt_that_came_meanwhile_is_the_answer() {
    let script = Script::with(&[intent(1, 7, Sent)]);
    script.state().receipts.insert(
        hash(1),
        Receipt {
            outcome: Err(None),
            ..receipt()
        },
    );
    assert_eq!(
        outcome_of(&script, &intent(1, 7, Sent)),
        Ok(Some("reverted"))
    );
    assert_eq!(script.state_of(1), Reverted);
}

/// Settles an intent of this age in the background, and returns its state and what was sent.
fn settled(stored: Intent, seconds: i64, next: u64, shown: Option<Receipt>) -> (IntentState, bool) {
    let script = Arc::new(Script::with(core::slice::from_ref(&stored)));
    script.state().later_us = seconds * 1_000_000;
    script.state().nonces = [Ok(next)].into();
    script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
    run(pass_all(&script, EPOCH)).expect("the node answers");
    let is_sent = script.done().iter().any(|it| it.starts_with("sends"));
    (script.state_of(1), is_sent)
}

#[test]
fn an_open_intent_is_settled_by_what_the_chain_shows() {
    let pre_confirmed = || {
        Some(Receipt {
            accepted: false,
            ..receipt()
        })
    };
    for of in [
        intent as fn(i64, u64, IntentState) -> Intent,
        |id, _, state| of_user(id, state),
    ] {
        for (state, seconds, next, shown, expected, why) in [
            (
                Intended,
                10,
                7,
                None,
                (Rejected, false),
                "it was never sent",
            ),
            (
                Intended,
                9,
                7,
                None,
                (Intended, false),
                "it may still be sent",
            ),
            (
                Sent,
                0,
                7,
                Some(receipt()),
                (Succeeded, false),
                "it is in a block",
            ),
            (
                Sent,
                60,
                7,
                pre_confirmed(),
                (Sent, false),
                "its block is being built",
            ),
            (
                Sent,
                9,
                7,
                None,
                (Sent, false),
                "an answer may be on its way",
            ),
            (Sent, 10, 7, None, (Accepted, true), "its nonce is free"),
            (Sent, 10, 6, None, (Accepted, true), "one below it, too"),
            (Sent, 10, 8, None, (Sent, false), "its nonce is used"),
        ] {
            let found = settled(of(1, 7, state), seconds, next, shown);
            assert_eq!(found, expected, "{state:?} after {seconds} s: {why}");
        }
    }
}

#[test]
fn an_account_that_is_not_deployed_has_used_no_nonce() {
    let script = Arc::new(Script::with(&[of_user(1, Sent)]));
    script.state().later_us = 10_000_000;
    script.state().nonces = [returned(code::CONTRACT_NOT_FOUND)].into();
    run(pass_all(&script, EPOCH)).expect("that is an answer");
    assert_eq!(script.state_of(1), Accepted, "it is sent again");
}

#[test]
fn nothing_is_signed_behind_an_intent_that_may_be_executed() {
    for (next, shown, seconds, expected, why) in [
        (7, Some(receipt()), 0, Ok(Succeeded), "it is in a block"),
        (8, None, 0, Ok(Accepted), "its nonce is used"),
        (7, None, 0, Err(NotSent::InProgress), "its nonce is free"),
        (
            7,
            None,
            29,
            Err(NotSent::InProgress),
            "it may still be shown",
        ),
        (7, None, 30, Ok(Displaced), "nobody has shown it for long"),
    ] {
        let script = Script::with(&[intent(1, 7, Accepted)]);
        script.state().later_us = seconds * 1_000_000;
        script.state().nonces = [Ok(next)].into();
        script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
        let found = run(free_account(&script, EPOCH, Role::Owner));
        let found = found.map(|()| script.state_of(1));
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn a_known_block_or_an_end_is_not_given_up() {
    let without_block = |state| Intent {
        included: None,
        ..intent(1, 7, state)
    };
    for (stored, expected, why) in [
        (intent(1, 7, Sent), Displaced, "it is open"),
        (without_block(Succeeded), Displaced, "no block can be gone"),
        (intent(1, 7, Succeeded), Succeeded, "its block can be gone"),
        (without_block(Lost), Lost, "it has its end"),
    ] {
        let script = Script::with(core::slice::from_ref(&stored));
        script.state().later_us = 30_000_000;
        let found = run(give_up(&script, &stored));
        assert_eq!(found, Ok(expected == Displaced), "{why}");
        assert_eq!(script.state_of(1), expected, "{why}");
    }
}
