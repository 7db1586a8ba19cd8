//! Looking for what was written: by each thing that an intent is found by, together and in pages.

use crate::world::{NOW, World, advance, felt, intend, intent, refuse};
use portcullis_filters::felt::Felt;
use portcullis_store::{IntentId, IntentState, Search, Store};

async fn found(store: &Store, search: &Search, before: i64, limit: u32) -> Vec<IntentId> {
    let found = store.journal().search(search, before, limit).await.unwrap();
    found.into_iter().map(|intent| intent.id).collect()
}

pub(crate) async fn intents_are_found_by_their_attributes(world: World) {
    let store = world.open().await;
    let mut ids = Vec::new();
    for number in 0..6 {
        let mut new = intent(number);
        if number >= 4 {
            new.operation = "mint-card";
            new.subject = Some(felt(0x5000));
        }
        ids.push(intend(&store, &new).await);
    }
    assert!(advance(&store, ids[0], IntentState::Accepted).await);
    let hash = |number: u64| Some(felt(0xf000_0000 + number));
    let subject = Some(felt(0x5000));
    let state = Some(IntentState::Accepted);
    let operation = Some("mint-card".to_owned());
    let any = Search::default();
    for (search, expected) in [
        (any.clone(), vec![5, 4, 3, 2, 1, 0]),
        (
            Search {
                hash: hash(3),
                ..any.clone()
            },
            vec![3],
        ),
        (
            Search {
                hash: Some(Felt::ZERO),
                ..any.clone()
            },
            vec![],
        ),
        (
            Search {
                subject,
                ..any.clone()
            },
            vec![5, 4, 0],
        ),
        (
            Search {
                state,
                ..any.clone()
            },
            vec![0],
        ),
        (
            Search {
                operation: operation.clone(),
                ..any.clone()
            },
            vec![5, 4],
        ),
        (
            Search {
                operation: Some("Ä\0".to_owned()),
                ..any.clone()
            },
            vec![],
        ),
        (
            Search {
                subject,
                operation: operation.clone(),
                ..any.clone()
            },
            vec![5, 4],
        ),
        (
            Search {
                subject,
                state,
                ..any.clone()
            },
            vec![0],
        ),
        (
            Search {
                state,
                operation,
                ..any.clone()
            },
            vec![],
        ),
        (
            Search {
                hash: hash(0),
                subject,
                state,
                operation: None,
            },
            vec![0],
        ),
        (
            Search {
                hash: hash(1),
                subject,
                ..any.clone()
            },
            vec![],
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|at: usize| ids[at]).collect();
        assert_eq!(
            found(&store, &search, i64::MAX, 25).await,
            expected,
            "{search:?}"
        );
    }
    assert_eq!(
        found(&store, &any, i64::MAX, 2).await,
        [ids[5], ids[4]],
        "a page"
    );
    assert_eq!(
        found(&store, &any, ids[4].0, 2).await,
        [ids[3], ids[2]],
        "the next"
    );
    assert_eq!(found(&store, &any, ids[0].0, 2).await, [], "the end");
}

pub(crate) async fn refusals_are_found_by_operation_and_in_pages(world: World) {
    let store = world.open().await;
    for (at, operation) in ["rpc", "mint-card", "rpc", "rpc"].into_iter().enumerate() {
        refuse(&store, operation, "tip_not_zero", NOW).await;
        intend(&store, &intent(at as u64)).await;
    }
    let journal = store.journal();
    let seqs = async |operation, before, limit| -> Vec<i64> {
        let found = journal.refusals(operation, before, limit).await.unwrap();
        found.into_iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(seqs(None, i64::MAX, 25).await, [10, 7, 4, 1]);
    assert_eq!(seqs(Some("rpc"), i64::MAX, 2).await, [10, 7]);
    assert_eq!(seqs(Some("rpc"), 7, 25).await, [1]);
    assert_eq!(seqs(Some("register"), i64::MAX, 25).await, [0_i64; 0]);
}
