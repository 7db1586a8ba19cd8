//! Each rule of the journal, as a sentence: here those of a new intent, of keys and of states.

mod changes;
mod groups;
mod refusals;

use super::IntentState::{
    Accepted, Displaced, Intended as Unsent, Lost, Rejected, Reverted, Sent, Succeeded,
};
use super::*;
use crate::felt::Felt;
use core::time::Duration;

const NOW: i64 = 1_700_000_000_000_000;
const DAY: i64 = 24 * 3_600_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
const STRK: u128 = 1_000_000_000_000_000_000;
const TOKEN: ClaimToken = ClaimToken([7; 16]);

fn felt(number: u64) -> Felt {
    Felt::from(number)
}

/// An intent like no other: each number has its own digest, nonce, subject and hash.
fn new(number: u8) -> NewIntent<'static> {
    NewIntent {
        operation: FAUCET_DRIP,
        digest: [number; 32],
        subject: Some(felt(0x500 + u64::from(number))),
        identity: Some(felt(0x100 + u64::from(number))),
        request: "{}",
        epoch: "a",
        born: 5,
        signer: felt(1),
        nonce: number.into(),
        transaction_hash: felt(0xf00 + u64::from(number)),
        transaction: "{}",
        idempotency_key: None,
        replaces: None,
        max_fee: 0,
        budgets: Budgets::default(),
        cooldown: None,
    }
}

/// A new intent once it is stored.
fn stored(id: i64, new: &NewIntent<'_>, state: IntentState) -> Intent {
    Intent {
        id: IntentId(id),
        epoch: new.epoch.into(),
        operation: new.operation.into(),
        digest: new.digest,
        subject: new.subject,
        identity: new.identity,
        request: new.request.into(),
        born: Some(new.born),
        signer: new.signer,
        nonce: new.nonce,
        transaction_hash: new.transaction_hash,
        transaction: new.transaction.into(),
        fee_gfri: gfri(new.max_fee),
        state,
        included: None,
        detail: None,
        created_us: NOW,
        updated_us: NOW,
    }
}

fn facts(intents: &[Intent]) -> Facts {
    Facts {
        epoch: Some("a".into()),
        intents: intents.to_vec(),
        ..Facts::default()
    }
}

fn key_of(new: &NewIntent<'_>, intent: Option<i64>) -> Option<Key> {
    let (operation, intent) = (new.operation.into(), intent.map(IntentId));
    Some(Key {
        epoch: new.epoch.into(),
        operation,
        digest: new.digest,
        token: Some(TOKEN),
        intent,
        answer: None,
    })
}

/// The reply; stored intents have the id 0.
fn reply(new: &NewIntent<'_>, facts: &Facts) -> Intended {
    match intention(new, facts, NOW) {
        Intention::Insert(_) => Intended::New(IntentId(0)),
        Intention::Refuse { reply, .. } => reply,
    }
}

fn is_new(new: &NewIntent<'_>, facts: &Facts) -> bool {
    matches!(reply(new, facts), Intended::New(_))
}

fn is_known(new: &NewIntent<'_>, facts: &Facts, id: i64) -> bool {
    matches!(reply(new, facts), Intended::Known(known) if known.id == IntentId(id))
}

#[test]
fn a_state_is_followed_by_what_the_chain_can_show() {
    let legal: [(IntentState, &[IntentState]); 8] = [
        (
            Unsent,
            &[
                Sent, Accepted, Succeeded, Reverted, Rejected, Displaced, Lost,
            ],
        ),
        (
            Sent,
            &[
                Sent, Accepted, Succeeded, Reverted, Rejected, Displaced, Lost,
            ],
        ),
        (Accepted, &[Succeeded, Reverted, Displaced, Lost]),
        (Succeeded, &[Succeeded, Reverted, Displaced]),
        (Reverted, &[Succeeded, Reverted, Displaced]),
        (Displaced, &[Accepted, Succeeded, Reverted, Lost]),
        (Lost, &[Succeeded, Reverted, Displaced]),
        (Rejected, &[]),
    ];
    for (from, to) in legal {
        for next in IntentState::ALL {
            assert_eq!(
                from.may_become(next),
                to.contains(&next),
                "{from:?} to {next:?}"
            );
        }
    }
}

#[test]
fn a_displaced_intent_holds_all_but_its_nonce() {
    for state in IntentState::ALL {
        assert_eq!(
            state.holds(),
            !matches!(state, Rejected | Lost),
            "{state:?}"
        );
        assert_eq!(
            state.occupies(),
            !matches!(state, Rejected | Lost | Displaced),
            "{state:?}"
        );
        let is_unresolved = matches!(state, Unsent | Sent | Accepted);
        assert_eq!(state.is_unresolved(), is_unresolved, "{state:?}");
        assert_eq!(
            state.is_included(),
            matches!(state, Succeeded | Reverted),
            "{state:?}"
        );
    }
}

#[test]
fn an_intent_is_shown_by_its_number() {
    assert_eq!(format!("{:>3}", IntentId(9)), "  9");
}

#[test]
fn what_is_for_another_chain_is_not_stored() {
    let other = Facts {
        epoch: Some("b".into()),
        ..facts(&[])
    };
    assert_eq!(reply(&new(1), &other), Intended::OtherChain);
    assert!(
        is_new(
            &new(1),
            &Facts {
                epoch: None,
                ..facts(&[])
            }
        ),
        "no chain is in force yet"
    );
}

#[test]
fn a_key_serves_the_request_that_claimed_it() {
    let mine = NewIntent {
        idempotency_key: Some("k"),
        ..new(1)
    };
    assert!(is_new(
        &mine,
        &Facts {
            key: key_of(&mine, None),
            ..facts(&[])
        }
    ));
    assert!(
        is_new(&mine, &facts(&[])),
        "a key that is gone is claimed again"
    );
    let linked = stored(9, &new(2), Succeeded);
    for of in [
        new(2),
        NewIntent {
            operation: "register",
            ..new(1)
        },
    ] {
        let facts = Facts {
            key: key_of(&of, Some(9)),
            ..facts(core::slice::from_ref(&linked))
        };
        assert_eq!(
            reply(&mine, &facts),
            Intended::KeyConflict,
            "not even if its intent stands"
        );
    }
}

#[test]
fn a_transaction_is_stored_once_while_it_holds() {
    for state in IntentState::ALL {
        let same = stored(9, &new(1), state);
        assert_eq!(
            is_known(&new(1), &facts(&[same]), 9),
            state.holds(),
            "{state:?}"
        );
    }
    let elsewhere = stored(
        9,
        &NewIntent {
            epoch: "b",
            nonce: 7,
            ..new(1)
        },
        Sent,
    );
    assert!(is_new(&new(1), &facts(&[elsewhere])), "of another chain");
}

#[test]
fn the_same_transaction_of_another_request_is_no_answer() {
    for state in IntentState::ALL {
        let other_body = stored(
            9,
            &NewIntent {
                digest: [8; 32],
                ..new(1)
            },
            state,
        );
        let taken = matches!(
            reply(&new(1), &facts(&[other_body])),
            Intended::NonceTaken(_)
        );
        assert_eq!(taken, state.holds(), "{state:?}");
    }
}

#[test]
fn a_key_names_its_intent_before_any_other() {
    let named = stored(
        9,
        &NewIntent {
            nonce: 7,
            transaction_hash: felt(3),
            ..new(1)
        },
        Succeeded,
    );
    let same = stored(8, &new(1), Reverted);
    let again = NewIntent {
        idempotency_key: Some("k"),
        ..new(1)
    };
    let facts = Facts {
        key: key_of(&again, Some(9)),
        ..facts(&[same, named])
    };
    assert!(is_known(&again, &facts, 9));
}

#[test]
fn the_intent_of_a_key_answers_while_it_holds() {
    for state in IntentState::ALL {
        let linked = stored(9, &NewIntent { nonce: 7, ..new(1) }, state);
        let again = NewIntent {
            transaction_hash: felt(3),
            idempotency_key: Some("k"),
            ..new(1)
        };
        let facts = Facts {
            key: key_of(&again, Some(9)),
            ..facts(&[linked])
        };
        assert_eq!(is_known(&again, &facts, 9), state.holds(), "{state:?}");
    }
}

#[test]
fn an_equal_request_is_known_while_it_is_open_or_in_doubt() {
    for state in IntentState::ALL {
        let equal = NewIntent {
            transaction_hash: felt(3),
            nonce: 7,
            ..new(1)
        };
        let facts = facts(&[stored(8, &equal, state), stored(9, &equal, Lost)]);
        let expected = state.is_unresolved() || state == Displaced;
        assert_eq!(is_known(&new(1), &facts, 8), expected, "{state:?}");
    }
    let older = stored(
        8,
        &NewIntent {
            transaction_hash: felt(3),
            nonce: 7,
            ..new(1)
        },
        Displaced,
    );
    let newer = stored(
        9,
        &NewIntent {
            transaction_hash: felt(4),
            nonce: 8,
            ..new(1)
        },
        Sent,
    );
    assert!(is_known(&new(1), &facts(&[newer, older]), 9), "the newest");
}

#[test]
fn only_a_displaced_intent_of_the_same_slot_is_replaced() {
    let former = NewIntent {
        transaction_hash: felt(3),
        ..new(1)
    };
    let key = NewIntent {
        idempotency_key: Some("k"),
        replaces: Some(IntentId(9)),
        ..new(1)
    };
    let with = |former: Intent| Facts {
        key: key_of(&key, Some(9)),
        ..facts(&[former])
    };
    assert!(is_new(&key, &with(stored(9, &former, Displaced))));
    for state in [Sent, Succeeded] {
        assert!(
            is_known(&key, &with(stored(9, &former, state)), 9),
            "it is {state:?} again"
        );
    }
    let elsewhere = NewIntent { nonce: 7, ..former };
    assert!(
        is_known(&key, &with(stored(9, &elsewhere, Displaced)), 9),
        "another nonce"
    );
    let unasked = NewIntent {
        replaces: None,
        ..key
    };
    assert!(is_known(&unasked, &with(stored(9, &former, Displaced)), 9));
}

#[test]
fn a_nonce_is_used_by_one_at_a_time() {
    for state in IntentState::ALL {
        let other = stored(9, &NewIntent { nonce: 1, ..new(2) }, state);
        let taken = matches!(reply(&new(1), &facts(&[other])), Intended::NonceTaken(_));
        assert_eq!(taken, state.occupies(), "{state:?}");
    }
    let other = stored(
        9,
        &NewIntent {
            nonce: 1,
            signer: felt(2),
            ..new(2)
        },
        Sent,
    );
    assert!(is_new(&new(1), &facts(&[other])), "another account's");
}

#[test]
fn an_identity_has_one_recipient() {
    let pair = |identity, recipient| Pair {
        identity: felt(identity),
        recipient: felt(recipient),
    };
    let with = |pair, is_held| Facts {
        bound: vec![Bound {
            pair,
            is_in_force: true,
            is_held,
        }],
        ..facts(&[])
    };
    let same = pair(0x101, 0x501);
    let other = pair(0x101, 0x9);
    let taken = pair(0x9, 0x501);
    assert_eq!(
        intention(&new(1), &facts(&[]), NOW),
        Intention::Insert(vec![Rebinding::Bind(same)])
    );
    for is_held in [false, true] {
        assert_eq!(
            intention(&new(1), &with(same, is_held), NOW),
            Intention::Insert(vec![])
        );
    }
    let elsewhere = |facts: &Facts| reply(&new(1), facts);
    assert_eq!(
        elsewhere(&with(other, true)),
        Intended::Elsewhere(Binding::IdentityElsewhere)
    );
    assert_eq!(
        elsewhere(&with(taken, true)),
        Intended::Elsewhere(Binding::RecipientElsewhere)
    );
    for former in [other, taken] {
        let expected = vec![Rebinding::Release(former), Rebinding::Bind(same)];
        let freed = intention(&new(1), &with(former, false), NOW);
        assert_eq!(freed, Intention::Insert(expected), "held by the slot alone");
    }
    let doubted = |pair| Facts {
        bound: vec![Bound {
            pair,
            is_in_force: false,
            is_held: true,
        }],
        ..facts(&[])
    };
    assert_eq!(
        elsewhere(&doubted(other)),
        Intended::Elsewhere(Binding::IdentityElsewhere),
        "one that may come back"
    );
    assert_eq!(
        intention(&new(1), &doubted(same), NOW),
        Intention::Insert(vec![Rebinding::Bind(same)])
    );
    let unbound = NewIntent {
        identity: None,
        ..new(1)
    };
    assert_eq!(
        intention(&unbound, &with(taken, true), NOW),
        Intention::Insert(vec![])
    );
}

#[test]
fn facts_are_of_one_intent() {
    let it = new(1);
    let other = stored(9, &new(2), Succeeded);
    let key = |intent| Key {
        epoch: "a".into(),
        operation: FAUCET_DRIP.into(),
        digest: it.digest,
        token: None,
        intent: Some(IntentId(intent)),
        answer: None,
    };
    let last = |subject| Intent {
        subject,
        ..other.clone()
    };
    let with = |intent: Intent, key: Option<Key>, last: Option<Intent>| Facts {
        key,
        last,
        ..facts(&[intent])
    };
    let alike = |change: fn(&mut Intent)| {
        let mut intent = other.clone();
        change(&mut intent);
        with(intent, None, None)
    };
    let another = Intent {
        operation: "register".into(),
        ..last(it.subject)
    };
    for (facts, expected, why) in [
        (facts(&[]), true, "there is no other"),
        (with(other.clone(), None, None), false, "nothing is alike"),
        (alike(|it| it.transaction_hash = felt(0xf01)), true, "hash"),
        (alike(|it| it.nonce = 1), true, "slot"),
        (alike(|it| it.digest = [1; 32]), true, "digest"),
        (with(other.clone(), Some(key(9)), None), true, "key"),
        (
            with(other.clone(), Some(key(8)), None),
            false,
            "another's key",
        ),
        (
            with(last(it.subject), None, Some(last(it.subject))),
            true,
            "cooldown",
        ),
        (
            with(other.clone(), None, Some(other.clone())),
            false,
            "another's cooldown",
        ),
        (
            with(another.clone(), None, Some(another)),
            false,
            "another operation's",
        ),
    ] {
        assert_eq!(facts.are_of(&it), expected, "{why}");
    }
}

#[test]
fn a_cooldown_ends() {
    let last = stored(9, &new(2), Succeeded);
    let facts = Facts {
        last: Some(last),
        ..facts(&[])
    };
    let drip = NewIntent {
        cooldown: Some(HOUR),
        ..new(1)
    };
    let end = NOW + 3_600_000_000;
    let until = |now| match intention(&drip, &facts, now) {
        Intention::Refuse {
            reply: Intended::TooSoon { until_us, .. },
            ..
        } => Some(until_us),
        _ => None,
    };
    assert_eq!(until(end - 1), Some(end));
    assert_eq!(until(end), None);
    assert!(is_new(&new(1), &facts), "without a cooldown");
}

#[test]
fn drips_stay_in_their_budget() {
    let with = |drips| NewIntent {
        budgets: Budgets {
            drips: Some(drips),
            fees: None,
        },
        ..new(1)
    };
    let over = |until_us| {
        Intended::OverBudget(OverBudget {
            budget: Budget::Faucet,
            until_us,
        })
    };
    let spent = Facts {
        drip_us: Some(NOW - 5),
        ..facts(&[])
    };
    assert_eq!(reply(&with(3), &spent), over(NOW - 5 + DAY));
    assert!(is_new(&with(3), &facts(&[])));
    assert_eq!(reply(&with(0), &facts(&[])), over(NOW + DAY));
    assert!(
        is_new(
            &NewIntent {
                operation: "register",
                ..with(3)
            },
            &spent
        ),
        "it is no drip"
    );
}

#[test]
fn fees_stay_in_their_budget() {
    let costly = NewIntent {
        max_fee: 2 * STRK,
        budgets: Budgets {
            drips: None,
            fees: Some(5 * STRK),
        },
        ..new(1)
    };
    let minute = NOW / MINUTE_US;
    let spent = |first, second| Facts {
        fees_gfri: gfri(first) + gfri(second),
        minutes: vec![(minute - 9, gfri(first)), (minute - 3, gfri(second))],
        ..facts(&[])
    };
    let all = spent(STRK, 2 * STRK);
    assert!(
        is_new(&costly, &all) && !all.need_minutes(&costly, NOW),
        "exactly all of it"
    );
    assert!(
        spent(STRK + 1, 2 * STRK).need_minutes(&costly, NOW),
        "to say until when"
    );
    let over = |minute: i64| {
        let until_us = (minute + 1) * MINUTE_US + DAY;
        Intended::OverBudget(OverBudget {
            budget: Budget::Fees,
            until_us,
        })
    };
    assert_eq!(reply(&costly, &spent(STRK + 1, 2 * STRK)), over(minute - 9));
    assert_eq!(
        reply(&costly, &spent(STRK, 3 * STRK)),
        over(minute - 9),
        "then all of it fits"
    );
    assert_eq!(
        reply(&costly, &spent(STRK, 4 * STRK)),
        over(minute - 3),
        "there is room earlier"
    );
    let displaced = NewIntent {
        max_fee: STRK,
        ..new(2)
    };
    let displaced = stored(
        9,
        &NewIntent {
            nonce: costly.nonce,
            ..displaced
        },
        Displaced,
    );
    let freed = Facts {
        intents: vec![displaced.clone()],
        ..spent(STRK, 3 * STRK)
    };
    assert!(is_new(&costly, &freed), "one of the slot is paid for");
    for created_us in [NOW - DAY - 2 * MINUTE_US, NOW + DAY + 2 * MINUTE_US] {
        let uncounted = Intent {
            created_us,
            ..displaced.clone()
        };
        let kept = Facts {
            intents: vec![uncounted],
            ..spent(STRK, 3 * STRK)
        };
        assert!(!is_new(&costly, &kept), "its fee is not in the sum");
    }
    let elsewhere = Intent {
        nonce: 99,
        ..displaced
    };
    let kept = Facts {
        intents: vec![elsewhere],
        ..spent(STRK, 3 * STRK)
    };
    assert!(!is_new(&costly, &kept), "what is displaced counts");
}

#[test]
fn what_is_known_is_linked_to_a_key_that_is_free() {
    let mine = NewIntent {
        idempotency_key: Some("k"),
        ..new(1)
    };
    let known = stored(9, &new(1), Sent);
    let link = |mine: &NewIntent<'_>, facts: &Facts| match intention(mine, facts, NOW) {
        Intention::Refuse { link, .. } => link,
        Intention::Insert(_) => None,
    };
    let free = Facts {
        key: key_of(&mine, None),
        ..facts(core::slice::from_ref(&known))
    };
    assert_eq!(link(&mine, &free), Some(IntentId(9)));
    assert_eq!(link(&new(1), &free), None, "without a key");
    let ended = stored(3, &new(1), Lost);
    let ended = Facts {
        key: key_of(&mine, Some(3)),
        ..facts(&[ended, known.clone()])
    };
    assert_eq!(link(&mine, &ended), Some(IntentId(9)));
    let former = stored(
        3,
        &NewIntent {
            transaction_hash: felt(2),
            nonce: 8,
            ..new(1)
        },
        Succeeded,
    );
    let former = Facts {
        key: key_of(&mine, Some(3)),
        ..facts(&[former, known])
    };
    assert_eq!(link(&mine, &former), None, "its intent stands");
}

#[test]
fn a_key_moves_on_from_what_has_ended_or_was_replaced() {
    let next = stored(9, &new(1), Sent);
    let key = key_of(&new(1), None).expect("it is a key");
    let may_link = |former: Option<&Intent>, next: &Intent| key.may_name(former, next);
    assert!(may_link(None, &next));
    assert!(!may_link(None, &stored(9, &new(2), Sent)), "another body's");
    for state in IntentState::ALL {
        let former = stored(
            3,
            &NewIntent {
                transaction_hash: felt(2),
                ..new(1)
            },
            state,
        );
        assert_eq!(
            may_link(Some(&former), &next),
            !state.occupies(),
            "{state:?}"
        );
        if state == Displaced {
            let itself = Intent {
                id: next.id,
                ..former.clone()
            };
            assert!(!may_link(Some(&itself), &next), "it is named already");
            let newer = Intent {
                id: IntentId(10),
                ..former.clone()
            };
            assert!(!may_link(Some(&newer), &next), "not back to an older one");
            let elsewhere = Intent {
                nonce: 8,
                ..former.clone()
            };
            assert!(!may_link(Some(&elsewhere), &next), "of another slot");
            let other = Intent {
                digest: [9; 32],
                ..former
            };
            assert!(may_link(Some(&other), &next), "of another request");
        }
    }
}

#[test]
fn a_key_never_names_an_intent_of_another_epoch() {
    let former = Intent {
        epoch: "b".into(),
        ..stored(3, &new(1), Succeeded)
    };
    let next = stored(9, &new(1), Sent);
    let key = key_of(&new(1), Some(3)).expect("it is a key");
    assert!(!key.may_name(None, &former));
    assert!(key.may_name(Some(&former), &next), "it names nothing yet");
    let facts = Facts {
        key: Some(key.clone()),
        ..facts(core::slice::from_ref(&former))
    };
    assert!(is_new(&new(1), &facts), "its intent is no outcome here");
    let answered = Key {
        answer: Some((200, "x".into())),
        ..key
    };
    for linked in [
        answered.clone(),
        Key {
            answer: None,
            ..answered
        },
    ] {
        let claim = linked.claimed(FAUCET_DRIP, &[1; 32], TOKEN, Some(former.clone()));
        assert_eq!(claim, Claim::Open { intent: None });
    }
}

#[test]
fn a_claim_has_an_owner() {
    let key = key_of(&new(1), None).unwrap();
    let claimed =
        |key: &Key, token, linked| key.clone().claimed(FAUCET_DRIP, &[1; 32], token, linked);
    assert_eq!(
        claimed(&key, TOKEN, None),
        Claim::New,
        "repeated by its owner"
    );
    assert_eq!(
        claimed(&key, ClaimToken([8; 16]), None),
        Claim::Open { intent: None }
    );
    let other = key.clone().claimed("register", &[1; 32], TOKEN, None);
    assert_eq!(other, Claim::Conflict);
    let other = key.clone().claimed(FAUCET_DRIP, &[2; 32], TOKEN, None);
    assert_eq!(other, Claim::Conflict);
    let linked = Key {
        intent: Some(IntentId(9)),
        ..key
    };
    let answered = Key {
        answer: Some((200, "x".into())),
        ..linked.clone()
    };
    for state in IntentState::ALL {
        let intent = stored(9, &new(1), state);
        let boxed = Some(alloc::boxed::Box::new(intent.clone()));
        let open = Claim::Open {
            intent: boxed.clone(),
        };
        assert_eq!(claimed(&linked, TOKEN, Some(intent.clone())), open);
        let answer = Claim::Answered {
            status: 200,
            body: "x".into(),
            intent: boxed,
        };
        let expected = if state.holds() { answer } else { open };
        assert_eq!(
            claimed(&answered, TOKEN, Some(intent)),
            expected,
            "{state:?}"
        );
    }
}
