//! The rules for changes of an intent.

use core::slice::from_ref;

use super::{NOW, STRK, felt, new, stored};
use crate::ledger::IntentState::{Accepted, Displaced, Lost, Rejected, Sent, Succeeded};
use crate::ledger::{
    Bound, Change, Inclusion, Intent, IntentId, IntentState, NewIntent, Pair, Rebinding, change,
    gfri,
};

const BLOCK: Inclusion = Inclusion {
    number: 5,
    fingerprint: [5; 32],
};
const OTHER_BLOCK: Inclusion = Inclusion {
    number: 5,
    fingerprint: [6; 32],
};

fn included(block: Option<Inclusion>) -> Change<'static> {
    Change::Included {
        outcome: Ok(()),
        fee: None,
        block,
    }
}

/// The states of the intents that a change moves, in this order.
fn moved(id: i64, change: &Change<'_>, intents: &[Intent]) -> Option<Vec<(i64, IntentState)>> {
    let steps = crate::ledger::change(IntentId(id), change, intents, NOW + 1)?;
    let states = steps
        .steps
        .iter()
        .map(|step| (step.intent.id.0, step.intent.state));
    Some(states.collect())
}

#[test]
fn every_change_follows_the_table() {
    let changes = [
        Change::SentAgain,
        Change::Accepted,
        included(Some(BLOCK)),
        Change::Included {
            outcome: Err(Some("why")),
            fee: None,
            block: Some(BLOCK),
        },
        Change::Rejected("why"),
        Change::Displaced {
            from: None,
            why: "why",
        },
        Change::Lost("why"),
    ];
    for from in IntentState::ALL {
        for change in changes {
            let came = moved(9, &change, &[stored(9, &new(1), from)]);
            let next = change.state();
            let expected = from.may_become(next).then(|| vec![(9, next)]);
            assert_eq!(came, expected, "{from:?} by {change:?}");
        }
    }
}

#[test]
fn a_change_is_recorded_with_its_time_and_reason() {
    let sent = stored(9, &new(1), Sent);
    let reverted = Change::Included {
        outcome: Err(Some("out of gas")),
        fee: None,
        block: None,
    };
    for (change, detail) in [
        (Change::SentAgain, Some("it is sent again")),
        (Change::Accepted, None),
        (included(None), None),
        (reverted, Some("out of gas")),
        (Change::Rejected("refused"), Some("refused")),
        (
            Change::Displaced {
                from: None,
                why: "rolled back",
            },
            Some("rolled back"),
        ),
        (Change::Lost("0x1"), Some("0x1")),
    ] {
        let steps = crate::ledger::change(sent.id, &change, from_ref(&sent), NOW + 7).unwrap();
        let intent = &steps.steps[0].intent;
        assert_eq!(
            (intent.detail.as_deref(), intent.updated_us),
            (detail, NOW + 7),
            "{change:?}"
        );
    }
}

#[test]
fn what_another_process_sends_again_is_not_rejected_by_the_first() {
    let steps = change(
        IntentId(9),
        &Change::SentAgain,
        &[stored(9, &new(1), Sent)],
        NOW,
    )
    .unwrap();
    let again = &steps.steps[0].intent;
    for (change, expected) in [
        (Change::SentAgain, None),
        (Change::Rejected("why"), None),
        (Change::Accepted, Some(vec![(9, Accepted)])),
        (included(Some(BLOCK)), Some(vec![(9, Succeeded)])),
        (
            Change::Displaced {
                from: None,
                why: "why",
            },
            Some(vec![(9, Displaced)]),
        ),
        (Change::Lost("why"), Some(vec![(9, Lost)])),
    ] {
        assert_eq!(moved(9, &change, from_ref(again)), expected, "{change:?}");
    }
}

#[test]
fn only_sending_again_adds_no_journal_entry() {
    let sent = stored(9, &new(1), Sent);
    for (change, expected) in [
        (Change::SentAgain, false),
        (Change::Accepted, true),
        (Change::Rejected("why"), true),
        (included(Some(BLOCK)), true),
    ] {
        let steps = crate::ledger::change(sent.id, &change, from_ref(&sent), NOW).unwrap();
        assert_eq!(steps.steps[0].has_entry(), expected, "{change:?}");
    }
}

#[test]
fn a_refusal_says_nothing_against_a_block() {
    for (state, expected) in [
        (Sent, Some(vec![(9, Displaced)])),
        (Accepted, Some(vec![(9, Displaced)])),
        (Succeeded, None),
        (IntentState::Reverted, None),
    ] {
        let refused = Change::Doubted("refused");
        let found = moved(9, &refused, &[stored(9, &new(1), state)]);
        assert_eq!(found, expected, "{state:?}");
    }
}

#[test]
fn an_inclusion_is_recorded_once_per_block() {
    let known = Intent {
        included: Some(BLOCK),
        ..stored(9, &new(1), Succeeded)
    };
    assert_eq!(moved(9, &included(Some(BLOCK)), from_ref(&known)), None);
    assert_eq!(moved(9, &included(None), from_ref(&known)), None);
    let steps = change(IntentId(9), &included(Some(OTHER_BLOCK)), &[known], NOW).unwrap();
    assert_eq!(steps.steps[0].intent.included, Some(OTHER_BLOCK));
    assert!(!steps.steps[0].withdraws, "it is the same outcome");
}

#[test]
fn evidence_against_a_former_block_displaces_nothing() {
    let moved_on = Intent {
        included: Some(OTHER_BLOCK),
        ..stored(9, &new(1), Succeeded)
    };
    let sent_again = Intent {
        state: Accepted,
        ..moved_on.clone()
    };
    for (from, expected, why) in [
        (Some(BLOCK), None, "another block had it since"),
        (Some(OTHER_BLOCK), Some(vec![(9, Displaced)]), "it is gone"),
        (None, Some(vec![(9, Displaced)]), "wherever it was"),
    ] {
        let gone = Change::Displaced { from, why: "gone" };
        for intent in [&moved_on, &sent_again] {
            assert_eq!(moved(9, &gone, from_ref(intent)), expected, "{why}");
        }
    }
}

#[test]
fn a_receipt_states_what_it_cost() {
    let costly = stored(
        9,
        &NewIntent {
            max_fee: STRK,
            ..new(1)
        },
        Sent,
    );
    let fee = |intent: &Intent, fee| {
        let change = Change::Included {
            outcome: Ok(()),
            fee,
            block: None,
        };
        let steps = crate::ledger::change(intent.id, &change, from_ref(intent), NOW).unwrap();
        steps.steps[0].intent.fee_gfri
    };
    assert_eq!(fee(&costly, Some(STRK / 2)), gfri(STRK / 2));
    assert_eq!(fee(&costly, None), gfri(STRK));
    assert_eq!(
        fee(&stored(9, &new(1), Sent), Some(STRK)),
        0,
        "a user pays for it"
    );
}

#[test]
fn a_chain_has_one_transaction_of_a_slot() {
    let mine = Intent {
        included: Some(BLOCK),
        ..stored(9, &new(1), Displaced)
    };
    for state in IntentState::ALL {
        let other = stored(3, &NewIntent { nonce: 1, ..new(2) }, state);
        let elsewhere = stored(4, &new(4), Sent);
        let intents = [other, mine.clone(), elsewhere];
        let came = moved(9, &included(None), &intents);
        let first = state.occupies().then_some((3, Displaced));
        let expected = first.into_iter().chain([(9, Succeeded)]).collect();
        assert_eq!(came, Some(expected), "{state:?}");
    }
    let steps = change(IntentId(9), &included(None), &[mine], NOW).unwrap();
    assert_eq!(steps.steps[0].intent.included, Some(BLOCK), "it is kept");
}

#[test]
fn lost_intents_are_in_doubt_again_with_their_witness() {
    let witness = stored(9, &new(1), Succeeded);
    let lost = stored(3, &NewIntent { nonce: 1, ..new(2) }, Lost);
    let gone = Change::Displaced {
        from: None,
        why: "gone",
    };
    let intents = [lost.clone(), witness.clone()];
    assert_eq!(
        moved(9, &gone, &intents),
        Some(vec![(9, Displaced), (3, Displaced)])
    );
    assert_eq!(
        moved(9, &included(Some(BLOCK)), &intents),
        Some(vec![(9, Succeeded)])
    );
    let rejected = Intent {
        state: Rejected,
        ..lost.clone()
    };
    assert_eq!(
        moved(9, &gone, &[rejected, witness.clone()]),
        Some(vec![(9, Displaced)])
    );
    for state in IntentState::ALL {
        let anew = Intent {
            id: IntentId(12),
            nonce: 7,
            state,
            ..lost.clone()
        };
        let anew = Intent {
            transaction_hash: felt(3),
            ..anew
        };
        let came = moved(9, &gone, &[lost.clone(), witness.clone(), anew]).unwrap();
        assert_eq!(
            came.len(),
            if state.holds() { 1 } else { 2 },
            "written anew: {state:?}"
        );
    }
    let anew = Intent {
        id: IntentId(12),
        nonce: 7,
        state: Sent,
        ..lost.clone()
    };
    let anew = Intent {
        transaction_hash: felt(3),
        ..anew
    };
    let other = Intent {
        digest: [8; 32],
        ..anew.clone()
    };
    let elsewhere = Intent {
        epoch: "b".into(),
        ..anew
    };
    for unrelated in [other, elsewhere] {
        let came = moved(9, &gone, &[lost.clone(), witness.clone(), unrelated]);
        assert_eq!(came, Some(vec![(9, Displaced), (3, Displaced)]));
    }
}

#[test]
fn a_transaction_has_one_intent() {
    let lost = stored(3, &new(1), Lost);
    let again = stored(9, &new(1), Sent);
    assert_eq!(
        moved(3, &included(Some(BLOCK)), &[lost.clone(), again.clone()]),
        None
    );
    let other = stored(9, &NewIntent { nonce: 1, ..new(2) }, Sent);
    let returned = moved(3, &included(Some(BLOCK)), &[lost.clone(), other]);
    assert_eq!(
        returned,
        Some(vec![(9, Displaced), (3, Succeeded)]),
        "another transaction"
    );
    let intents = [lost, again];
    assert_eq!(
        moved(
            9,
            &Change::Displaced {
                from: None,
                why: "gone"
            },
            &intents
        ),
        Some(vec![(9, Displaced)])
    );
}

/// A transaction that was lost, stored again and lost again has two intents; one of them returns.
#[test]
fn one_of_two_lost_intents_of_a_transaction_returns() {
    let gone = Change::Displaced {
        from: None,
        why: "gone",
    };
    let [first, second] = [3, 5].map(|id| stored(id, &new(1), Lost));
    let witness = stored(
        9,
        &NewIntent {
            nonce: first.nonce,
            ..new(2)
        },
        Succeeded,
    );
    let lost = [first.clone(), second.clone()];
    let intents = [&lost[..], &[witness]].concat();
    assert_eq!(
        moved(9, &gone, &intents),
        Some(vec![(9, Displaced), (5, Displaced)])
    );
    for id in [3, 5] {
        assert_eq!(
            moved(id, &gone, &lost),
            Some(vec![(id, Displaced)]),
            "it returned by itself"
        );
    }
}

#[test]
fn what_is_sent_again_needs_its_slot_and_its_request() {
    let displaced = stored(3, &new(1), Displaced);
    let came = |other| moved(3, &Change::Accepted, &[displaced.clone(), other]);
    for state in IntentState::ALL {
        let taken = came(stored(9, &NewIntent { nonce: 1, ..new(2) }, state));
        assert_eq!(taken.is_none(), state.occupies(), "{state:?}");
        let equal = NewIntent {
            digest: [1; 32],
            ..new(2)
        };
        let taken = came(stored(9, &equal, state));
        assert_eq!(taken.is_none(), state.is_unresolved(), "{state:?}");
    }
}

#[test]
fn an_answer_goes_with_what_it_reports() {
    let withdraws = |from, change: &Change<'_>| {
        let steps =
            crate::ledger::change(IntentId(9), change, &[stored(9, &new(1), from)], NOW).unwrap();
        steps.steps[0].withdraws
    };
    let reverted = Change::Included {
        outcome: Err(None),
        fee: None,
        block: Some(BLOCK),
    };
    assert!(withdraws(Sent, &Change::Rejected("why")));
    assert!(withdraws(Displaced, &Change::Lost("why")));
    assert!(withdraws(Succeeded, &reverted), "the other outcome");
    assert!(withdraws(Displaced, &included(None)));
    assert!(
        withdraws(Displaced, &Change::Accepted),
        "its end is open again"
    );
    assert!(
        !withdraws(Accepted, &included(None)),
        "nothing was answered"
    );
    assert!(
        !withdraws(
            Succeeded,
            &Change::Displaced {
                from: None,
                why: "why"
            }
        ),
        "it is in doubt"
    );
}

/// The changes of bindings that follow from a change of an intent, if the table has `bound`.
fn rebound(id: i64, change: &Change<'_>, slot: &[Intent], bound: &[Bound]) -> Vec<Rebinding> {
    let steps = crate::ledger::change(IntentId(id), change, slot, NOW).unwrap();
    if steps.of_interest().is_empty() {
        Vec::new()
    } else {
        steps.rebind(bound)
    }
}

#[test]
fn a_binding_follows_the_slot() {
    let (mine, other) = (new(1), NewIntent { nonce: 1, ..new(2) });
    let pair = |new: &NewIntent<'_>| Pair {
        identity: new.identity.unwrap(),
        recipient: new.subject.unwrap(),
    };
    let bound = |new: &NewIntent<'_>| Bound {
        pair: pair(new),
        is_in_force: true,
        is_held: false,
    };
    let release = |new: &NewIntent<'_>| Rebinding::Release(pair(new));
    let rejected = Change::Rejected("why");
    let alone = [stored(3, &mine, Sent)];
    assert_eq!(
        rebound(3, &rejected, &alone, &[bound(&mine)]),
        [release(&mine)]
    );
    let held = Bound {
        is_held: true,
        ..bound(&mine)
    };
    assert_eq!(
        rebound(3, &rejected, &alone, &[held]),
        [],
        "another drip holds it"
    );
    assert_eq!(
        rebound(3, &Change::Accepted, &alone, &[]),
        [],
        "nothing moves"
    );
    let strangers = [stored(3, &mine, Displaced), stored(9, &other, Sent)];
    let both = [bound(&mine), bound(&other)];
    assert_eq!(
        rebound(3, &included(None), &strangers, &both),
        [],
        "neither excludes the other"
    );
    // the same identity for another recipient, in the same slot
    let rival = NewIntent {
        identity: mine.identity,
        ..other
    };
    let slot = [stored(3, &mine, Displaced), stored(9, &rival, Sent)];
    let back = vec![release(&rival), Rebinding::Bind(pair(&mine))];
    assert_eq!(
        rebound(9, &rejected, &slot, &[bound(&rival)]),
        back,
        "it returns"
    );
    assert_eq!(
        rebound(3, &included(None), &slot, &[bound(&rival)]),
        back,
        "the chain has it"
    );
    let kept = Bound {
        is_held: true,
        ..bound(&rival)
    };
    assert_eq!(
        rebound(3, &included(None), &slot, &[kept]),
        [],
        "unless another slot holds it"
    );
    let lost = [stored(3, &mine, Lost), stored(9, &rival, Succeeded)];
    let gone = Change::Displaced {
        from: None,
        why: "gone",
    };
    assert_eq!(
        rebound(9, &gone, &lost, &[bound(&rival)]),
        [],
        "the newest keeps it"
    );
    let returned = rebound(3, &included(None), &[stored(3, &mine, Lost)], &[]);
    assert_eq!(returned, [Rebinding::Bind(pair(&mine))]);
    let unnamed = NewIntent {
        identity: None,
        ..mine
    };
    let older = [stored(3, &unnamed, Sent)];
    assert_eq!(
        rebound(3, &rejected, &older, &[bound(&mine)]),
        [release(&mine)],
        "of old rows"
    );
    let older = [stored(3, &unnamed, Displaced), stored(9, &other, Sent)];
    assert_eq!(
        rebound(9, &rejected, &older, &both),
        [release(&other)],
        "that recipient's stays"
    );
    let register = [stored(
        3,
        &NewIntent {
            operation: "register",
            ..mine
        },
        Sent,
    )];
    assert_eq!(
        rebound(3, &rejected, &register, &[bound(&mine)]),
        [],
        "no drip"
    );
}
