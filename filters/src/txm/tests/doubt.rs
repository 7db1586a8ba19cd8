//! Transactions in doubt, whose requests are repeated.

use super::rollbacks::shown;
use super::script::Script;
use super::{intent, returned, run};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentState};
use crate::txm::doubt::send_again;
use crate::txm::node::code;
use crate::txm::submit::Submitted;
use IntentState::{Accepted, Displaced, Rejected, Sent, Succeeded};

/// The hash of the first transaction that is signed here: the estimated price is 1, and half of it
/// is 0.
const SIGNED: i64 = 1_001;

fn name(submitted: &Submitted) -> &'static str {
    match submitted {
        Submitted::Taken => "taken",
        Submitted::NotSent(_) => "not sent",
        Submitted::Refused(_) => "refused",
        Submitted::Lost => "lost",
        Submitted::Undecided => "undecided",
        Submitted::Unanswered => "unanswered",
        Submitted::Rejected(_) => "rejected",
        Submitted::Unknown(_) => "unknown",
    }
}

/// Sends the displaced intent 1 again, with these others in the journal, this next nonce and these
/// answers. Returns how far that came, and what was sent.
fn again(others: &[Intent], next: u64, answers: &[i64]) -> (&'static str, Vec<i64>) {
    let displaced = intent(1, 7, Displaced);
    let script = Script::with(&[others, core::slice::from_ref(&displaced)].concat());
    script.state().nonces = [Ok(next)].into();
    script.state().added = answers.iter().map(|code| returned(*code)).collect();
    let found = name(&run(send_again(&script, &displaced)));
    let done = script.done();
    let sent = done.iter().filter_map(|it| it.strip_prefix("sends "));
    let number = |hash: &str| Felt::parse(hash).and_then(|hash| hash.to_u64());
    let sent = sent.filter_map(number).map(|number| number as i64);
    (found, sent.collect())
}

fn below(id: i64, state: IntentState) -> Intent {
    intent(id, 6, state)
}

#[test]
fn a_displaced_transaction_is_sent_again_while_its_nonce_is_free() {
    let refused = [code::VALIDATION_FAILURE];
    for (others, next, answers, expected, sent, why) in [
        (&[][..], 7, &[][..], "taken", &[1][..], "it is the next one"),
        (&[], 8, &[], "not sent", &[], "its nonce is used"),
        (&[], 7, &refused, "refused", &[1], "it may be signed anew"),
        (
            &[intent(2, 7, Accepted)],
            7,
            &[],
            "not sent",
            &[],
            "another of ours has it",
        ),
        (
            &[intent(2, 7, Rejected)],
            7,
            &[],
            "taken",
            &[1],
            "that has no nonce",
        ),
        (
            &[below(2, Displaced)],
            6,
            &[],
            "taken",
            &[2, 1],
            "the one below it first",
        ),
        (
            &[below(2, Displaced)],
            7,
            &[],
            "taken",
            &[1],
            "that one's nonce is used",
        ),
        (
            &[below(2, Displaced), below(3, Displaced)],
            6,
            &[],
            "taken",
            &[3, 1],
            "the newest",
        ),
        (
            &[below(2, Displaced), below(3, Sent)],
            6,
            &[],
            "taken",
            &[1],
            "that is under way",
        ),
    ] {
        let expected = (expected, sent.to_vec());
        assert_eq!(again(others, next, answers), expected, "{why}");
    }
}

#[test]
fn a_lower_nonce_that_nothing_can_use_is_filled() {
    let refused = code::VALIDATION_FAILURE;
    for (others, next, answers, expected, sent, why) in [
        (
            &[][..],
            6,
            &[][..],
            "taken",
            &[SIGNED, 1][..],
            "one is free",
        ),
        (
            &[],
            4,
            &[],
            "taken",
            &[SIGNED, SIGNED, SIGNED, 1],
            "three are free",
        ),
        (
            &[below(2, Displaced)],
            6,
            &[refused],
            "taken",
            &[2, SIGNED + 1, 1],
            "the one below it is refused",
        ),
        (
            &[],
            6,
            &[refused],
            "not sent",
            &[SIGNED],
            "the filler is refused",
        ),
    ] {
        let expected = (expected, sent.to_vec());
        assert_eq!(again(others, next, answers), expected, "{why}");
    }
}

#[test]
fn an_included_one_that_the_chain_lost_below_is_looked_for() {
    let (lost, displaced) = (below(2, Succeeded), intent(1, 7, Displaced));
    let script = Script::with(&[lost, displaced.clone()]);
    script.state().nonces = [Ok(6)].into();
    assert_eq!(name(&run(send_again(&script, &displaced))), "taken");
    assert_eq!(
        script.state_of(2),
        Displaced,
        "its request can send it again"
    );
}

#[test]
fn an_included_one_in_its_place_is_looked_for() {
    let (lost, displaced) = (intent(2, 7, Succeeded), intent(1, 7, Displaced));
    let script = Script::with(&[lost, displaced.clone()]);
    script.state().nonces = [Ok(7)].into();
    assert_eq!(name(&run(send_again(&script, &displaced))), "not sent");
    assert_eq!(script.state_of(2), Displaced, "the next repeat is sent");
}

#[test]
fn nobody_else_fills_the_nonces_of_a_user() {
    let of_user = Intent {
        signer: Felt::from(0xdd_u64),
        ..intent(1, 7, Displaced)
    };
    let script = Script::with(core::slice::from_ref(&of_user));
    script.state().nonces = [Ok(6)].into();
    assert_eq!(name(&run(send_again(&script, &of_user))), "taken");
    let done = script.done();
    let sent = done.iter().filter(|it| it.starts_with("sends")).count();
    assert_eq!(sent, 1, "the node says whether it waits: {done:?}");
}

#[test]
fn a_transaction_that_is_shown_is_not_sent_again() {
    let displaced = intent(1, 7, Displaced);
    let script = shown(core::slice::from_ref(&displaced), &[1]);
    assert_eq!(run(send_again(&script, &displaced)), Submitted::Taken);
    assert_eq!(script.state_of(1), Succeeded);
}

#[test]
fn a_filler_that_the_node_took_is_accepted() {
    let displaced = intent(1, 7, Displaced);
    let script = Script::with(core::slice::from_ref(&displaced));
    script.state().nonces = [Ok(6)].into();
    assert_eq!(run(send_again(&script, &displaced)), Submitted::Taken);
    assert_eq!(script.state_of(101), Accepted);
}
