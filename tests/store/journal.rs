//! The journal: what stands in it, who may read it, and that a whole chain is found whole.

use crate::world::{NOW, World, advance, append, intend, intent, refuse};
use portcullis_store::{
    Entry, EntryKind, GENESIS, IntentId, IntentState, PAGE, Store, StoreError, Verified,
};

pub(crate) async fn a_refusal_is_journaled(world: World) {
    let store = world.open().await;
    refuse(&store, "rpc", "tip_not_zero", NOW).await;
    refuse(&store, "rpc", "tip_not_zero", NOW + 1).await;
    let entries = store.journal().newest(2).await.unwrap();
    let first = &entries[0];
    assert_eq!(
        (first.seq, first.at_us, first.kind),
        (1, NOW, EntryKind::Refused)
    );
    assert_eq!((first.intent, first.operation.as_str()), (None, "rpc"));
    let expected = format!("{{\"reason\":\"tip_not_zero\",\"request_id\":\"r{NOW}\"}}");
    assert_eq!(first.detail, expected);
    assert_eq!(first.prev_hash, GENESIS);
    assert_eq!(entries[1].prev_hash, first.hash);
    let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
    assert_eq!(line["detail"]["request_id"], format!("r{NOW}"));
    assert_eq!(line["hash"], *first.hash);
}

fn numbers(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.seq).collect()
}

pub(crate) async fn entries_come_in_pages_and_by_intent(world: World) {
    let store = world.open().await;
    let journal = store.journal();
    assert_eq!(journal.entries(1, 10).await.unwrap(), []);
    let other = intend(&store, &intent(0)).await;
    append(&store, other, 1).await;
    let id = intend(&store, &intent(1)).await;
    append(&store, other, 2).await;
    assert!(advance(&store, id, IntentState::Accepted).await);
    assert_eq!(numbers(&journal.entries(1, 3).await.unwrap()), [1, 2, 3]);
    assert_eq!(numbers(&journal.entries(6, 3).await.unwrap()), [6, 7, 8]);
    assert_eq!(numbers(&journal.entries(8, u32::MAX).await.unwrap()), [8]);
    assert_eq!(journal.entries(9, 3).await.unwrap(), []);
    assert_eq!(numbers(&journal.newest(2).await.unwrap()), [7, 8]);
    assert_eq!(
        numbers(&journal.newest(99).await.unwrap()),
        (1..=8).collect::<Vec<_>>()
    );
    assert_eq!(numbers(&journal.entries_of(id).await.unwrap()), [4, 5, 8]);
}

pub(crate) async fn a_chain_longer_than_a_page_verifies(world: World) {
    let store = world.open().await;
    let journal = store.journal();
    let empty = Verified::Whole {
        entries: 0,
        head: GENESIS.to_owned(),
    };
    assert_eq!(journal.verify().await.unwrap(), empty);
    let id = intend(&store, &intent(1)).await;
    for more in [0, PAGE - 2, 1] {
        append(&store, id, more).await;
        let last = journal.newest(1).await.unwrap().remove(0);
        let whole = Verified::Whole {
            entries: last.seq,
            head: last.hash,
        };
        assert_eq!(journal.verify().await.unwrap(), whole);
    }
    let all = i64::from(PAGE) + 1;
    assert_eq!(
        journal.entries(1, u32::MAX).await.unwrap().len(),
        PAGE as usize
    );
    assert_eq!(numbers(&journal.entries(all, 1).await.unwrap()), [all]);
}

pub(crate) async fn the_database_itself_protects_the_journal(world: World) {
    let store = world.open().await;
    intend(&store, &intent(1)).await;
    for statement in ["UPDATE journal SET detail = '{}'", "DELETE FROM journal"] {
        let error = world.raw(statement).await.unwrap_err();
        assert!(
            error.to_string().contains("append-only"),
            "{statement}: {error}"
        );
    }
    if !world.is_sqlite() {
        let error = world.raw("TRUNCATE journal").await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2);
}

pub(crate) async fn a_reader_verifies_while_a_relay_writes(world: World) {
    let store = world.open().await;
    let id = intend(&store, &intent(1)).await;
    let reader = world.read_only().await.unwrap();
    assert_eq!(reader.intent(id).await.unwrap().unwrap().id, id);
    let writing = append(&store, id, 200);
    let reading = async {
        let mut seen = 0;
        while seen < 202 {
            let verified = reader.verify().await.unwrap();
            let Verified::Whole { entries, .. } = verified else {
                panic!("{verified:?}")
            };
            assert!(entries >= seen, "the journal never shrinks");
            seen = entries;
        }
    };
    tokio::join!(writing, reading);
    store.close().await;
    assert_eq!(
        numbers(&reader.newest(1).await.unwrap()),
        [202],
        "also without a relay"
    );
    reader.close().await;
    let alone = world.read_only().await.unwrap();
    assert_eq!(
        numbers(&alone.newest(1).await.unwrap()),
        [202],
        "also opened without a relay"
    );
}

pub(crate) async fn a_reader_creates_no_tables(world: World) {
    for _ in 0..2 {
        let refused = world.read_only().await;
        assert!(matches!(refused, Err(StoreError::NoTables)), "{refused:?}");
    }
    let file = world.url.trim_start_matches("sqlite:");
    assert!(!std::path::Path::new(file).exists());
}

pub(crate) async fn tables_of_another_version_are_refused(world: World) {
    world.open().await.close().await;
    world
        .raw("UPDATE _sqlx_migrations SET version = version + 98")
        .await
        .unwrap();
    let refused = world.read_only().await;
    assert!(
        matches!(refused, Err(StoreError::Version { .. })),
        "{refused:?}"
    );
    let refused = Store::open(&world.config(), None).await;
    assert!(
        matches!(refused, Err(StoreError::Version { .. })),
        "{refused:?}"
    );
}

fn pair() -> [Entry; 2] {
    let first = Entry {
        seq: 1,
        at_us: 1_700_000_000_000_000,
        kind: EntryKind::Moved(IntentState::Intended),
        intent: Some(IntentId(1)),
        operation: "faucet-drip".to_owned(),
        detail: "{\"nonce\":7}".to_owned(),
        prev_hash: GENESIS.to_owned(),
        hash: String::new(),
    };
    let first = Entry {
        hash: first.computed_hash(),
        ..first
    };
    let second = Entry {
        seq: 2,
        at_us: 1_700_000_000_000_001,
        kind: EntryKind::Refused,
        intent: None,
        operation: "rpc".to_owned(),
        detail: "{\"reason\":\"trän\"}".to_owned(),
        prev_hash: first.hash.clone(),
        hash: String::new(),
    };
    let second = Entry {
        hash: second.computed_hash(),
        ..second
    };
    [first, second]
}

/// Computed with Python's hashlib from the description above.
#[test]
fn hashes_are_those_of_the_description() {
    let [first, second] = pair();
    let expected = "7e1230c65fe3f96888f03f755746226119e28890ddcd0b977cc973a5ed3d1c8b";
    assert_eq!(first.hash, expected);
    let expected = "fc744e82b44a09eb1ad9ebb3c356f334fc4e1a5531ef6c08cb8d55f2df2b93c4";
    assert_eq!(second.hash, expected);
}

#[test]
fn a_line_is_json_for_any_row() {
    let [mut first, second] = pair();
    let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
    assert_eq!(line["detail"]["nonce"], 7);
    assert_eq!(line["intent"], 1);
    let line: serde_json::Value = serde_json::from_str(&second.to_json()).unwrap();
    assert_eq!(line["intent"], serde_json::Value::Null);
    assert_eq!(line["kind"], "refused");
    first.detail = "no\nJSON\"".to_owned();
    first.operation = "a\"b".to_owned();
    let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
    assert_eq!(line["detail"], "no\nJSON\"");
    assert_eq!(line["operation"], "a\"b");
    assert!(!first.to_json().contains('\n'));
}
