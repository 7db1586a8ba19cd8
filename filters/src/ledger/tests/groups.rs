//! The rules for commands that share a transaction.

use super::{NOW, STRK, facts, new, stored};
use crate::ledger::group::{Changing, Decisions, Effect, Ended, NoReply, replied};
use crate::ledger::{
    Budgets, Change, Intended, IntentId, IntentState, Intention, NewIntent, OverBudget,
};
use alloc::vec;
use core::time::Duration;

/// Whether the second of two new intents waits for the next group.
fn is_postponed(first: &NewIntent<'_>, second: &NewIntent<'_>) -> bool {
    let mut decisions = Decisions::default();
    let decided = decisions.intention(first, &facts(&[]), NOW);
    assert!(matches!(decided, Some(Intention::Insert(_))), "{decided:?}");
    decisions.intention(second, &facts(&[]), NOW).is_none()
}

#[test]
fn what_a_group_stored_is_not_missed() {
    let first = NewIntent {
        idempotency_key: Some("k"),
        ..new(1)
    };
    let plain = NewIntent {
        identity: None,
        ..new(2)
    };
    let cooldown = Some(Duration::from_secs(60));
    let subject = first.subject;
    let budgets = Budgets {
        drips: Some(9),
        fees: None,
    };
    for (second, expected, why) in [
        (new(2), false, "nothing in common"),
        (
            NewIntent {
                nonce: first.nonce,
                ..new(2)
            },
            true,
            "its slot",
        ),
        (
            NewIntent {
                digest: first.digest,
                ..new(2)
            },
            true,
            "its request",
        ),
        (
            NewIntent {
                transaction_hash: first.transaction_hash,
                ..new(2)
            },
            true,
            "its transaction",
        ),
        (
            NewIntent {
                idempotency_key: Some("k"),
                ..new(2)
            },
            true,
            "its key",
        ),
        (
            NewIntent {
                identity: first.identity,
                ..new(2)
            },
            true,
            "its identity",
        ),
        (NewIntent { subject, ..new(2) }, true, "its recipient"),
        (NewIntent { subject, ..plain }, false, "without a cooldown"),
        (
            NewIntent {
                subject,
                cooldown,
                ..plain
            },
            true,
            "within a cooldown",
        ),
        (NewIntent { budgets, ..new(2) }, true, "the drips of a day"),
        (
            NewIntent {
                nonce: first.nonce,
                epoch: "b",
                ..new(2)
            },
            false,
            "another epoch",
        ),
    ] {
        assert_eq!(is_postponed(&first, &second), expected, "{why}");
    }
}

#[test]
fn a_refused_one_postpones_no_other() {
    let other_epoch = NewIntent {
        epoch: "b",
        ..new(1)
    };
    let mut decisions = Decisions::default();
    for _ in 0..2 {
        let decided = decisions.intention(&other_epoch, &facts(&[]), NOW);
        let reply = Intended::OtherChain;
        assert_eq!(decided, Some(Intention::Refuse { reply, link: None }));
    }
}

#[test]
fn the_fees_of_a_group_add_up() {
    let costly = |number| NewIntent {
        max_fee: 2 * STRK,
        budgets: Budgets {
            drips: None,
            fees: Some(5 * STRK),
        },
        ..new(number)
    };
    let mut decisions = Decisions::default();
    for number in [1, 2] {
        let decided = decisions.intention(&costly(number), &facts(&[]), NOW);
        assert!(matches!(decided, Some(Intention::Insert(_))), "{number}");
    }
    // the fees by minute, which say until when, were not read
    assert_eq!(decisions.intention(&costly(3), &facts(&[]), NOW), None);
    let spent = facts(&[]);
    let spent = crate::ledger::Facts {
        fees_gfri: 4_000_000_000,
        minutes: vec![(NOW / 60_000_000, 4_000_000_000)],
        ..spent
    };
    let decided = Decisions::default().intention(&costly(3), &spent, NOW);
    let is_over = matches!(
        decided,
        Some(Intention::Refuse {
            reply: Intended::OverBudget(OverBudget { .. }),
            link: None
        })
    );
    assert!(is_over, "{decided:?}");
}

#[test]
fn a_changed_slot_is_not_changed_again() {
    let sent = |id, of: &NewIntent<'_>| stored(id, of, IntentState::Sent);
    let equal = NewIntent {
        digest: new(1).digest,
        ..new(2)
    };
    for (other, expected, why) in [
        (sent(2, &new(2)), false, "another slot and request"),
        (sent(2, &equal), true, "its request"),
        (
            stored(2, &NewIntent { nonce: 1, ..new(2) }, IntentState::Displaced),
            true,
            "its slot",
        ),
    ] {
        let mut decisions = Decisions::default();
        let first = [sent(1, &new(1))];
        let done = decisions.change(IntentId(1), &Change::Accepted, &first, NOW);
        assert!(matches!(done, Changing::Steps(_)), "{done:?}");
        let done = decisions.change(IntentId(2), &Change::Accepted, &[other], NOW);
        assert_eq!(done == Changing::Postponed, expected, "{why}: {done:?}");
    }
}

#[test]
fn bindings_change_in_groups_of_their_own() {
    let of = |number: u8| stored(number.into(), &new(number), IntentState::Sent);
    let rejected = Change::Rejected("why");
    let mut decisions = Decisions::default();
    let done = decisions.change(IntentId(1), &rejected, &[of(1)], NOW);
    assert!(matches!(done, Changing::Steps(_)), "{done:?}");
    for change in [rejected, Change::Accepted] {
        let done = decisions.change(IntentId(2), &change, &[of(2)], NOW);
        assert_eq!(done, Changing::Postponed, "{change:?}");
    }
    let mut decisions = Decisions::default();
    decisions.change(IntentId(2), &Change::Accepted, &[of(2)], NOW);
    let done = decisions.change(IntentId(1), &rejected, &[of(1)], NOW);
    assert_eq!(done, Changing::Postponed, "after another change");
}

#[test]
fn an_unknown_commit_confirms_nothing() {
    use Effect::{Changed, Nothing, Stored};
    for effect in [Nothing, Changed, Stored] {
        assert_eq!(replied(effect, Ended::Committed), Ok(()));
        assert_eq!(replied(effect, Ended::RolledBack), Err(NoReply::Failed));
    }
    assert_eq!(replied(Nothing, Ended::Unknown), Err(NoReply::Failed));
    assert_eq!(replied(Changed, Ended::Unknown), Err(NoReply::Failed));
    assert_eq!(replied(Stored, Ended::Unknown), Err(NoReply::Unconfirmed));
}
