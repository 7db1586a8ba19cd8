//! Transactions after their receipts.

use super::script::Script;
use super::{EPOCH, hash, intent, receipt, returned, run};
use crate::ledger::{Intent, IntentState};
use crate::txm::node::code;
use crate::txm::outcome::Outcome;
use crate::txm::rollbacks::{Confirmed, Repeated, confirm, follow, send_again, still_included};
use crate::verdict::Reason;
use IntentState::{Accepted, Displaced, Lost, Rejected, Sent, Succeeded};
use core::time::Duration;

fn reason<T>(result: Result<T, Outcome>) -> Result<T, Option<Reason>> {
    result.map_err(|outcome| outcome.reason())
}

/// A journal with these intents, of which the chain shows some.
fn shown(intents: &[Intent], shown: &[i64]) -> Script {
    let script = Script::with(intents);
    script.state().receipts = shown.iter().map(|id| (hash(*id), receipt())).collect();
    script
}

fn included_in(number: u64, id: i64) -> Intent {
    let mut included = intent(id, id.unsigned_abs(), Succeeded);
    if let Some(block) = &mut included.included {
        block.number = number;
    }
    included
}

fn states<const N: usize>(script: &Script, ids: [i64; N]) -> [IntentState; N] {
    ids.map(|id| script.state_of(id))
}

/// Follows twice, with the time in between that settles a block. Returns the second actions.
fn follow_twice(script: &Script) -> Vec<String> {
    run(follow(script, EPOCH, GRACE)).expect("the node answers");
    script.done();
    script.state().now += Duration::from_secs(2);
    run(follow(script, EPOCH, GRACE)).expect("the node answers");
    script.done()
}

const GRACE: Duration = Duration::from_secs(10);

#[test]
fn an_included_transaction_is_there_or_gone_or_unseen() {
    let included = intent(1, 7, Succeeded);
    let confirmed = |script: &Script| {
        let found = reason(run(confirm(script, &included)));
        let included = reason(run(still_included(script, &included)));
        (
            found,
            included.map(|it| it.is_some()),
            script.state().later_us / 1_000,
        )
    };
    let script = shown(core::slice::from_ref(&included), &[1]);
    assert_eq!(confirmed(&script), (Ok(Confirmed::Shown), Ok(true), 0));
    assert!(
        !script.done().contains(&"notes 1 back".into()),
        "that is no news"
    );
    script.state().is_away = true;
    assert_eq!(
        confirmed(&script),
        (Ok(Confirmed::Unavailable), Ok(true), 0)
    );
    let unseen = shown(core::slice::from_ref(&included), &[]);
    unseen.state().blocks.remove(&10);
    let expected = (
        Ok(Confirmed::Unknown),
        Err(Some(Reason::OutcomeUnknown)),
        9_000,
    );
    assert_eq!(
        confirmed(&unseen),
        expected,
        "4.5 s each: a poll more would take the whole 5 s"
    );
    let gone = shown(core::slice::from_ref(&included), &[]);
    assert_eq!(confirmed(&gone), (Ok(Confirmed::Displaced), Ok(false), 0));
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
    assert_eq!(
        reason(run(confirm(&script, &foreign))),
        Err(Some(Reason::PinsUnproven))
    );
    assert_eq!(script.state_of(1), Succeeded);
}

#[test]
fn blocks_below_one_that_is_there_are_there() {
    let newest = [included_in(12, 1), included_in(11, 2), included_in(10, 3)];
    let script = shown(&newest, &[2]);
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    assert_eq!(
        states(&script, [1, 2, 3]),
        [Displaced, Succeeded, Succeeded]
    );
    let looks = script
        .done()
        .iter()
        .filter(|it| *it == "2 is succeeded")
        .count();
    assert_eq!(looks, 1, "it is enough to look once");
}

#[test]
fn all_included_ones_are_followed_while_they_are_gone() {
    let all: Vec<Intent> = (1..=40).map(|id| included_in(10, id)).collect();
    let script = shown(&all, &[]);
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    assert!(all.iter().all(|it| script.state_of(it.id.0) == Displaced));
}

#[test]
fn one_whose_block_is_unknown_says_nothing_of_those_below() {
    let unknown = Intent {
        included: None,
        ..intent(1, 7, Succeeded)
    };
    let script = shown(&[unknown, included_in(10, 2)], &[]);
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    assert_eq!(states(&script, [1, 2]), [Succeeded, Displaced]);
}

#[test]
fn a_displaced_one_returns_with_its_receipt() {
    for other in [Displaced, Lost] {
        let script = shown(&[intent(1, 7, other), intent(2, 7, Displaced)], &[1]);
        run(follow(&script, EPOCH, GRACE)).expect("the node answers");
        assert_eq!(script.state_of(1), Succeeded, "{other:?}");
        assert!(script.done().contains(&"notes 1 back".into()), "{other:?}");
    }
    let script = shown(&[intent(1, 7, Rejected), intent(2, 7, Displaced)], &[1]);
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    assert_eq!(
        script.state_of(1),
        Rejected,
        "what was rejected never was there"
    );
}

/// A chain whose block 10 has another transaction with nonce 7, which is used.
fn taken(intents: &[Intent]) -> Script {
    let script = shown(intents, &[]);
    script.state().nonces = [Ok(8)].into();
    script.state().later_us = 10_000_000;
    if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
        listed.push((7, hash(9)));
    }
    script
}

#[test]
fn an_intent_is_lost_to_a_settled_transaction_with_its_nonce() {
    for state in [Sent, Displaced] {
        let script = taken(&[intent(1, 7, state)]);
        let done = follow_twice(&script);
        assert_eq!(script.state_of(1), Lost, "{state:?}");
        assert_eq!(
            done,
            ["1 is lost", "notes 1 lost"],
            "what was found is not searched again"
        );
    }
    let fresh = taken(&[intent(1, 7, Sent)]);
    fresh.state().later_us = 9_999_999;
    follow_twice(&fresh);
    assert_eq!(fresh.state_of(1), Sent, "its answer may be on its way");
    for state in [Sent, Displaced] {
        let free = taken(&[intent(1, 7, state)]);
        free.state().nonces = [Ok(7)].into();
        follow_twice(&free);
        assert_eq!(free.state_of(1), state, "its nonce is free");
    }
}

#[test]
fn an_intent_is_lost_to_one_of_ours_without_a_search() {
    let ours = Intent {
        transaction_hash: hash(9),
        ..intent(3, 7, Succeeded)
    };
    let script = taken(&[intent(1, 7, Displaced), intent(2, 7, Displaced), ours]);
    script.state().receipts.insert(hash(9), receipt());
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    assert!(
        !script.done().iter().any(|it| it.starts_with("reads")),
        "it is in the journal"
    );
    follow_twice(&script);
    assert_eq!(states(&script, [1, 2, 3]), [Lost, Lost, Succeeded]);
}

#[test]
fn a_transaction_that_is_rolled_back_takes_no_nonce() {
    let script = taken(&[intent(1, 7, Sent)]);
    run(follow(&script, EPOCH, GRACE)).expect("the node answers");
    if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
        listed.clear();
    }
    follow_twice(&script);
    assert_eq!(script.state_of(1), Sent);
    let own = shown(&[intent(1, 7, Sent)], &[]);
    own.state().nonces = [Ok(8)].into();
    own.state().later_us = 10_000_000;
    if let Some((_, listed)) = own.state().blocks.get_mut(&10) {
        listed.push((7, hash(1)));
    }
    follow_twice(&own);
    assert_eq!(own.state_of(1), Sent, "it is its own transaction");
}

#[test]
fn blocks_are_searched_since_the_signature_and_then_before() {
    let listed_in = |at: u64, head: u64| {
        let script = shown(&[intent(1, 7, Sent)], &[]);
        let block = |number: u64| {
            let listed = if number == at {
                vec![(7, hash(9))]
            } else {
                vec![]
            };
            (number, (hash(number as i64), listed))
        };
        script.state().blocks = (0..=head).map(block).collect();
        script.state().nonces = [Ok(8)].into();
        script.state().later_us = 10_000_000;
        script
    };
    let reads = |done: &[String]| {
        let numbers = done.iter().filter_map(|it| it.strip_prefix("reads block "));
        let numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
        numbers.first().copied().zip(numbers.last().copied())
    };
    for (at, head, first, second, why) in [
        (10, 20, (5, 10), None, "it was signed at block 5"),
        (
            3,
            20,
            (5, 20),
            Some((0, 3)),
            "the head was ahead of the nonce",
        ),
        (90, 100, (5, 68), Some((69, 90)), "64 blocks at a time"),
        (69, 69, (5, 68), Some((69, 69)), "up to the head"),
    ] {
        let script = listed_in(at, head);
        run(follow(&script, EPOCH, GRACE)).expect("the node answers");
        assert_eq!(reads(&script.done()), Some(first), "{why}");
        run(follow(&script, EPOCH, GRACE)).expect("the node answers");
        assert_eq!(reads(&script.done()), second, "{why}");
    }
}

#[test]
fn a_displaced_transaction_is_sent_again_while_its_nonce_is_free() {
    let displaced = intent(1, 7, Displaced);
    let again = |others: &[Intent], next, answers: &[i64]| {
        let script = Script::with(&[others, core::slice::from_ref(&displaced)].concat());
        script.state().nonces = [Ok(next)].into();
        script.state().added = answers.iter().map(|code| returned(*code)).collect();
        let found = reason(run(send_again(&script, &displaced)));
        let sent = script
            .done()
            .into_iter()
            .filter(|it| it.starts_with("sends"));
        (
            found,
            sent.map(|it| it["sends ".len()..].to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let below = |id, state| intent(id, 6, state);
    let hex = |ids: &[i64]| {
        ids.iter()
            .map(|id| hash(*id).to_string())
            .collect::<Vec<_>>()
    };
    let open = || Err(Some(Reason::InProgress));
    let accepted = || Ok(Repeated::Accepted);
    let refused = [code::VALIDATION_FAILURE];
    for (others, next, answers, expected, sent, why) in [
        (
            &[][..],
            7,
            &[][..],
            accepted(),
            &[1][..],
            "it is the next one",
        ),
        (&[], 8, &[], open(), &[], "its nonce is used"),
        (&[], 6, &[], accepted(), &[1], "one below it is free"),
        (
            &[],
            7,
            &refused,
            Ok(Repeated::Refused),
            &[1],
            "it may be signed anew",
        ),
        (&[], 6, &refused, open(), &[1], "it might be executed twice"),
        (
            &[intent(2, 7, Accepted)],
            7,
            &[],
            open(),
            &[],
            "another of ours has it",
        ),
        (
            &[intent(2, 7, Rejected)],
            7,
            &[],
            accepted(),
            &[1],
            "that has no nonce",
        ),
        (
            &[below(2, Displaced)],
            6,
            &[],
            accepted(),
            &[2, 1],
            "the one below it first",
        ),
        (
            &[below(2, Displaced)],
            7,
            &[],
            accepted(),
            &[1],
            "that one's nonce is used",
        ),
        (
            &[below(2, Displaced), below(3, Displaced)],
            6,
            &[],
            accepted(),
            &[3, 1],
            "the newest",
        ),
        (
            &[below(2, Displaced), below(3, Sent)],
            6,
            &[],
            accepted(),
            &[1],
            "that is under way",
        ),
    ] {
        assert_eq!(again(others, next, answers), (expected, hex(sent)), "{why}");
    }
    let script = shown(core::slice::from_ref(&displaced), &[1]);
    assert_eq!(
        reason(run(send_again(&script, &displaced))),
        Ok(Repeated::Shown)
    );
    assert_eq!(script.state_of(1), Succeeded);
}
