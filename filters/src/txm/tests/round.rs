//! Rounds over everything that is not final.

use super::rollbacks::shown;
use super::script::Script;
use super::{EPOCH, hash, intent, receipt, returned, run};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId, IntentState};
use crate::txm::fate::lose_if_settled;
use crate::txm::io::Io as _;
use crate::txm::node::Receipt;
use crate::txm::round::pass_all;
use crate::txm::sightings::nonce_use;
use IntentState::{Accepted, Displaced, Lost, Rejected, Reverted, Sent, Succeeded};
use alloc::sync::Arc;
use core::time::Duration;

/// A journal with these intents.
fn watching(intents: &[Intent]) -> Arc<Script> {
    Arc::new(Script::with(intents))
}

/// A journal with these intents, of which the chain shows some.
fn showing(intents: &[Intent], ids: &[i64]) -> Arc<Script> {
    Arc::new(shown(intents, ids))
}

/// Passes everything once.
fn pass(script: &Arc<Script>) {
    run(pass_all(script, EPOCH)).expect("the journal answers");
}

/// An error of the node that decides nothing.
const INTERNAL: i64 = -32603;

/// An intent of a user's account.
fn of_user(id: i64, state: IntentState) -> Intent {
    Intent {
        signer: Felt::from(0xdd_u64),
        ..intent(id, 7, state)
    }
}

fn included_in(number: u64, id: i64) -> Intent {
    let mut included = intent(id, id.unsigned_abs(), Succeeded);
    if let Some(block) = &mut included.included {
        block.number = number;
    }
    included
}

fn states<const N: usize>(script: &Arc<Script>, ids: [i64; N]) -> [IntentState; N] {
    ids.map(|id| script.state_of(id))
}

/// Follows twice, with the time in between that settles a block. Returns the second actions.
fn follow_twice(script: &Arc<Script>) -> Vec<String> {
    pass(script);
    script.done();
    script.state().now += Duration::from_secs(2);
    pass(script);
    let mut done = script.done();
    done.retain(|it| !it.contains("locks"));
    done
}

#[test]
fn blocks_below_one_that_is_there_are_there() {
    let newest = [included_in(12, 1), included_in(11, 2), included_in(10, 3)];
    let script = showing(&newest, &[]);
    let block = Some((11, hash(2)));
    let in_place = Receipt { block, ..receipt() };
    script.state().receipts.insert(hash(2), in_place);
    pass(&script);
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
fn a_moved_transaction_hides_no_lost_one() {
    let newest: Vec<Intent> = (1..=40_i64)
        .map(|id| included_in(50 - id.unsigned_abs(), id))
        .collect();
    // all but the oldest are in another block now
    let moved: Vec<i64> = (1..40).collect();
    let script = showing(&newest, &moved);
    pass(&script);
    assert_eq!(
        states(&script, [1, 39, 40]),
        [Succeeded, Succeeded, Displaced]
    );
}

#[test]
fn one_without_a_block_that_no_node_shows_is_in_doubt() {
    let unknown = || Intent {
        included: None,
        ..intent(1, 7, Succeeded)
    };
    for (seconds, ids, next, expected, why) in [
        (
            30,
            vec![],
            8,
            Displaced,
            "another one has its nonce, perhaps",
        ),
        (30, vec![], 7, Displaced, "its nonce is free"),
        (29, vec![], 8, Succeeded, "not long enough"),
        (30, vec![1], 8, Succeeded, "it is shown"),
    ] {
        let script = showing(&[unknown()], &ids);
        script.state().later_us = seconds * 1_000_000;
        script.state().nonces = [Ok(next)].into();
        pass(&script);
        assert_eq!(script.state_of(1), expected, "{why}");
    }
}

#[test]
fn all_included_ones_are_followed_while_they_are_gone() {
    let all: Vec<Intent> = (1..=40).map(|id| included_in(10, id)).collect();
    let script = showing(&all, &[]);
    pass(&script);
    assert!(all.iter().all(|it| script.state_of(it.id.0) == Displaced));
}

#[test]
fn those_of_unknown_blocks_hide_no_other() {
    let unknown = |id| Intent {
        included: None,
        ..intent(id, 7, Succeeded)
    };
    let mut all: Vec<Intent> = (2..=40).map(unknown).collect();
    all.push(included_in(10, 1));
    let script = showing(&all, &[2, 30]);
    pass(&script);
    assert_eq!(states(&script, [1, 40]), [Displaced, Succeeded]);
    assert_eq!(included(&script), [30], "its block is known now");
    for _ in 0..2 {
        pass(&script);
    }
    assert_eq!(included(&script), [2, 30], "each gets its turn");
}

/// The intents whose inclusion was recorded, by their ids.
fn included(script: &Arc<Script>) -> Vec<i64> {
    let state = script.state();
    let recorded = |it: &&Intent| state.done.contains(&format!("{} is succeeded", it.id));
    state
        .intents
        .iter()
        .filter(recorded)
        .map(|it| it.id.0)
        .collect()
}

#[test]
fn a_displaced_one_returns_with_its_receipt() {
    for other in [Displaced, Lost] {
        let script = showing(&[intent(1, 7, other), intent(2, 7, Displaced)], &[1]);
        pass(&script);
        assert_eq!(script.state_of(1), Succeeded, "{other:?}");
        assert!(script.done().contains(&"notes 1 back".into()), "{other:?}");
    }
    let script = showing(&[intent(1, 7, Rejected), intent(2, 7, Displaced)], &[1]);
    pass(&script);
    assert_eq!(
        script.state_of(1),
        Rejected,
        "what was rejected never was there"
    );
}

/// A chain whose block 10 has another transaction with nonce 7, which is used.
fn taken(intents: &[Intent]) -> Arc<Script> {
    let script = showing(intents, &[]);
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
        let expected = if state == Sent { Accepted } else { state };
        assert_eq!(free.state_of(1), expected, "its nonce is free");
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
    pass(&script);
    assert!(
        !script.done().iter().any(|it| it.starts_with("reads")),
        "it is in the journal"
    );
    follow_twice(&script);
    assert_eq!(states(&script, [1, 2, 3]), [Lost, Lost, Succeeded]);
}

#[test]
fn an_intent_is_no_witness_against_itself() {
    let script = showing(&[intent(1, 7, Succeeded)], &[1]);
    if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
        listed.push((7, hash(1)));
    }
    let read_before = intent(1, 7, Displaced);
    run(lose_if_settled(&*script, &read_before)).expect("the node answers");
    let done = script.done();
    let is_search = |it: &String| it.starts_with("reads block");
    assert!(done.iter().all(is_search), "others are sought: {done:?}");
}

#[test]
fn a_transaction_that_is_rolled_back_takes_no_nonce() {
    let script = taken(&[intent(1, 7, Sent)]);
    pass(&script);
    if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
        listed.clear();
    }
    follow_twice(&script);
    assert_eq!(script.state_of(1), Sent);
    let own = showing(&[intent(1, 7, Sent)], &[]);
    own.state().nonces = [Ok(8)].into();
    own.state().later_us = 10_000_000;
    if let Some((_, listed)) = own.state().blocks.get_mut(&10) {
        listed.push((7, hash(1)));
    }
    follow_twice(&own);
    assert_eq!(own.state_of(1), Sent, "it is its own transaction");
}

#[test]
fn a_block_in_place_of_the_witness_settles_nothing() {
    let both = [1, 2].map(|id| intent(id, 7, Displaced));
    let script = taken(&both);
    let look = |it: &Intent| run(lose_if_settled(&*script, it)).expect("the node answers");
    both.iter().for_each(look);
    script.state().blocks.insert(10, (hash(99), Vec::new()));
    // the search for one of them shows the other block, and finds it settled for the other one
    look(&both[0]);
    script.state().now += Duration::from_secs(3);
    look(&both[1]);
    assert_eq!(states(&script, [1, 2]), [Displaced, Displaced]);
}

#[test]
fn blocks_are_searched_since_the_signature_and_then_before() {
    let listed_in = |at: u64, head: u64| {
        let script = showing(&[intent(1, 7, Sent)], &[]);
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
        pass(&script);
        assert_eq!(reads(&script.done()), Some(first), "{why}");
        pass(&script);
        assert_eq!(reads(&script.done()), second, "{why}");
    }
}

/// How often each of these was sent.
fn sends(script: &Arc<Script>, ids: [i64; 3]) -> [usize; 3] {
    let done = script.done();
    ids.map(|id| {
        let sent = format!("sends {}", hash(id));
        done.iter().filter(|it| **it == sent).count()
    })
}

#[test]
fn the_doubt_of_one_transaction_ends_no_round() {
    let script = watching(&[1, 2, 3].map(|id| of_user(id, Sent)));
    script.state().later_us = 10_000_000;
    script.state().added = [returned(INTERNAL), returned(63), Ok(hash(3))].into();
    pass(&script);
    assert_eq!(states(&script, [1, 2, 3]), [Sent, Sent, Accepted]);
    assert_eq!(sends(&script, [1, 2, 3]), [1, 1, 1]);
}

#[test]
fn nothing_is_sent_again_within_ten_seconds() {
    let script = watching(&[1, 2, 3].map(|id| of_user(id, Sent)));
    script.state().later_us = 10_000_000;
    for (millis, expected) in [(0, 1), (2_000, 0), (7_999, 0), (1, 1)] {
        script.state().now += Duration::from_millis(millis);
        script.state().added = [returned(INTERNAL), returned(INTERNAL), returned(INTERNAL)].into();
        pass(&script);
        assert_eq!(
            sends(&script, [1, 2, 3]),
            [expected; 3],
            "{millis} ms later"
        );
    }
}

#[test]
fn a_user_whom_the_node_answers_nothing_waits_longer() {
    for (open, expected, why) in [
        (of_user(1, Sent), [1, 1, 0, 1], "the pause doubles"),
        (intent(1, 7, Sent), [1, 1, 1, 1], "our writes wait for it"),
    ] {
        let script = watching(&[open]);
        script.state().later_us = 10_000_000;
        let sent = expected.map(|_| {
            script.state().added = [returned(INTERNAL)].into();
            pass(&script);
            script.state().now += Duration::from_secs(10);
            sends(&script, [1, 2, 3])[0]
        });
        assert_eq!(sent, expected, "{why}");
    }
}

#[test]
fn searches_end_with_the_intents_that_a_round_passes() {
    let page: Vec<Intent> = (40..=103).map(|id| intent(id, 7, Displaced)).collect();
    let script = watching(&page);
    script.memory(|memory| memory.displaced = Some(IntentId(105)));
    let searched = |id| {
        script.done();
        let _open = run(nonce_use(&*script, &intent(id, 7, Displaced), None));
        script.done().first().cloned()
    };
    let ids = [39, 40, 103, 104, 105, 110];
    for id in ids {
        assert_eq!(searched(id).as_deref(), Some("reads block 5"), "{id}");
    }
    pass(&script);
    // one that goes on has reached the head, and begins further back
    let goes_on = ids.map(|id| searched(id).as_deref() == Some("reads block 0"));
    let expected = [true, true, true, false, true, true];
    assert_eq!(
        goes_on, expected,
        "only 104 is on the page, and not in doubt"
    );
}

#[test]
fn users_are_passed_once_at_a_time() {
    let script = watching(&[1, 2, 3].map(|id| of_user(id, Sent)));
    script.state().later_us = 10_000_000;
    script.memory(|memory| memory.passes_users = true);
    pass(&script);
    assert_eq!(sends(&script, [1, 2, 3]), [0; 3], "the last ones still are");
    script.memory(|memory| memory.passes_users = false);
    pass(&script);
    assert_eq!(sends(&script, [1, 2, 3]), [1; 3]);
    assert!(!script.memory(|memory| memory.passes_users), "it is over");
}

#[test]
fn a_round_waits_for_no_receipt() {
    let script = watching(&[1, 2, 3].map(|id| of_user(id, Sent)));
    script.state().later_us = 10_000_000;
    let began = script.state().now;
    pass(&script);
    assert_eq!(states(&script, [1, 2, 3]), [Accepted; 3]);
    assert_eq!(script.state().now, began);
}

#[test]
fn every_open_intent_gets_its_turn() {
    let all: Vec<Intent> = (1..=150).map(|id| of_user(id, Sent)).collect();
    let script = watching(&all);
    script.state().later_us = 10_000_000;
    for _ in 0..3 {
        pass(&script);
    }
    let is_accepted = |it: &Intent| script.state_of(it.id.0) == Accepted;
    assert!(all.iter().all(is_accepted));
}

#[test]
fn every_displaced_intent_gets_its_turn() {
    let all: Vec<Intent> = (1..=150).map(|id| intent(id, 7, Displaced)).collect();
    let shown_ids: Vec<i64> = (1..=150).collect();
    let script = showing(&all, &shown_ids);
    for expected in [86, 22, 0] {
        pass(&script);
        let is_displaced = |it: &&Intent| script.state_of(it.id.0) == Displaced;
        assert_eq!(all.iter().filter(is_displaced).count(), expected);
    }
}

#[test]
fn a_block_that_cannot_be_read_is_searched_by_its_hashes() {
    let script = taken(&[intent(1, 7, Sent)]);
    script.state().unreadable = [10].into();
    let done = follow_twice(&script);
    assert_eq!(script.state_of(1), Lost, "{done:?}");
}

#[test]
fn a_block_that_cannot_be_read_at_all_is_passed_and_noted_once() {
    let script = taken(&[intent(1, 7, Sent)]);
    script.state().unreadable = [6].into();
    script.state().unlisted = [6].into();
    pass(&script);
    let done = script.done();
    let noted = done.iter().filter(|it| it.contains("unreadable")).count();
    assert_eq!(noted, 1, "{done:?}");
    script.state().now += Duration::from_secs(2);
    pass(&script);
    assert_eq!(script.state_of(1), Lost, "block 10 has another transaction");
}

#[test]
fn one_intent_whose_block_cannot_be_read_holds_no_other_up() {
    let other = Intent {
        nonce: 6,
        ..intent(2, 6, Sent)
    };
    let script = taken(&[intent(1, 7, Sent), other]);
    if let Some((_, listed)) = script.state().blocks.get_mut(&11) {
        listed.push((6, hash(8)));
    }
    let numbers: Vec<u64> = (5..=10).collect();
    script.state().unreadable = numbers.iter().copied().collect();
    script.state().unlisted = numbers.into_iter().collect();
    follow_twice(&script);
    assert_eq!(states(&script, [1, 2]), [Sent, Lost]);
}

#[test]
fn a_reverted_drip_that_succeeds_is_reported_as_double() {
    let drip = |id, nonce, state| Intent {
        operation: "faucet-drip".into(),
        subject: Some(hash(5)),
        ..intent(id, nonce, state)
    };
    let other = || Some(drip(2, 8, Succeeded));
    for (other, outcome, expected) in [
        (other(), Ok(()), 1),
        (other(), Err(None), 0),
        (None, Ok(()), 0),
    ] {
        for before in [Reverted, Displaced] {
            let mut script = shown(&[drip(1, 7, before)], &[]);
            let outcome = outcome.clone();
            let shown = Receipt {
                outcome,
                ..receipt()
            };
            script.state().receipts.insert(hash(1), shown.clone());
            script.chain.last = other.clone();
            let script = Arc::new(script);
            pass(&script);
            assert_eq!(script.state_of(1) == Succeeded, shown.outcome.is_ok());
            let done = script.done();
            let noted = done
                .iter()
                .filter(|it| *it == "notes 1 paid in addition to 2");
            assert_eq!(noted.count(), expected, "{before:?}: {done:?}");
        }
    }
}
