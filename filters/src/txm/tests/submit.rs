//! The node's answers to a transaction, and what follows from each.

use super::script::Script;
use super::{hash, intent, no_answer, receipt, returned, run};
use crate::felt::Felt;
use crate::ledger::{IntentId, IntentState};
use crate::txm::io::{Called, JournalError};
use crate::txm::node::{Receipt, code};
use crate::txm::outcome::Outcome;
use crate::txm::submit;
use crate::txm::submit::{accepted, rejected, repeat, resend};
use crate::verdict::Reason;
use IntentState::{Accepted, Displaced, Rejected, Sent};

const INTERNAL: i64 = -32603;
const UNSENT: Result<(), Option<Reason>> = Err(Some(Reason::UpstreamTimeout));
const UNKNOWN: Result<(), Option<Reason>> = Err(Some(Reason::OutcomeUnknown));

fn reason<T>(result: Result<T, Outcome>) -> Result<T, Option<Reason>> {
    result.map_err(|outcome| outcome.reason())
}

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
            Ok(()),
            Sent,
            "accepted, which is journaled later",
        ),
        (returned(code::DUPLICATE), Ok(()), Sent, "it has it already"),
        (Ok(hash(2)), UNKNOWN, Sent, "another hash"),
        (
            returned(code::VALIDATION_FAILURE),
            Err(Some(Reason::Rejected)),
            Rejected,
            "refused",
        ),
        (
            returned(code::INVALID_NONCE),
            Err(Some(Reason::NonceConflict)),
            Rejected,
            "its nonce",
        ),
        (returned(INTERNAL), UNKNOWN, Sent, "it may have it"),
        (no_answer(true), UNSENT, Rejected, "it does not have it"),
        (no_answer(false), UNKNOWN, Sent, "it may have it"),
    ] {
        let script = sent(answer);
        let found = reason(run(super::submit(&script, 1)));
        assert_eq!((found, script.state_of(1)), (expected, state), "{why}");
        let wakes = script
            .done()
            .contains(&"wakes the reconciliation".to_owned());
        assert_eq!(wakes, expected == UNKNOWN, "{why}");
    }
}

#[test]
fn an_answer_that_is_not_journaled_leaves_the_end_unknown() {
    let script = Script::with(&[intent(1, 7, Sent)]);
    assert_eq!(reason(run(accepted(&script, IntentId(1), hash(1)))), Ok(()));
    assert_eq!(script.state_of(1), Accepted);
    script.state().apply_fails = true;
    assert_eq!(
        reason(run(accepted(&script, IntentId(1), hash(1)))),
        UNKNOWN
    );
    assert_eq!(
        reason(run(rejected(&script, IntentId(1), hash(1), "why"))),
        UNKNOWN
    );
    assert_eq!(
        reason(run(repeat(&script, &intent(1, 7, Sent)))),
        Err(Some(Reason::OutcomeUnknown))
    );
}

#[test]
fn a_repeat_that_is_refused_is_in_doubt() {
    const OPEN: Result<bool, Option<Reason>> = Err(Some(Reason::OutcomeUnknown));
    for (answer, expected, state, why) in [
        (Ok(hash(1)), Ok(true), Accepted, "accepted"),
        (
            returned(code::DUPLICATE),
            Ok(true),
            Accepted,
            "it has it already",
        ),
        (
            returned(code::VALIDATION_FAILURE),
            Ok(false),
            Displaced,
            "the first may have arrived",
        ),
        (
            returned(code::INVALID_NONCE),
            Err(Some(Reason::InProgress)),
            Displaced,
            "its nonce",
        ),
        (returned(INTERNAL), OPEN, Sent, "it may have it"),
        (
            no_answer(true),
            Err(Some(Reason::UpstreamTimeout)),
            Sent,
            "it does not have it",
        ),
        (no_answer(false), OPEN, Sent, "it may have it"),
    ] {
        let script = sent(answer);
        let found = reason(run(repeat(&script, &intent(1, 7, Sent))));
        assert_eq!((found, script.state_of(1)), (expected, state), "{why}");
    }
}

#[test]
fn a_repeat_is_recorded_before_it_is_sent_so_that_the_first_sender_cannot_reject_it() {
    let script = sent(no_answer(false));
    let open = Err(Some(Reason::OutcomeUnknown));
    assert_eq!(reason(run(repeat(&script, &intent(1, 7, Sent)))), open);
    assert_eq!(script.done()[0], "1 is sent");
    assert_eq!(
        reason(run(rejected(&script, IntentId(1), hash(1), "not sent"))),
        UNKNOWN
    );
    assert_eq!(script.state_of(1), Sent);
}

#[test]
fn what_the_first_sender_has_rejected_is_not_repeated() {
    let script = Script::with(&[intent(1, 7, Rejected)]);
    let repeated = reason(run(repeat(&script, &intent(1, 7, Sent))));
    assert_eq!(repeated, Err(Some(Reason::InProgress)));
    assert_eq!(script.done(), [""; 0], "nothing is sent");
}

#[test]
fn a_repeat_has_an_end_with_its_receipt_or_refusal() {
    for (answer, shown, expected) in [
        (Ok(hash(1)), Some(receipt()), Ok(true)),
        (Ok(hash(1)), None, Ok(false)),
        (returned(code::VALIDATION_FAILURE), None, Ok(true)),
    ] {
        let script = sent(answer);
        script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
        assert_eq!(reason(run(resend(&script, &intent(1, 7, Sent)))), expected);
    }
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
