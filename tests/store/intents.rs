//! Intents: what is stored, which ones conflict, and how they move.

use crate::world::{EPOCH, NOW, World, advance, change, felt, intend, intent};
use portcullis_filters::window::Window;
use portcullis_store::IntentState::{
    Accepted, Displaced, Lost, Rejected, Reverted, Sent, Succeeded,
};
use portcullis_store::{
    EntryKind, Intended, IntentId, IntentState, NewIntent, Requested, Store, StoreError, Verified,
};
use std::sync::Arc;
use tokio::task::JoinSet;

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

pub(crate) async fn an_intent_is_read_as_written(world: World) {
    let store = world.open().await;
    let new = NewIntent {
        request: "{\"ü\":\"\\u0000'\"}",
        ..intent(7)
    };
    let id = intend(&store, &new).await;
    let stored = store.intents().get(id).await.unwrap().unwrap();
    assert_eq!(stored.id, id);
    assert_eq!(
        (stored.epoch.as_str(), stored.operation.as_str()),
        (new.epoch, new.operation)
    );
    assert_eq!((stored.digest, stored.subject), (new.digest, new.subject));
    assert_eq!((stored.signer, stored.nonce), (new.signer, new.nonce));
    assert_eq!(stored.transaction_hash, new.transaction_hash);
    assert_eq!(
        (stored.request.as_str(), stored.transaction.as_str()),
        (new.request, new.transaction)
    );
    assert_eq!((stored.state, stored.detail.as_deref()), (Sent, None));
    assert_eq!((stored.created_us, stored.updated_us), (NOW, NOW));
    let same = Some(stored);
    assert_eq!(
        store
            .intents()
            .by_hash(EPOCH, new.transaction_hash)
            .await
            .unwrap(),
        same
    );
    let newest = Requested {
        linked: None,
        newest: same.clone(),
    };
    assert_eq!(
        store
            .intents()
            .requested(EPOCH, &new.digest, None)
            .await
            .unwrap(),
        newest
    );
    assert_eq!(store.journal().intent(id).await.unwrap(), same);
    assert_eq!(
        store
            .intents()
            .by_hash("epoch-2", new.transaction_hash)
            .await
            .unwrap(),
        None
    );
    let none = Requested::default();
    assert_eq!(
        store
            .intents()
            .requested("epoch-2", &new.digest, None)
            .await
            .unwrap(),
        none
    );

    let entries = store.journal().entries(1, 10).await.unwrap();
    let steps: Vec<_> = entries
        .iter()
        .map(|it| (it.seq, it.intent, it.at_us, it.kind))
        .collect();
    let step = |seq, state| (seq, Some(id), NOW, EntryKind::Moved(state));
    assert_eq!(
        steps,
        [step(id.0, IntentState::Intended), step(id.0 + 1, Sent)]
    );
    assert_eq!(entries[1].detail, "{}");
    let detail: serde_json::Value = serde_json::from_str(&entries[0].detail).unwrap();
    let expected = serde_json::json!({
        "digest": "0000000000000007".to_owned() + &"0".repeat(48), "epoch": EPOCH, "nonce": "7",
        "signer": "0xa11ce", "subject": "0x5007", "transaction_hash": "0xf0000007",
    });
    assert_eq!(detail, expected);

    let without = NewIntent {
        subject: None,
        ..intent(8)
    };
    let id = intend(&store, &without).await;
    assert_eq!(
        store.intents().get(id).await.unwrap().unwrap().subject,
        None
    );
    assert_eq!(store.intents().get(IntentId(99)).await.unwrap(), None);
}

async fn known(store: &Store, new: &NewIntent<'_>) -> IntentId {
    match store.intents().intend(new, NOW).await.unwrap() {
        Intended::Known(intent) => intent.id,
        other => panic!("{new:?} is known, not {other:?}"),
    }
}

pub(crate) async fn a_transaction_is_stored_once_per_epoch(world: World) {
    let store = world.open().await;
    for (number, end) in [Succeeded, Reverted, Rejected, Lost]
        .into_iter()
        .enumerate()
    {
        let new = intent(number as u64);
        // of a user, whose request is the transaction
        let new = NewIntent {
            digest: new.transaction_hash.to_bytes_be(),
            ..new
        };
        let id = intend(&store, &new).await;
        assert_eq!(known(&store, &new).await, id);
        let other = NewIntent {
            digest: [9; 32],
            nonce: 1_000,
            signer: felt(3),
            ..new
        };
        let reply = store.intents().intend(&other, NOW).await.unwrap();
        assert!(
            matches!(reply, Intended::NonceTaken(_)),
            "another request's: {reply:?}"
        );
        assert!(advance(&store, id, end).await);
        if matches!(end, Succeeded | Reverted) {
            assert_eq!(known(&store, &new).await, id, "{end:?}");
        } else {
            let again = intend(&store, &new).await;
            assert_ne!(again, id, "it may be tried again when it was {end:?}");
            let found = store
                .intents()
                .by_hash(EPOCH, new.transaction_hash)
                .await
                .unwrap();
            assert_eq!(found.map(|intent| intent.id), Some(again));
        }
        assert_ne!(
            intend(
                &store,
                &NewIntent {
                    epoch: "epoch-2",
                    ..new
                }
            )
            .await,
            id
        );
    }
}

pub(crate) async fn an_unresolved_equal_request_is_known(world: World) {
    let store = world.open().await;
    let mut number = 0;
    for end in [Succeeded, Reverted, Rejected, Lost] {
        let mut equal = || {
            number += 1;
            NewIntent {
                digest: [7; 32],
                ..intent(number)
            }
        };
        let id = intend(&store, &equal()).await;
        assert_eq!(known(&store, &equal()).await, id);
        if Accepted.may_become(end) {
            assert!(advance(&store, id, Accepted).await);
            assert_eq!(known(&store, &equal()).await, id, "accepted");
        }
        assert!(advance(&store, id, end).await);
        let Requested { newest, .. } = store
            .intents()
            .requested(EPOCH, &[7; 32], None)
            .await
            .unwrap();
        assert_eq!(
            newest.map(|intent| intent.state),
            end.holds().then_some(end)
        );
        assert!(
            advance(&store, id, Displaced).await == (end != Rejected),
            "{end:?}"
        );
        if end != Rejected {
            assert_eq!(known(&store, &equal()).await, id, "in doubt");
            assert!(advance(&store, id, Lost).await);
        }
    }
    intend(
        &store,
        &NewIntent {
            digest: [7; 32],
            ..intent(100)
        },
    )
    .await;
    intend(
        &store,
        &NewIntent {
            digest: [7; 32],
            epoch: "epoch-2",
            ..intent(100)
        },
    )
    .await;
}

pub(crate) async fn rejected_or_lost_transactions_free_their_nonce(world: World) {
    let store = world.open().await;
    let at_nonce = |number, nonce| NewIntent {
        nonce,
        ..intent(number)
    };
    for (nonce, end, free) in [
        (1, Succeeded, false),
        (2, Reverted, false),
        (3, Rejected, true),
        (4, Lost, true),
    ] {
        let id = intend(&store, &at_nonce(10 * nonce, nonce)).await;
        let next = at_nonce(10 * nonce + 1, nonce);
        let taken = store.intents().intend(&next, NOW).await.unwrap();
        assert!(matches!(taken, Intended::NonceTaken(by) if by.id == id));
        assert!(advance(&store, id, end).await);
        let then = store.intents().intend(&next, NOW).await.unwrap();
        assert_eq!(matches!(then, Intended::New(_)), free, "{end:?}: {then:?}");
    }
    intend(
        &store,
        &NewIntent {
            signer: felt(2),
            ..at_nonce(50, 1)
        },
    )
    .await;
    intend(
        &store,
        &NewIntent {
            epoch: "epoch-2",
            ..at_nonce(51, 1)
        },
    )
    .await;
    let Verified::Whole { entries, .. } = store.journal().verify().await.unwrap() else {
        panic!()
    };
    assert_eq!(
        entries,
        4 * 2 + 4 + 2 * 2 + 2 * 2,
        "a taken nonce leaves no entry"
    );
}

pub(crate) async fn a_nonce_beyond_the_column_is_refused(world: World) {
    let store = world.open().await;
    let refused = store
        .intents()
        .intend(
            &NewIntent {
                nonce: u64::MAX,
                ..intent(1)
            },
            NOW,
        )
        .await;
    assert!(
        matches!(refused, Err(StoreError::TooLarge("nonce"))),
        "{refused:?}"
    );
    let largest = u64::try_from(i64::MAX).unwrap();
    let id = intend(
        &store,
        &NewIntent {
            nonce: largest,
            ..intent(1)
        },
    )
    .await;
    assert_eq!(
        store.intents().get(id).await.unwrap().unwrap().nonce,
        largest
    );
}

pub(crate) async fn states_move_forward_only_and_are_journaled(world: World) {
    let store = world.open().await;
    let paths: [&[IntentState]; 9] = [
        &[],
        &[Accepted],
        &[Succeeded],
        &[Reverted],
        &[Accepted, Succeeded],
        &[Rejected],
        &[Accepted, Lost],
        &[Succeeded, Displaced],
        &[Displaced, Accepted],
    ];
    let mut number = 0;
    for path in paths {
        for next in IntentState::ALL {
            number += 1;
            let id = intend(&store, &intent(number)).await;
            for state in path {
                assert!(advance(&store, id, *state).await, "{path:?}");
            }
            let from = *path.last().unwrap_or(&Sent);
            if next.is_unresolved() && next != Accepted {
                continue;
            }
            let change = change(next, "why \"so\"");
            let moved = store.intents().apply(id, &change, NOW + 5).await.unwrap();
            // without its block, an outcome says nothing new
            let expected = from.may_become(next) && from != next;
            assert_eq!(moved, expected, "{from:?} to {next:?}");
            let stored = store.intents().get(id).await.unwrap().unwrap();
            assert_eq!(stored.state, if moved { next } else { from });
            assert_eq!(stored.updated_us, if moved { NOW + 5 } else { NOW });
            let has_detail = moved && !matches!(next, Accepted | Succeeded);
            if moved {
                assert_eq!(stored.detail.as_deref(), has_detail.then_some("why \"so\""));
            }
            let entries = store.journal().entries_of(id).await.unwrap();
            assert_eq!(entries.len(), 2 + path.len() + usize::from(moved));
            let last = entries.last().unwrap();
            assert_eq!(last.kind, EntryKind::Moved(stored.state));
            assert_eq!(last.operation, "faucet-drip");
            if has_detail {
                assert_eq!(last.detail, "{\"detail\":\"why \\\"so\\\"\"}");
            }
        }
    }
    assert!(matches!(
        store.journal().verify().await.unwrap(),
        Verified::Whole { .. }
    ));
}

pub(crate) async fn an_unknown_intent_cannot_advance(world: World) {
    let store = world.open().await;
    let moved = store
        .intents()
        .apply(IntentId(5), &change(Accepted, ""), NOW)
        .await;
    assert!(
        matches!(moved, Err(StoreError::UnknownIntent(IntentId(5)))),
        "{moved:?}"
    );
    assert_eq!(store.journal().newest(1).await.unwrap(), []);
}

pub(crate) async fn unresolved_intents_are_sorted_oldest_first(world: World) {
    let store = world.open().await;
    let (one, two) = (felt(1), felt(2));
    let mut ids = Vec::new();
    for (number, signer, epoch) in [
        (1, one, EPOCH),
        (2, two, EPOCH),
        (3, one, EPOCH),
        (4, one, "epoch-0"),
        (5, one, EPOCH),
    ] {
        ids.push(
            intend(
                &store,
                &NewIntent {
                    signer,
                    epoch,
                    ..intent(number)
                },
            )
            .await,
        );
    }
    assert!(advance(&store, ids[0], Accepted).await);
    assert!(advance(&store, ids[4], Rejected).await);
    let of = |intents: Vec<portcullis_store::Intent>| -> Vec<IntentId> {
        intents.iter().map(|intent| intent.id).collect()
    };
    assert_eq!(
        of(store.intents().unresolved(EPOCH, None).await.unwrap()),
        [ids[0], ids[1], ids[2]]
    );
    assert_eq!(
        of(store.intents().unresolved(EPOCH, Some(one)).await.unwrap()),
        [ids[0], ids[2]]
    );
    assert_eq!(
        of(store
            .intents()
            .unresolved(EPOCH, Some(felt(3)))
            .await
            .unwrap()),
        []
    );
}

pub(crate) async fn cooldowns_start_at_the_newest_effective_intent(world: World) {
    let store = world.open().await;
    let subject = felt(0x50);
    let last_of = async |operation: &str, subject, epoch: &str| {
        let cooldown = Window::new(NOW + 1_000, DAY);
        store
            .intents()
            .last_of(operation, subject, epoch, cooldown)
            .await
            .unwrap()
    };
    let last = async || last_of("faucet-drip", subject, EPOCH).await;
    assert_eq!(last().await, None);
    for (number, end, expected) in [
        (1, None, Some(1)),
        (2, Some(Succeeded), Some(2)),
        (3, Some(Rejected), Some(2)),
        (4, Some(Reverted), Some(2)),
        (5, Some(Lost), Some(2)),
        (6, Some(Accepted), Some(6)),
    ] {
        let new = NewIntent {
            subject: Some(subject),
            ..intent(number)
        };
        let Intended::New(id) = store
            .intents()
            .intend(&new, NOW + number as i64)
            .await
            .unwrap()
        else {
            panic!("{number} is new");
        };
        if let Some(end) = end {
            assert!(advance(&store, id, end).await);
        }
        let found = last().await.map(|intent| intent.created_us);
        assert_eq!(found, expected.map(|after| NOW + after), "after {number}");
    }
    assert_eq!(last_of("register", subject, EPOCH).await, None);
    assert_eq!(last_of("faucet-drip", subject, "epoch-2").await, None);
    assert_eq!(last_of("faucet-drip", felt(0x51), EPOCH).await, None);
}

pub(crate) async fn intents_are_counted_by_state(world: World) {
    let store = world.open().await;
    assert_eq!(store.intents().counts_by_state().await.unwrap(), []);
    for (number, end) in [(1, None), (2, Some(Lost)), (3, None), (4, Some(Accepted))] {
        let id = intend(&store, &intent(number)).await;
        if let Some(end) = end {
            assert!(advance(&store, id, end).await);
        }
    }
    let expected = [(Sent, 2), (Accepted, 1), (Lost, 1)];
    assert_eq!(store.intents().counts_by_state().await.unwrap(), expected);
}

/// Sixteen at once, each for its share of the numbers; returns the outcome of each.
async fn at_once(store: Store, of: fn(u64) -> NewIntent<'static>) -> (Arc<Store>, Vec<Intended>) {
    let store = Arc::new(store);
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut came = Vec::new();
            for number in 0..8 {
                came.push(
                    store
                        .intents()
                        .intend(&of(task * 8 + number), NOW)
                        .await
                        .unwrap(),
                );
            }
            came
        });
    }
    (store, tasks.join_all().await.concat())
}

fn new_ones(came: &[Intended]) -> usize {
    came.iter()
        .filter(|one| matches!(one, Intended::New(_)))
        .count()
}

pub(crate) async fn parallel_intents_leave_no_gap(world: World) {
    let (store, came) = at_once(world.open().await, intent).await;
    assert_eq!(new_ones(&came), 128);
    let entries = store.journal().entries(1, 500).await.unwrap();
    let numbers: Vec<i64> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (1..=256).collect::<Vec<_>>());
    let verified = store.journal().verify().await.unwrap();
    assert!(
        matches!(verified, Verified::Whole { entries: 256, .. }),
        "{verified:?}"
    );
}

pub(crate) async fn one_of_parallel_equal_requests_is_new(world: World) {
    let equal = |number| NewIntent {
        digest: [1; 32],
        ..intent(number)
    };
    let (store, came) = at_once(world.open().await, equal).await;
    assert_eq!(new_ones(&came), 1);
    assert!(
        !came
            .iter()
            .any(|one| matches!(one, Intended::NonceTaken(_)))
    );
    assert_eq!(store.journal().entries(1, 500).await.unwrap().len(), 2);
}

pub(crate) async fn one_of_parallel_nonce_uses_is_new(world: World) {
    let same_nonce = |number| NewIntent {
        nonce: 5,
        ..intent(number)
    };
    let (_, came) = at_once(world.open().await, same_nonce).await;
    assert_eq!(new_ones(&came), 1);
    let taken = came
        .iter()
        .filter(|one| matches!(one, Intended::NonceTaken(_)))
        .count();
    assert_eq!(taken, 127);
}

#[test]
fn names_are_parsed_as_written() {
    for state in IntentState::ALL {
        assert_eq!(IntentState::parse(state.name()), Some(state));
        assert_eq!(
            EntryKind::parse(state.name()),
            Some(EntryKind::Moved(state))
        );
    }
    assert_eq!(EntryKind::parse("refused"), Some(EntryKind::Refused));
    for unknown in ["", "Sent", "sent ", "done"] {
        assert_eq!(EntryKind::parse(unknown), None, "{unknown:?}");
    }
}
