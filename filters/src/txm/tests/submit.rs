//! The node's answers to a transaction, and what follows from each.

use super::script::Script;
use super::{hash, intent, no_answer, receipt, returned, run};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId, IntentState};
use crate::txm::io::{Called, JournalError};
use crate::txm::node::{ErrorObject, Receipt, code};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{Outcome, Unknown};
use crate::txm::rollbacks::PATIENCE;
use crate::txm::submit;
use crate::txm::submit::{Submitted, Unsent, accepted, not_sent, repeat};
use crate::verdict::Reason;
use IntentState::{Accepted, Displaced, Lost, Rejected, Sent, Succeeded};
use core::time::Duration;

const INTERNAL: i64 = -32603;

/// The name of how far a submission came, with its code or reason.
fn name(submitted: &Submitted) -> String {
    match submitted {
        Submitted::Taken => "taken".into(),
        Submitted::NotSent(why) => format!("not sent: {:?}", reason(why)),
        Submitted::Rejected(why) => format!("rejected: {:?}", reason(why)),
        Submitted::Refused(ErrorObject { code, .. }) => format!("refused: {code}"),
        Submitted::Lost => "lost".into(),
        Submitted::Undecided => "undecided".into(),
        Submitted::Unanswered => "unanswered".into(),
        Submitted::Unknown(why) => format!("unknown: {why:?}"),
    }
}

fn reason(why: &NotSent) -> Option<Reason> {
    Outcome::from(why.clone()).reason()
}

const UNSENT: &str = "not sent: Some(UpstreamTimeout)";

/// A journal with an intent that was sent with nonce 7, at a node with these answers.
fn sent(answer: Called<Felt>) -> Script {
    let script = Script::with(&[intent(1, 7, Sent)]);
    script.state().added = [answer].into();
    script
}

#[test]
fn an_answer_to_the_first_attempt_decides_about_the_intent() {
    for (answer, expected, state, why) in [
        (
            Ok(hash(1)),
            "taken",
            Sent,
            "accepted, which is journaled later",
        ),
        (
            returned(code::DUPLICATE),
            "taken",
            Sent,
            "it has it already",
        ),
        (Ok(hash(2)), "unknown: NoAnswer", Sent, "another hash"),
        (
            returned(code::VALIDATION_FAILURE),
            "refused: 55",
            Displaced,
            "something in between may have delivered it before",
        ),
        (
            returned(code::INVALID_NONCE),
            "refused: 52",
            Displaced,
            "likewise",
        ),
        (returned(INTERNAL), "undecided", Sent, "it may have it"),
        (
            no_answer(true),
            "rejected: Some(UpstreamTimeout)",
            Rejected,
            "it does not have it",
        ),
        (
            no_answer(false),
            "unknown: NoAnswer",
            Sent,
            "it may have it",
        ),
    ] {
        let script = sent(answer);
        let found = name(&run(super::submit(&script, 1)));
        assert_eq!(
            (found.as_str(), script.state_of(1)),
            (expected, state),
            "{why}"
        );
        let wakes = script
            .done()
            .contains(&"wakes the reconciliation".to_owned());
        let is_open = expected.starts_with("unknown") || expected == "undecided";
        assert_eq!(wakes, is_open, "{why}");
    }
}

#[test]
fn after_a_refusal_the_chain_says_who_has_the_nonce() {
    let pre_confirmed = Receipt {
        accepted: false,
        ..receipt()
    };
    for code in [
        code::INVALID_NONCE,
        code::VALIDATION_FAILURE,
        code::INSUFFICIENT_BALANCE,
    ] {
        for (shown, next, expected, state, waited_ms, why) in [
            (
                Some(receipt()),
                8,
                "taken",
                Succeeded,
                0,
                "it was delivered twice",
            ),
            (
                Some(pre_confirmed.clone()),
                8,
                "taken",
                Displaced,
                0,
                "its block is being built",
            ),
            (
                None,
                8,
                "unknown: NonceUsed",
                Displaced,
                4_500,
                "nobody knows by whom it was used",
            ),
            (None, 7, "refused", Displaced, 0, "it is free"),
        ] {
            let script = sent(returned(code));
            script.state().nonces = [Ok(next)].into();
            script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
            let found = name(&run(super::submit(&script, 1)));
            let waited = script.state().later_us / 1_000;
            assert!(found.starts_with(expected), "{code}: {why}: {found}");
            assert_eq!(
                (script.state_of(1), waited),
                (state, waited_ms),
                "{code}: {why}"
            );
        }
    }
}

#[test]
fn a_refused_transaction_is_lost_once_another_one_of_its_nonce_has_settled() {
    let script = sent(returned(code::INVALID_NONCE));
    script.state().nonces = [Ok(8)].into();
    if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
        listed.push((7, hash(9)));
    }
    assert_eq!(run(super::submit(&script, 1)), Submitted::Lost);
    assert_eq!(script.state_of(1), Lost);
    assert_eq!(
        script.state().later_us,
        2_000_000,
        "a block settles in two seconds"
    );
}

#[test]
fn an_answer_that_is_not_journaled_leaves_the_end_unknown() {
    let script = Script::with(&[intent(1, 7, Sent)]);
    assert_eq!(run(accepted(&script, IntentId(1))), Ok(()));
    assert_eq!(script.state_of(1), Accepted);
    script.state().apply_fails = true;
    assert_eq!(
        run(accepted(&script, IntentId(1))),
        Err(JournalError::Failed)
    );
    assert_eq!(
        run(not_sent(&script, IntentId(1), "why")),
        Unsent::Unconfirmed
    );
    let repeated = run(repeat(&script, &intent(1, 7, Sent), PATIENCE));
    assert_eq!(repeated, Submitted::Unknown(Unknown::NoAnswer));
}

#[test]
fn a_repeat_that_is_refused_is_in_doubt() {
    for (answer, expected, state, why) in [
        (Ok(hash(1)), "taken", Accepted, "accepted"),
        (Ok(hash(2)), "unanswered", Sent, "another hash"),
        (
            returned(code::DUPLICATE),
            "taken",
            Accepted,
            "it has it already",
        ),
        (
            returned(code::VALIDATION_FAILURE),
            "refused: 55",
            Displaced,
            "the first may have arrived",
        ),
        (
            returned(code::INVALID_NONCE),
            "refused: 52",
            Displaced,
            "its nonce",
        ),
        (returned(INTERNAL), "undecided", Sent, "it may have it"),
        (no_answer(true), UNSENT, Sent, "it does not have it"),
        (no_answer(false), "unanswered", Sent, "it may have it"),
    ] {
        let script = sent(answer);
        let found = name(&run(repeat(&script, &intent(1, 7, Sent), PATIENCE)));
        assert_eq!(
            (found.as_str(), script.state_of(1)),
            (expected, state),
            "{why}"
        );
    }
}

#[test]
fn a_repeat_is_not_sent_to_another_chain() {
    let script = sent(Ok(hash(1)));
    script.state().anchor = Ok("another".into());
    let repeated = run(repeat(&script, &intent(1, 7, Sent), PATIENCE));
    assert_eq!(repeated, Submitted::NotSent(NotSent::Restarted));
    let done = script.done();
    assert!(!done.iter().any(|it| it.starts_with("sends")), "{done:?}");
}

#[test]
fn nobody_waits_for_the_fate_of_a_repeat_in_the_background() {
    let script = sent(returned(code::INVALID_NONCE));
    script.state().nonces = [Ok(8)].into();
    let repeated = run(repeat(&script, &intent(1, 7, Sent), Duration::ZERO));
    assert_eq!(repeated, Submitted::Unknown(Unknown::NonceUsed));
    assert_eq!(script.state().later_us, 0);
}

#[test]
fn a_repeat_is_recorded_before_it_is_sent_so_that_the_first_sender_cannot_reject_it() {
    let script = sent(no_answer(false));
    let repeated = run(repeat(&script, &intent(1, 7, Sent), PATIENCE));
    assert_eq!(repeated, Submitted::Unanswered);
    assert_eq!(script.done()[0], "1 is sent");
    assert_eq!(
        run(not_sent(&script, IntentId(1), "not sent")),
        Unsent::SentAgain
    );
    assert_eq!(script.state_of(1), Sent);
}

#[test]
fn what_the_first_sender_did_not_send_is_not_repeated() {
    let script = Script::with(&[intent(1, 7, Rejected)]);
    let repeated = name(&run(repeat(&script, &intent(1, 7, Sent), PATIENCE)));
    assert_eq!(repeated, "not sent: Some(InProgress)");
    assert_eq!(script.done(), [""; 0], "nothing is sent");
}

#[test]
fn a_receipt_is_awaited_until_the_timeout() {
    let script = Script::with(&[intent(1, 7, Accepted)]);
    let began = script.state().now;
    let wait = || run(submit::receipt(&script, IntentId(1), hash(1)));
    let pre_confirmed = Receipt {
        accepted: false,
        ..receipt()
    };
    script.state().receipts.insert(hash(1), pre_confirmed);
    assert_eq!(wait(), Ok(None), "its block is being built");
    let waited = script.state().now - began;
    // polls after 10, 20, 40, 80 and 160 ms, then after 250 ms each, within a second
    assert_eq!(waited.as_millis(), 810);
    assert_eq!(script.done(), ["wakes the reconciliation"]);
    script.state().receipts.insert(hash(1), receipt());
    assert_eq!(wait(), Ok(Some(receipt())));
    assert_eq!(script.done(), ["1 is succeeded"]);
    script.state().apply_fails = true;
    assert_eq!(wait(), Err(JournalError::Failed));
}

#[test]
fn a_drip_repeated_after_another_is_reported_as_double() {
    let drip = |id, nonce| Intent {
        operation: "faucet-drip".into(),
        subject: Some(hash(5)),
        ..intent(id, nonce, Displaced)
    };
    let mut script = Script::with(&[drip(1, 7), drip(2, 8)]);
    script.chain.last = Some(drip(2, 8));
    run(repeat(&script, &drip(1, 7), Duration::ZERO));
    let noted = "notes 1 paid in addition to 2".to_owned();
    assert!(script.done().contains(&noted));
    run(repeat(&script, &drip(2, 8), Duration::ZERO));
    assert!(!script.done().iter().any(|it| it.contains("in addition")));
}
