//! Refusals: which of them are journaled, what is counted, and that old counts are deleted.

use crate::world::{NOW, World, append, intend, intent, refuse};
use futures_util::future::join_all;
use portcullis_filters::ledger::{JOURNALED, MINUTE_US};
use portcullis_store::{
    Entry, EntryFilter, EntryKind, IntentState, PruneBefore, Refusals, Store, Verified,
};

/// Counts of refusals before this instant are deleted, and nothing else.
fn refusals_before(refusals_us: i64) -> PruneBefore {
    PruneBefore {
        keys_us: 0,
        refusals_us,
        suggestions_us: 0,
        age_sessions_us: 0,
        age_events_us: 0,
        feed_items_us: None,
    }
}

/// The refusals that are journaled.
async fn journaled(store: &Store) -> Vec<Entry> {
    let refused = EntryFilter {
        kind: Some(EntryKind::Refused),
        ..EntryFilter::default()
    };
    let found = store.journal().newest_matching(&refused, 1_000).await;
    found.unwrap()
}

/// Minutes of which not all refusals are journaled, oldest first.
async fn counted(store: &Store) -> Vec<Refusals> {
    let journal = store.journal();
    let mut found = journal.counted_refusals(None, i64::MIN).await.unwrap();
    found.reverse();
    found
}

pub(crate) async fn the_first_of_equal_refusals_are_journaled(world: World) {
    let store = world.open().await;
    let count = JOURNALED + 5;
    let kinds = [
        ("tip_not_zero", 0),
        ("paymaster_data", 1_000),
        ("tip_not_zero", MINUTE_US),
    ];
    for (reason, after_us) in kinds {
        for at in 0..count {
            refuse(&store, "rpc", reason, NOW + after_us + at).await;
        }
    }
    refuse(&store, "mint-card", "tip_not_zero", NOW).await;
    assert_eq!(journaled(&store).await.len() as i64, 3 * JOURNALED + 1);
    let expected = kinds.map(|(reason, after_us)| Refusals {
        operation: "rpc".to_owned(),
        reason: reason.to_owned(),
        first_us: NOW + after_us,
        last_us: NOW + after_us + count - 1,
        count,
    });
    assert_eq!(counted(&store).await, expected);
    let journal = store.journal();
    let of = journal.counted_refusals(Some("mint-card"), 0).await;
    assert_eq!(of.unwrap(), [], "all of these are journaled");
    let since = journal.counted_refusals(None, NOW + 1_001).await;
    assert_eq!(since.unwrap(), expected[2..], "since");
    let whole = journal.verify().await.unwrap();
    assert!(matches!(whole, Verified::Whole { .. }), "{whole:?}");
}

pub(crate) async fn concurrent_refusals_are_all_counted(world: World) {
    let store = world.open().await;
    let all = (0..300).map(|at| refuse(&store, "rpc", "tip_not_zero", NOW + at));
    join_all(all).await;
    let sum = world.number("SELECT CAST(sum(refusals) AS BIGINT) FROM refusal");
    assert_eq!(sum.await, 300);
    assert_eq!(journaled(&store).await.len() as i64, JOURNALED);
}

pub(crate) async fn counts_outlive_a_restart(world: World) {
    let store = world.open().await;
    for at in 0..JOURNALED {
        refuse(&store, "rpc", "tip_not_zero", NOW + at).await;
    }
    store.close().await;
    let store = world.open().await;
    refuse(&store, "rpc", "tip_not_zero", NOW + JOURNALED).await;
    assert_eq!(journaled(&store).await.len() as i64, JOURNALED);
    assert_eq!(counted(&store).await.len(), 1);
}

pub(crate) async fn old_counts_are_deleted(world: World) {
    let store = world.open().await;
    for minute in 0..6 {
        refuse(&store, "rpc", "tip_not_zero", NOW + minute * MINUTE_US).await;
    }
    let limit = NOW + 3 * MINUTE_US;
    let pruned = store.prune(&refusals_before(limit)).await.unwrap();
    assert_eq!(pruned.refusals, 3, "those before the fourth minute");
    let left = world.number("SELECT count(*) FROM refusal");
    assert_eq!(left.await, 3);
    assert_eq!(journaled(&store).await.len(), 6, "the journal is whole");
}

pub(crate) async fn the_sizes_are_those_of_the_tables(world: World) {
    let store = world.open().await;
    let empty = store.sizes().await.unwrap();
    assert_eq!(empty.entries, 0);
    assert!(empty.bytes > 0, "tables have a size");
    intend(&store, &intent(1)).await;
    let sizes = store.sizes().await.unwrap();
    assert_eq!(sizes.entries, 2);
    assert!(sizes.bytes >= empty.bytes);
}

pub(crate) async fn entries_are_selected_by_a_filter(world: World) {
    let store = world.open().await;
    let first = intend(&store, &intent(1)).await;
    append(&store, first, 1).await;
    let second = intend(&store, &intent(2)).await;
    append(&store, second, 2).await;
    let journal = store.journal();
    let any = EntryFilter::default;
    for (filter, expected, why) in [
        (any(), vec![1, 2, 3, 4, 5, 6, 7], "all"),
        (EntryFilter { after: 5, ..any() }, vec![6, 7], "after"),
        (
            EntryFilter {
                kind: Some(EntryKind::Moved(IntentState::Succeeded)),
                ..any()
            },
            vec![3, 6],
            "of a kind",
        ),
        (
            EntryFilter {
                operation: Some("rpc".to_owned()),
                ..any()
            },
            vec![],
            "of an operation",
        ),
        (
            EntryFilter {
                since_us: NOW + 1,
                ..any()
            },
            vec![],
            "since",
        ),
        (
            EntryFilter {
                since_us: NOW,
                after: 2,
                kind: Some(EntryKind::Moved(IntentState::Intended)),
                operation: Some("faucet-drip".to_owned()),
            },
            vec![4],
            "by each",
        ),
    ] {
        let numbers = |found: &[Entry]| found.iter().map(|entry| entry.seq).collect::<Vec<_>>();
        let newest = journal.newest_matching(&filter, 1_000).await.unwrap();
        assert_eq!(numbers(&newest), expected, "newest, {why}");
        let newest = journal.newest_matching(&filter, 1).await.unwrap();
        assert_eq!(
            numbers(&newest),
            expected.last().copied().into_iter().collect::<Vec<_>>(),
            "one, {why}"
        );
        let mut after = 0;
        let mut found = Vec::new();
        while let Some((page, next)) = journal.matching(&filter, after).await.unwrap() {
            assert!(next > after, "it goes on");
            found.extend(page);
            after = next;
        }
        assert_eq!(numbers(&found), expected, "oldest first, {why}");
    }
}
