//! Refusals: what a row counts, that rows are chained, and that old ones are deleted.

use crate::world::{NOW, World, append, intend, intent, refuse};
use futures_util::future::join_all;
use portcullis_filters::ledger::MINUTE_US;
use portcullis_store::{
    Break, Chain, Entry, EntryFilter, EntryKind, GENESIS, IntentState, PAGE, PruneBefore, Store,
    Verified,
};

/// Rows of refusals before this instant are deleted, and nothing else.
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

/// The refusals as lists show them, newest first: number, first and last time, detail.
async fn listed(store: &Store) -> Vec<(i64, i64, i64, String)> {
    let found = store
        .journal()
        .refusals(&EntryFilter::default(), i64::MAX, PAGE)
        .await
        .unwrap();
    let of_row = |row: portcullis_store::Refused| (row.seq, row.first_us, row.last_us, row.detail);
    found.into_iter().map(of_row).collect()
}

/// The entries of refusals whose minute is over.
async fn chained(store: &Store) -> Vec<Entry> {
    store
        .journal()
        .refused(&EntryFilter::default(), 0)
        .await
        .unwrap()
}

async fn verified(store: &Store) -> Verified {
    let journal = store.journal();
    journal.verify_each(Chain::Refusals, |_| {}).await.unwrap()
}

/// One row for each of this many minutes.
async fn refuse_for(store: &Store, minutes: i64) {
    for minute in 0..minutes {
        refuse(store, "rpc", "tip_not_zero", NOW + minute * MINUTE_US).await;
    }
}

pub(crate) async fn equal_refusals_of_a_minute_are_one_row(world: World) {
    let store = world.open().await;
    for (operation, reason, after_us) in [
        ("rpc", "tip_not_zero", 0),
        ("rpc", "tip_not_zero", 5),
        ("rpc", "paymaster_data", 6),
        ("mint-card", "tip_not_zero", 7),
        ("rpc", "tip_not_zero", MINUTE_US - 1),
        ("rpc", "tip_not_zero", MINUTE_US),
    ] {
        refuse(&store, operation, reason, NOW + after_us).await;
    }
    let detail = |count: i64, first_us: i64, reason: &str| {
        format!(
            "{{\"count\":{count},\"first_us\":{first_us},\"reason\":\"{reason}\",\
             \"request_id\":\"r{first_us}\"}}"
        )
    };
    let row = |seq, first: i64, last: i64, count, reason| {
        let first_us = NOW + first;
        (seq, first_us, NOW + last, detail(count, first_us, reason))
    };
    let expected = [
        row(4, MINUTE_US, MINUTE_US, 1, "tip_not_zero"),
        row(3, 7, 7, 1, "tip_not_zero"),
        row(2, 6, 6, 1, "paymaster_data"),
        row(1, 0, MINUTE_US - 1, 3, "tip_not_zero"),
    ];
    assert_eq!(listed(&store).await, expected);
    let writes = store.journal().newest(9).await.unwrap();
    assert_eq!(writes, [], "none is among the writes");
}

pub(crate) async fn concurrent_refusals_are_all_counted(world: World) {
    let store = world.open().await;
    let all = (0..300).map(|at| refuse(&store, "rpc", "tip_not_zero", NOW + at));
    join_all(all).await;
    let counted = world.number("SELECT CAST(sum(refusals) AS BIGINT) FROM refusal");
    assert_eq!(counted.await, 300);
    assert_eq!(listed(&store).await.len(), 1);
}

pub(crate) async fn closed_refusals_are_chained_and_protected(world: World) {
    let store = world.open().await;
    refuse_for(&store, 3).await;
    let [first, second] = &chained(&store).await[..] else {
        panic!("the third is open")
    };
    assert_eq!((first.seq, first.at_us), (1, NOW));
    assert_eq!((first.kind, first.intent), (EntryKind::Refused, None));
    assert_eq!(first.prev_hash, GENESIS);
    assert_eq!(second.prev_hash, first.hash);
    assert_eq!(second.computed_hash(), second.hash);
    let whole = Verified::Whole {
        entries: 2,
        head: second.hash.clone(),
    };
    assert_eq!(verified(&store).await, whole);
    let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
    assert_eq!(line["detail"]["count"], 1);
    for statement in [
        "UPDATE refusal SET refusals = 9 WHERE seq = 1",
        "DELETE FROM refusal WHERE seq = 1",
        "DELETE FROM refusal WHERE seq = 3",
    ] {
        let error = world.raw(statement).await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains("append-only"), "{statement}: {message}");
    }
    if !world.is_sqlite() {
        let error = world.raw("TRUNCATE refusal").await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

pub(crate) async fn refusals_of_earlier_versions_are_listed(world: World) {
    let store = world.open().await;
    intend(&store, &intent(1)).await;
    let last = store.journal().newest(1).await.unwrap().remove(0);
    store.close().await;
    world.undo_refusals().await;
    let earlier = Entry {
        seq: 3,
        at_us: NOW,
        kind: EntryKind::Refused,
        intent: None,
        operation: "rpc".to_owned(),
        detail: "{\"reason\":\"tip_not_zero\",\"request_id\":\"r0\"}".to_owned(),
        prev_hash: last.hash,
        hash: String::new(),
    };
    let hash = earlier.computed_hash();
    let row = format!(
        "INSERT INTO journal VALUES (3, {NOW}, 'refused', NULL, 'rpc', '{}', '{}', '{hash}'); \
         UPDATE chain_head SET seq = 3, hash = '{hash}'",
        earlier.detail, earlier.prev_hash
    );
    world.raw(&row).await.unwrap();

    let store = world.open().await;
    refuse(&store, "rpc", "tip_not_zero", NOW + MINUTE_US).await;
    refuse(&store, "rpc", "tip_not_zero", NOW + 3 * MINUTE_US).await;
    let rows = listed(&store).await;
    let numbers: Vec<i64> = rows.iter().map(|row| row.0).collect();
    assert_eq!(numbers, [5, 4, 3], "the numbers continue");
    assert_eq!(rows[2].3, earlier.detail);
    let head = |entries, hash: &str| Verified::Whole {
        entries,
        head: hash.to_owned(),
    };
    assert_eq!(store.journal().verify().await.unwrap(), head(3, &hash));
    let [new] = &chained(&store).await[..] else {
        panic!("one is closed")
    };
    assert_eq!(verified(&store).await, head(1, &new.hash));
    let below = store
        .journal()
        .refusals(&EntryFilter::default(), 4, PAGE)
        .await;
    assert_eq!(below.unwrap().len(), 1, "pages go on with the earlier ones");
}

pub(crate) async fn old_refusals_leave_both_chains_whole(world: World) {
    let store = world.open().await;
    let id = intend(&store, &intent(1)).await;
    refuse_for(&store, 6).await;
    append(&store, id, 3).await;
    let before = chained(&store).await;
    assert_eq!(before.len(), 5, "the last is open");
    let writes = store.journal().verify().await.unwrap();
    let limit = NOW + 3 * MINUTE_US;
    let pruned = store.prune(&refusals_before(limit)).await.unwrap();
    assert_eq!(pruned.refusals, 3, "those before the fourth minute");
    let left = chained(&store).await;
    let numbers: Vec<i64> = left.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, [4, 5, 6], "pruning closes what is over");
    assert_eq!(left[..2], before[3..], "the rest is as before");
    let whole = Verified::Whole {
        entries: 3,
        head: left[2].hash.clone(),
    };
    assert_eq!(verified(&store).await, whole);
    assert_eq!(store.journal().verify().await.unwrap(), writes);
    assert_eq!(
        store.prune(&refusals_before(limit)).await.unwrap().refusals,
        0
    );

    let all = store.prune(&refusals_before(i64::MAX)).await.unwrap();
    assert_eq!(all.refusals, 3);
    let Verified::Whole { entries, head } = verified(&store).await else {
        panic!("nothing is left, and nothing is missing")
    };
    assert_eq!((entries, head), (0, left[2].hash.clone()));
    refuse(&store, "rpc", "tip_not_zero", NOW + 9 * MINUTE_US).await;
    assert_eq!(listed(&store).await[0].0, 7, "the numbers continue");
}

pub(crate) async fn the_sizes_are_those_of_the_tables(world: World) {
    let store = world.open().await;
    let empty = store.sizes().await.unwrap();
    assert_eq!((empty.writes, empty.refusals), (0, 0));
    assert!(empty.bytes > 0, "tables have a size");
    intend(&store, &intent(1)).await;
    refuse_for(&store, 6).await;
    store
        .prune(&refusals_before(NOW + 2 * MINUTE_US))
        .await
        .unwrap();
    let sizes = store.sizes().await.unwrap();
    assert_eq!((sizes.writes, sizes.refusals), (2, 4));
    assert!(sizes.bytes >= empty.bytes);
    store.prune(&refusals_before(i64::MAX)).await.unwrap();
    assert_eq!(store.sizes().await.unwrap().refusals, 0);
}

pub(crate) async fn a_reader_verifies_while_refusals_are_pruned(world: World) {
    let store = world.open().await;
    refuse_for(&store, i64::from(PAGE) + 100).await;
    let reader = world.read_only().await.unwrap();
    let pruning = async {
        for minute in 0..i64::from(PAGE) / 10 {
            let limit = NOW + minute * 10 * MINUTE_US;
            store.prune(&refusals_before(limit)).await.unwrap();
        }
    };
    let reading = async {
        for _ in 0..40 {
            let found = reader.verify_each(Chain::Refusals, |_| {}).await.unwrap();
            assert!(matches!(found, Verified::Whole { .. }), "{found:?}");
        }
    };
    tokio::join!(pruning, reading);
    reader.close().await;
}

pub(crate) async fn a_changed_refusal_is_found(world: World) {
    let store = world.open().await;
    refuse_for(&store, 6).await;
    let drop = if world.is_sqlite() {
        "DROP TRIGGER refusal_keeps_rows; DROP TRIGGER refusal_keeps_values"
    } else {
        "DROP TRIGGER refusal_keeps_rows ON refusal; DROP TRIGGER refusal_keeps_values ON refusal"
    };
    world.raw(drop).await.unwrap();
    let broken = async |statement: &str, seq: i64, why: Break| {
        world.raw(statement).await.unwrap();
        let expected = Verified::Broken { seq, why };
        assert_eq!(verified(&store).await, expected, "{statement}");
    };
    for (column, changed, original) in [
        ("refusals", "9", "1"),
        ("reason", "'batch'", "'tip_not_zero'"),
        ("operation", "'register'", "'rpc'"),
        ("first_us", "1", "last_us"),
    ] {
        let set = |value: &str| format!("UPDATE refusal SET {column} = {value} WHERE seq = 3");
        broken(&set(changed), 3, Break::Hash).await;
        world.raw(&set(original)).await.unwrap();
        assert!(matches!(verified(&store).await, Verified::Whole { .. }));
    }
    broken("DELETE FROM refusal WHERE seq = 5", 5, Break::Missing).await;
    broken("DELETE FROM refusal WHERE seq = 2", 2, Break::Missing).await;
    broken("DELETE FROM refusal WHERE seq = 1", 1, Break::Missing).await;
    let moved = "UPDATE refusal_head SET pruned_seq = 2";
    broken(moved, 3, Break::Link).await;
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
